package outbox_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/jobrunner/runner/engine/internal/enginetest"
	"github.com/jobrunner/runner/engine/manifest"
	"github.com/jobrunner/runner/engine/outbox"
	"github.com/jobrunner/runner/engine/queue"
	"github.com/jobrunner/runner/engine/store"
	"github.com/jobrunner/runner/engine/store/postgres"
	pgoutbox "github.com/jobrunner/runner/engine/store/postgres/outbox"
	"github.com/jobrunner/runner/engine/store/postgres/pgtest"
)

// envVictim makes this binary a relay that kills itself; its value is a plan.
const envVictim = "RUNNER_TEST_RELAY_VICTIM"

// plan says where a victim dies: at the Nth time of an operation, before it is
// asked for or after it was done.
type plan struct {
	Outbox, Schema, Queue string
	Op                    string // claim, enqueue, settle, release
	After                 bool
	Nth                   int
}

// victim relays until it dies. It returns only if it did not, or could not begin.
func victim() int {
	var p plan
	err := json.Unmarshal([]byte(os.Getenv(envVictim)), &p)
	if err == nil {
		err = p.relay(context.Background())
	}
	fmt.Fprintln(os.Stderr, err)
	return 3
}

// die ends the process as a power cut does: nothing of it runs any more.
func die() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

func (p plan) relay(ctx context.Context) error {
	ob, err := pgoutbox.Open(ctx, pgoutbox.Config{URL: p.Outbox, Schema: p.Schema})
	if err != nil {
		return err
	}
	runs, err := postgres.Open(ctx, postgres.Config{URL: p.Queue})
	if err != nil {
		return err
	}
	seen := 0
	at := func(op string, call func() error) error {
		if op != p.Op {
			return call()
		}
		if seen++; seen < p.Nth {
			return call()
		}
		if p.After {
			_ = call()
		}
		die()
		return nil
	}
	m := jobs()
	q := queue.New(queue.Config{Store: runs, Manifest: func() *manifest.Manifest { return m }})
	r, err := outbox.New(outbox.Config{
		Outbox: &between{OutboxRelay: ob, do: at},
		Queue: queueFunc(func(ctx context.Context, requests []queue.Request) (v []queue.Verdict, err error) {
			err = at("enqueue", func() error { v, err = q.EnqueueEach(ctx, requests); return err })
			if p.Op == "release" && len(v) > 5 {
				return v[:5], errors.Join(err, enginetest.Away()) // something is left to release
			}
			return v, err
		}),
		Batch: 20, Lease: time.Hour,
	})
	if err != nil {
		return err
	}
	for range 100 {
		if _, err := r.Pass(ctx); err != nil && p.Op != "release" {
			return err
		}
	}
	return errors.New("it has outlived its plan")
}

// (B8) A relay is killed at every point of a pass, again and again on one outbox,
// with the queue in the same database and in another: each row becomes exactly
// one run.
func TestRelayKilledAtEveryPoint(t *testing.T) {
	for _, same := range []bool{true, false} {
		t.Run(fmt.Sprintf("same database %v", same), func(t *testing.T) {
			w := newWorldIn(t, pgtest.Database(t))
			queueURL := w.cfg.URL
			if !same {
				queueURL = pgtest.Database(t)
			}
			m, err := postgres.OpenMigrator(postgres.Config{URL: queueURL})
			w.check(err)
			_, err = m.Migrate(t.Context())
			w.check(err)
			runs, err := postgres.Open(t.Context(), postgres.Config{URL: queueURL})
			w.check(err)
			t.Cleanup(func() { runs.Close() })
			w.runs.Store = runs

			var ids []string
			for _, op := range []string{"claim", "enqueue", "settle", "release"} {
				for _, after := range []bool{false, true} {
					ids = append(ids, w.stage(numbered(45)...)...)
					kill(t, plan{Outbox: w.cfg.URL, Schema: w.cfg.Schema, Queue: queueURL, Op: op, After: after, Nth: 2})
					w.lapse() // as half a minute does
				}
			}
			published := len(w.rows(store.Published))
			if published == 0 || published == len(ids) {
				t.Fatalf("%d of %d rows were settled by those who died", published, len(ids))
			}
			res := w.drain(w.relay(nil))
			if published+res.Published != len(ids) || res.Rejected != 0 {
				t.Errorf("%d were published, then %+v", published, res)
			}
			if res.Deduped == 0 {
				t.Error("nobody died between publishing and settling")
			}
			if got := w.all(); !slices.Equal(got, ids) {
				t.Errorf("%d runs for %d rows", len(got), len(ids))
			}
			for _, row := range w.rows("") {
				if row.State != store.Published || row.RunID != row.ID {
					t.Errorf("row %s is %s as %s", row.ID, row.State, row.RunID)
				}
			}
		})
	}
}

// kill runs a victim to its death.
func kill(t *testing.T, p plan) {
	t.Helper()
	text, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), envVictim+"="+string(text))
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || !exit.Sys().(syscall.WaitStatus).Signaled() {
		t.Fatalf("the victim of %+v ended otherwise: %v\n%s", p, err, out)
	}
}
