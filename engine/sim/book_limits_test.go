package sim_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/limit"
	"github.com/jobrunner/runner/engine/manifest"
	"github.com/jobrunner/runner/engine/store"
)

// What the manifest says, and the account holds claims to.
const (
	narrow    = 2 // runs of the job of that name at a time
	perTenant = 2 // runs of a tenant at a time, in queue "crowd"
)

// rates are by what they are of: a job, a queue, or the tenants of a queue.
var rates = map[string]manifest.Rate{
	"job metered": {Limit: 3, Per: 5 * time.Second},
	"queue drip":  {Limit: 4, Per: 10 * time.Second, By: "queue"},
	"queue crowd": {Limit: 5, Per: 20 * time.Second, By: "tenant"},
}

func rateOf(name string) *manifest.Rate {
	r := rates[name]
	return &r
}

// crowds checks how many run at a time.
func (b *book) crowds(op string, runs []job.Run) {
	count := map[string]int{}
	for i := range runs {
		r := &runs[i]
		if r.State != job.Running || b.busy[claimOf(r)] {
			continue
		}
		most, what := 0, ""
		switch kind, _, _ := limit.ParseGate(r.Gate); {
		case r.Queue == "crowd":
			most, what = perTenant, "tenant "+r.Tenant
		case kind == limit.KindJob:
			most, what = narrow, r.Gate
		case kind == limit.KindKey:
			most, what = 1, r.Gate
		default:
			continue
		}
		if count[what]++; count[what] > most {
			b.wrong("%s: %d runs of %s run, of which %d may", op, count[what], what, most)
		}
	}
}

func claimOf(r *job.Run) job.Ref { return job.Ref{RunID: r.ID, Worker: r.Worker, Claim: r.Claims} }

// begins checks one run of a claim against pauses, rates and the key it needs.
func (b *book) begins(p store.ClaimParams, res store.ClaimResult, r job.Run) {
	name := b.label(r.ID)
	for _, of := range []pauseOf{{store.PauseQueue, r.Queue}, {store.PauseJob, r.Job}, {store.PauseTenant, r.Tenant}} {
		if of.name != "" && b.pauses[of] {
			b.wrong("a claim handed out %s, whose %s is paused", name, of.kind)
		}
	}
	if holder, busy := res.Busy[r.ID]; busy {
		h := b.runs[holder]
		if r.Job != "strict" || h.State != job.Running || h.Gate != r.Gate || holder == r.ID || b.busy[claimOf(&h)] {
			b.wrong("%s is refused for %s, which is %s and no holder of its key", name, b.label(holder), h.State)
		}
		return
	}
	b.spends("job "+r.Job, "", name)
	b.spends("queue "+r.Queue, r.Tenant, name)
}

// spends counts a start, and checks every time that ends with it.
func (b *book) spends(of, tenant, name string) {
	rate, ok := rates[of]
	if !ok {
		return
	}
	if rate.By == "tenant" {
		of += " of " + tenant
	}
	now := b.w.now().UnixMilli()
	b.starts[of] = append(b.starts[of], now)
	for i, at := range b.starts[of] {
		n := int64(len(b.starts[of]) - i)
		if (n-int64(rate.Limit))*rate.Per.Milliseconds() > (now-at)*int64(rate.Limit) {
			b.wrong("%s was claimed as number %d of %s in %d ms, which may start %d in %v", name, n, of, now-at, rate.Limit, rate.Per)
		}
	}
}

// overlooked checks what a claim left that could have taken more: nothing that no
// limit holds up, whatever else is held up. Rates are left out.
func (b *book) overlooked(queue string) {
	if rates["queue "+queue].Limit > 0 {
		return
	}
	running := map[string]int{}
	for _, r := range b.runs {
		if r.State == job.Running && !b.busy[claimOf(&r)] {
			running[r.Gate]++
		}
	}
	for id, r := range b.runs {
		if r.Queue != queue || r.State != job.Ready || r.RunAt.After(b.w.now()) || r.Job == "metered" {
			continue
		}
		if b.pauses[pauseOf{store.PauseQueue, r.Queue}] || b.pauses[pauseOf{store.PauseJob, r.Job}] || b.pauses[pauseOf{store.PauseTenant, r.Tenant}] {
			continue
		}
		most := 1
		if kind, _, _ := limit.ParseGate(r.Gate); kind == limit.KindJob {
			most = narrow
		}
		if r.Gate == "" || running[r.Gate] < most {
			b.wrong("a claim of queue %s had room and left %s, which nothing holds up (it waits behind %q)", queue, b.label(id), r.Blocked)
		}
	}
}

// refused checks that a claim which found its key held ends as refused, or is
// handed back, and no other does.
func (b *book) refused(p *store.SettleParams) {
	busy := b.busy[p.Ref]
	if busy && p.Outcome != job.Refused && p.Outcome != job.Shed || !busy && p.Outcome == job.Refused {
		b.wrong("%s#%d ended as %s, and found its key held: %v", b.label(p.Ref.RunID), p.Ref.Claim, p.Outcome, busy)
	}
}

// pauseOf is what can be paused.
type pauseOf struct {
	kind store.PauseKind
	name string
}

func (p pauseOf) String() string { return string(p.kind) + " " + p.name }

// setPause notes what is paused.
func (b *book) setPause(p store.PauseParams, changed bool) {
	b.refresh("SetPause")
	of := pauseOf{p.Kind, p.Name}
	if changed != (b.pauses[of] == p.Resume) {
		b.wrong("a pause of %s (resume %v) changed something: %v, and it was paused: %v", of, p.Resume, changed, b.pauses[of])
	}
	b.mu.Lock()
	b.pauses[of] = !p.Resume
	b.mu.Unlock()
}

// paused lists what is.
func (b *book) pausedNow() (out []pauseOf) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for of, is := range b.pauses {
		if is {
			out = append(out, of)
		}
	}
	slices.SortFunc(out, func(x, y pauseOf) int { return strings.Compare(x.String(), y.String()) })
	return out
}

// checkPauses compares the rows with the account.
func (b *book) checkPauses() {
	rows, err := b.w.truth.ListPauses(context.Background())
	if err != nil {
		b.wrong("the pauses cannot be read: %v", err)
	}
	var is []pauseOf
	for _, p := range rows {
		if !p.PausedAt.IsZero() {
			is = append(is, pauseOf{p.Kind, p.Name})
		}
	}
	slices.SortFunc(is, func(x, y pauseOf) int { return strings.Compare(x.String(), y.String()) })
	if want := b.pausedNow(); !slices.Equal(is, want) {
		b.wrong("%s are paused, and %s were", fmt.Sprint(is), fmt.Sprint(want))
	}
}
