package worker_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/deploy"
	"github.com/jobrunner/runner/engine/internal/enginetest"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/manifest"
	"github.com/jobrunner/runner/engine/queue"
	"github.com/jobrunner/runner/engine/store"
	"github.com/jobrunner/runner/engine/worker"
)

// A retry goes on undoing the same run, with as many attempts as before, and it ends
// with its own failure; only then a retry is a fresh run. (SG28)
func TestARetryOfARunThatCouldNotBeUndoneUndoesTheRest(t *testing.T) {
	for _, how := range []string{"one", "bulk"} {
		synctest.Test(t, func(t *testing.T) {
			var fails atomic.Int32
			fails.Store(2)
			s := &saga{undo: func(what string, _ *task) error {
				if what == "flight" && fails.Add(-1) >= 0 {
					return errors.New("the airline does not answer")
				}
				return nil
			}}
			r := newRig(t, handlers{"j": s.run}, compensates(2))
			r.work(nil)
			id := r.enqueue("j")
			r.ended(r.settles(id), job.Dead, job.CodeCompensationFailed, 4)
			did := []string{"flight", "hotel", "undo hotel", "undo flight", "undo flight"}
			s.want(t, did...)

			fails.Store(1) // one more attempt fails: they are counted anew
			ctx := queue.WithActor(t.Context(), "ann")
			switch how {
			case "one":
				again, err := r.queue.Retry(ctx, store.RequeueParams{ID: id})
				if r.must(err); again.ID != id || again.Error.Message != "no money" {
					t.Errorf("answered run %s with %+v", again.ID, again.Error)
				}
			case "bulk":
				p := queue.BulkParams{Verb: queue.Retry, Filter: store.ListParams{State: job.Dead}, DryRun: true}
				res, err := r.queue.Bulk(ctx, p)
				if r.must(err); len(res.Moved) != 1 || res.Moved[0] != id {
					t.Errorf("a dry run answered %+v", res)
				}
				p.DryRun = false
				res, err = r.queue.Bulk(ctx, p)
				if r.must(err); len(res.Moved) != 1 || len(res.Undoing) != 1 || len(res.Fresh) != 0 {
					t.Errorf("a bulk retry answered %+v", res)
				}
			}
			run := r.settles(id)
			r.ended(run, job.Dead, "", 4)
			if run.Error.Message != "no money" {
				t.Errorf("it ended with %+v", run.Error)
			}
			did = append(did, "undo flight", "undo flight")
			s.want(t, did...)

			// Undone to its end, it is begun afresh.
			s.last = func(*task) error { return nil }
			res, err := r.queue.Bulk(ctx, queue.BulkParams{Verb: queue.Retry, Filter: store.ListParams{State: job.Dead}})
			fresh := res.Fresh[id]
			if r.must(err); len(res.Moved) != 1 || fresh == "" || fresh == id {
				t.Fatalf("a bulk retry answered %+v", res)
			}
			r.ended(r.settles(fresh), job.Done, "", 1)
			s.want(t, append(did, "flight", "hotel")...)
			audit, err := r.queue.Audit(ctx, store.AuditParams{})
			r.must(err)
			if len(audit) != 3 || audit[0].Subject != fresh || audit[1].Subject != id || audit[2].Subject != id || audit[0].By != "ann" {
				t.Errorf("audit %+v", audit)
			}
		})
	}
}

// A run that is buried since it lost its workers while it was undone is not begun
// afresh on top of what was not undone, and its own failure is not lost. (SG28)
func TestARetryOfARunThatWasBuriedWhileItWasUndoneUndoesTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var stuck atomic.Bool
		stuck.Store(true)
		begun := make(chan struct{}, 9)
		s := &saga{undo: func(what string, tk *task) error {
			if what == "flight" && stuck.Load() {
				begun <- struct{}{}
				tk.Work(time.Hour)
			}
			return nil
		}}
		r := newRig(t, handlers{"j": s.run}, compensates(1))
		once := func(c *worker.Config) { c.MaxOrphans = 1 }
		var away atomic.Bool
		r.work(func(c *worker.Config) { once(c); r.through(r.cuttable(&away))(c) })
		id := r.enqueue("j")
		<-begun
		away.Store(true)
		time.Sleep(time.Minute)
		r.work(once)
		run := r.settles(id)
		r.ended(run, job.Dead, job.CodeWorkerLost, 2)
		if !strings.Contains(run.Error.Message, "no money") {
			t.Errorf("error %q says nothing of its own failure", run.Error.Message)
		}
		stuck.Store(false)
		again, err := r.queue.Retry(t.Context(), store.RequeueParams{ID: id})
		if r.must(err); again.ID != id {
			t.Errorf("answered run %s", again.ID)
		}
		run = r.settles(id)
		if r.ended(run, job.Dead, "", 2); run.Error.Message != "no money" {
			t.Errorf("it ended with %+v", run.Error)
		}
		s.want(t, "flight", "hotel", "undo hotel", "undo flight", "undo flight")
	})
}

// A person may leave it as it is: the fresh run is the only one then, and nothing of
// the first is undone beside it. (SG28)
func TestARetryThatLeavesARunHalfUndoneIsAFreshRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &saga{undo: func(string, *task) error { return errors.New("the hotel does not answer") }}
		r := newRig(t, handlers{"j": s.run}, compensates(1))
		r.work(nil)
		id := r.enqueue("j")
		r.ended(r.settles(id), job.Dead, job.CodeCompensationFailed, 2)
		s.last = func(*task) error { return nil }
		fresh, err := r.queue.Retry(t.Context(), store.RequeueParams{ID: id, NoCompensate: true})
		if r.must(err); fresh.ID == id || fresh.Parent != id {
			t.Fatalf("answered run %s with parent %s", fresh.ID, fresh.Parent)
		}
		r.ended(r.settles(fresh.ID), job.Done, "", 1)
		for _, leave := range []bool{false, true} {
			_, err := r.queue.Retry(t.Context(), store.RequeueParams{ID: id, NoCompensate: leave})
			if abi.CodeOf(err) != job.CodeNotRequeueable || !strings.Contains(err.Error(), fresh.ID) {
				t.Errorf("a second retry answered %v", err)
			}
		}
		s.want(t, "flight", "hotel", "undo hotel", "flight", "hotel")
	})
}

// What is corrected is the module, and a run stays on the one that it began with
// unless it is told to leave it.
func TestARetryCanUndoWithTheLatestModule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &saga{undo: func(string, *task) error { return errors.New("a bug") }}
		r := newRig(t, handlers{"j": s.run}, compensates(1))
		w := r.work(nil)
		id := r.enqueue("j")
		r.ended(r.settles(id), job.Dead, job.CodeCompensationFailed, 2)
		w.Stop()

		mended := &saga{}
		v2 := &enginetest.Guest{Name: "v2", Handlers: handlers{"j": mended.run}}
		d, err := deploy.New(deploy.Config{Loader: func(context.Context, manifest.Module, string) (abi.Guest, error) {
			return r.guest, nil
		}}, enginetest.Serve(v2, compensates(1)))
		r.must(err)
		r.work(func(c *worker.Config) { c.Deploy = d })
		_, err = r.queue.Retry(t.Context(), store.RequeueParams{ID: id})
		r.must(err)
		r.ended(r.settles(id), job.Dead, job.CodeCompensationFailed, 2)
		s.want(t, "flight", "hotel", "undo hotel", "undo hotel")

		_, err = r.queue.Retry(t.Context(), store.RequeueParams{ID: id, Latest: true})
		r.must(err)
		r.ended(r.settles(id), job.Dead, "", 2)
		mended.want(t, "undo hotel", "undo flight")
	})
}
