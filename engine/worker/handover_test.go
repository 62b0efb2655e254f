package worker_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jobrunner/runner/engine/internal/enginetest"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/queue"
	"github.com/jobrunner/runner/engine/store"
	"github.com/jobrunner/runner/engine/worker"
)

// handing is a database that hands over whatever it is asked to.
type handing struct{ store.Store }

func (h handing) Enqueue(ctx context.Context, batch []store.EnqueueParams) ([]store.EnqueueResult, error) {
	res, err := h.Store.Enqueue(ctx, batch)
	for i := range res {
		if err != nil || batch[i].Worker == "" || res[i].Deduped {
			continue
		}
		got, err := h.Claim(ctx, store.ClaimParams{Worker: batch[i].Worker, Queues: []store.QueueLimit{{Queue: batch[i].Queue, Limit: 1}}})
		if err != nil {
			return nil, err
		}
		if len(got.Runs) == 1 {
			res[i].State, res[i].Run = job.Running, &got.Runs[0]
		}
	}
	return res, err
}

// handsOver is a view of one.
type handsOver struct{ *enginetest.Store }

func (handsOver) HandsOver() {}

// handingRig is a rig with one slot whose queue hands over to its only worker.
func handingRig(t *testing.T, h handlers) (*rig, *worker.Worker) {
	t.Helper()
	r := newRig(t, h, slots(1))
	r.db.Store = handing{r.db.Store}
	r.queue = queue.New(queue.Config{Store: handsOver{r.db}, Manifest: r.deploy.Manifest})
	w := r.idle(nil)
	r.queue.Use(w)
	return r, w
}

func TestARunBeginsWithoutAClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := handingRig(t, lasts(time.Second))
		// Claims of the worker's own find nothing.
		r.db.Between = onOp("Claim", func(context.Context, func() error) error { return nil })
		r.must(w.Start(t.Context()))
		for range 3 { // one after another: the slot is free again
			id := r.enqueue("j")
			if got := r.get(id); got.State != job.Running || got.Claims != 1 {
				t.Fatalf("right after the enqueue the run is %s, claimed %d times", got.State, got.Claims)
			}
			r.ended(r.settles(id), job.Done, "", 1)
			time.Sleep(time.Second) // a claim has found that nothing waits for the slot
		}
		busy := r.enqueue("j")
		if id := r.enqueue("j"); r.get(id).State != job.Ready {
			t.Errorf("with no slot free the run is %s, want it to wait", r.get(id).State)
		}
		r.ended(r.settles(busy), job.Done, "", 1)
	})
}

func TestARunWhoseHandoverWasLostIsNotHeldForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := handingRig(t, lasts(time.Second))
		lose := true
		r.db.Between = onOp("Enqueue", func(_ context.Context, call func() error) error {
			if !lose {
				return call()
			}
			lose = false
			return enginetest.Lost(call)
		})
		r.must(w.Start(t.Context()))
		id := r.enqueue("j") // the repeat finds it
		r.ended(r.settles(id), job.Done, "", 1)
		r.logged("jobs.worker.session-retired", 1)
		r.ended(r.settles(r.enqueue("j")), job.Done, "", 1)
	})
}

func TestADrainWaitsForAHandover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := handingRig(t, lasts(time.Second))
		answer := make(chan struct{})
		r.db.Between = onOp("Enqueue", func(_ context.Context, call func() error) error {
			<-answer
			return call()
		})
		r.must(w.Start(t.Context()))
		synctest.Wait()
		id := make(chan string, 1)
		go func() { id <- r.enqueue("j") }()
		synctest.Wait()
		drained := make(chan struct{})
		go func() { w.Drain(20 * time.Second); close(drained) }()
		synctest.Wait()
		select {
		case <-drained:
			t.Fatal("the drain is over while a run may be on its way to the worker")
		default:
		}
		close(answer)
		<-drained
		r.ended(r.get(<-id), job.Ready, "", 0)
		if all, err := r.db.ListWorkers(t.Context()); err != nil || len(all) != 0 {
			t.Errorf("workers %v, %v", all, err)
		}
	})
}
