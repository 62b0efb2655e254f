package schedule_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jobrunner/runner/engine/internal/enginetest"
	"github.com/jobrunner/runner/engine/internal/leaktest"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/manifest"
	"github.com/jobrunner/runner/engine/queue"
	"github.com/jobrunner/runner/engine/schedule"
	"github.com/jobrunner/runner/engine/store"
)

func TestMain(m *testing.M) { os.Exit(leaktest.Main(m)) }

// rig is a database in memory and schedulers over it. Its tests run in a synctest
// bubble, whose time begins with the year 2000.
type rig struct {
	*testing.T
	db     *enginetest.Store
	events *enginetest.Events
	m      atomic.Pointer[manifest.Manifest] // current
}

// newRig declares schedules that enqueue the job "work".
func newRig(t *testing.T, schedules ...*manifest.Schedule) *rig {
	t.Helper()
	r := &rig{T: t, db: &enginetest.Store{Store: enginetest.Memory(t)}, events: &enginetest.Events{}}
	r.m.Store(declaring(schedules...))
	return r
}

func declaring(schedules ...*manifest.Schedule) *manifest.Manifest {
	g := &enginetest.Guest{Name: "v1", Handlers: map[string]enginetest.Handler{"work": nil, "other": nil}}
	return enginetest.Serve(g, func(m *manifest.Manifest) {
		m.Schedules = map[string]*manifest.Schedule{}
		for _, s := range schedules {
			m.Schedules[s.Name] = s
		}
	}).Manifest
}

// every is a schedule with the defaults of a manifest, but that it may overlap.
func every(name, expr string, change func(*manifest.Schedule)) *manifest.Schedule {
	spec, err := manifest.ParseCron(expr)
	if err != nil {
		panic(err)
	}
	s := &manifest.Schedule{
		Name: name, Cron: expr, Spec: spec, Zone: time.UTC, CatchUp: "skip", MaxCatchUp: 10, Overlap: "allow",
		Enqueue: []manifest.ScheduledRun{{Job: "work", Input: []byte(`{"at":"{occurrence}"}`)}},
	}
	if change != nil {
		change(s)
	}
	return s
}

func catchUp(policy string) func(*manifest.Schedule) {
	return func(s *manifest.Schedule) { s.CatchUp = policy }
}

func (r *rig) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

// idle is a scheduler over db that has not started.
func (r *rig) idle(change func(*schedule.Config)) *schedule.Scheduler {
	r.Helper()
	cfg := schedule.Config{Store: r.db, Manifest: r.m.Load, Logger: r.events.Logger()}
	if change != nil {
		change(&cfg)
	}
	cfg.Queue = queue.New(queue.Config{Store: r.db, Manifest: cfg.Manifest})
	cfg.Manifest = r.onward(cfg.Manifest)
	s, err := schedule.New(cfg)
	r.must(err)
	return s
}

// standstill is how many rounds at one instant are a loop in which no time passes.
const standstill = 1000

// onward fails a test whose scheduler makes round after round, each of which asks for
// the manifest, at one instant: on a clock that stands still it would go on for ever.
func (r *rig) onward(current func() *manifest.Manifest) func() *manifest.Manifest {
	var mu sync.Mutex
	var last time.Time
	rounds := 0
	return func() *manifest.Manifest {
		mu.Lock()
		defer mu.Unlock()
		if now := time.Now(); !now.Equal(last) {
			last, rounds = now, 0
		}
		if rounds++; rounds > standstill {
			r.Errorf("%d rounds took no time: one brings about the next for ever", standstill)
			time.Sleep(time.Minute)
		}
		return current()
	}
}

// start is a scheduler that ends with the test.
func (r *rig) start(change func(*schedule.Config)) *schedule.Scheduler {
	r.Helper()
	s := r.idle(change)
	r.must(s.Start())
	r.Cleanup(func() { r.must(s.Stop(context.Background())) })
	synctest.Wait()
	return s
}

func (r *rig) stop(s *schedule.Scheduler) {
	r.Helper()
	r.must(s.Stop(r.Context()))
}

// pass lets time pass, and the millisecond to which the store's time is known.
func (r *rig) pass(d time.Duration) {
	time.Sleep(d + 2*time.Millisecond)
	synctest.Wait()
}

// until lets time pass until an instant, as in "01-02 03:04" of 2000 in UTC.
func (r *rig) until(instant string) {
	r.Helper()
	r.pass(time.Until(instantOf(r.T, instant)))
}

func instantOf(t *testing.T, s string) time.Time {
	t.Helper()
	at, err := time.Parse("2006-01-02 15:04:05", "2000-"+s+":00")
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// runs are all runs, oldest first.
func (r *rig) runs() []job.Run {
	r.Helper()
	var all []job.Run
	for before := ""; ; {
		page, err := r.db.Store.List(r.Context(), store.ListParams{Limit: 1000, Before: before})
		r.must(err)
		if len(page) == 0 {
			break
		}
		all = append(all, page...)
		before = page[len(page)-1].ID
	}
	slices.Reverse(all)
	return all
}

// occurrences are those that have runs, of one schedule, sorted, as "01-02 03:04"
// in UTC; each once for each of its runs.
func (r *rig) occurrences(name string) []string {
	r.Helper()
	var out []string
	for _, run := range r.runs() {
		rest, ok := strings.CutPrefix(run.Key, name+":")
		if !ok {
			continue
		}
		var ms int64
		if _, err := fmt.Sscanf(rest, "%d:", &ms); err != nil {
			r.Fatalf("key %q: %v", run.Key, err)
		}
		out = append(out, time.UnixMilli(ms).UTC().Format("01-02 15:04"))
	}
	slices.Sort(out)
	return out
}

func (r *rig) want(name string, occurrences ...string) {
	r.Helper()
	if got := r.occurrences(name); !slices.Equal(got, occurrences) {
		r.Errorf("at %s, %s has fired %q, want %q", time.Now().UTC().Format("01-02 15:04:05"), name, got, occurrences)
	}
}

func (r *rig) row(name string) store.Schedule {
	r.Helper()
	rows, err := r.db.Store.ListSchedules(r.Context())
	r.must(err)
	for _, row := range rows {
		if row.Name == name {
			return row
		}
	}
	r.Fatalf("there is no row of %s", name)
	return store.Schedule{}
}

// finish ends all live runs.
func (r *rig) finish() {
	r.Helper()
	for _, run := range r.runs() {
		if !run.State.Terminal() {
			_, err := r.db.Store.Cancel(r.Context(), store.CancelParams{ID: run.ID})
			r.must(err)
		}
	}
}

// counts are how often the store was asked for something of a schedule.
func (r *rig) counts() map[string]int {
	counts := map[string]int{}
	for _, op := range []string{"LeadSchedules", "ReleaseSchedules", "FireSchedule"} {
		counts[op] = r.db.Count(op)
	}
	return counts
}

func same(a, b map[string]int) bool { return maps.Equal(a, b) }
