package outbox_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/internal/enginetest"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/outbox"
	"github.com/jobrunner/runner/engine/queue"
	"github.com/jobrunner/runner/engine/store"
)

// (B6) A row that fails to publish stops the batch: those before it are
// settled, and those after it are not published but free at once.
func TestFailureStopsTheBatchInOrder(t *testing.T) {
	w := newWorld(t)
	ids := w.stage(numbered(6)...)
	broken := true
	w.runs.Store = &picky{Store: w.runs.Store, refuse: func(input string) error {
		if broken && input == "2" {
			return enginetest.Broken()
		}
		return nil
	}}
	res, err := w.relay(nil).Pass(t.Context())
	if abi.CodeOf(err) != job.CodeDatabaseCorrupt || res != (outbox.Result{Claimed: 6, Published: 2, Released: 4}) {
		t.Fatalf("%+v %v", res, err)
	}
	if got := w.all(); !slices.Equal(got, ids[:2]) {
		t.Errorf("runs %v, want the first two of %v", got, ids)
	}
	for i, row := range w.rows("") {
		if published := row.State == store.Published; published != (i < 2) || !published && row.Relay != "" {
			t.Errorf("row %d is %s, held by %q", i, row.State, row.Relay)
		}
	}
	// (B7) It stays in the way, seen by everyone, rather than being passed over.
	if res, err := w.relay(nil).Pass(t.Context()); err == nil || res.Published != 0 || res.Released != 4 {
		t.Errorf("a second relay: %+v %v", res, err)
	}
	stats, err := w.outbox.OutboxStats(t.Context())
	if err != nil || stats.Waiting != 4 {
		t.Errorf("%+v %v", stats, err)
	}
	broken = false
	if res := w.pass(w.relay(nil)); res.Published != 4 {
		t.Errorf("when it is mended: %+v", res)
	}
	if got := w.all(); !slices.Equal(got, ids) {
		t.Errorf("runs %v, want %v", got, ids)
	}
}

// picky refuses batches by their inputs.
type picky struct {
	store.Store
	refuse func(input string) error
}

func (s *picky) Enqueue(ctx context.Context, batch []store.EnqueueParams) ([]store.EnqueueResult, error) {
	for i := range batch {
		if err := s.refuse(string(batch[i].Input)); err != nil {
			return nil, err
		}
	}
	return s.Store.Enqueue(ctx, batch)
}

// (Z8) While the queue's database is away nothing is lost, rejected or passed
// over, and when it is back all of it is published in order.
func TestOutageOfTheQueueLosesNothing(t *testing.T) {
	w := newWorld(t)
	ids := w.stage(numbered(250)...)
	r := w.relay(nil)
	if res := w.pass(r); res.Published != 100 {
		t.Fatalf("%+v", res)
	}
	for name, fault := range map[string]func(call func() error) error{
		"away": func(func() error) error { return enginetest.Away() },
		"lost": enginetest.Lost,
	} {
		w.runs.Between = func(_ context.Context, _ string, call func() error) error { return fault(call) }
		res, err := r.Pass(t.Context())
		if err == nil || res != (outbox.Result{Claimed: 100, Released: 100}) {
			t.Errorf("%s: %+v %v", name, res, err)
		}
	}
	w.runs.Between = nil
	if res := w.drain(r); res.Published != 150 || res.Rejected != 0 || res.Deduped != 100 {
		t.Errorf("%+v", res)
	}
	if got := w.all(); !slices.Equal(got, ids) {
		t.Errorf("%d runs of %d, in order: %v", len(got), len(ids), slices.IsSorted(got))
	}
}

// A relay whose outbox is away goes on with what it held when it is back.
func TestOutageOfTheOutboxLosesNothing(t *testing.T) {
	w := newWorld(t)
	ids := w.stage(numbered(30)...)
	for _, lost := range []string{"claim", "settle"} {
		armed := true
		r := w.relay(func(c *outbox.Config) {
			c.Batch = 10
			c.Outbox = &between{OutboxRelay: w.open(), do: func(op string, call func() error) error {
				if armed && op == lost {
					armed = false
					return enginetest.Lost(call)
				}
				return call()
			}}
		})
		if _, err := r.Pass(t.Context()); !errors.Is(err, store.ErrUnknown) {
			t.Fatalf("%s: %v", lost, err)
		}
		if res := w.pass(r); res.Claimed != 10 || res.Published != 10 {
			t.Errorf("after the answer to a %s was lost: %+v", lost, res)
		}
	}
	if res := w.drain(w.relay(nil)); res.Published > 10 || res.Rejected != 0 {
		t.Errorf("left: %+v", res)
	}
	if got := w.all(); !slices.Equal(got, ids) {
		t.Errorf("%d runs of %d", len(got), len(ids))
	}
}

// (B8, I7) What was published and not settled is published again and inserts
// nothing, also when its run is long finished.
func TestRepublishInsertsNothing(t *testing.T) {
	w := newWorld(t)
	ids := w.stage(numbered(2)...)
	dead := w.relay(func(c *outbox.Config) {
		c.Outbox = &between{OutboxRelay: w.open(), do: func(op string, call func() error) error {
			if op == "settle" {
				return enginetest.Away() // dies before it settles
			}
			return call()
		}}
	})
	if _, err := dead.Pass(t.Context()); err == nil {
		t.Fatal("it settled")
	}
	w.check(w.runs.Register(t.Context(), store.RegisterParams{ID: "w", Queues: []string{"default"}, Lease: time.Minute}))
	claimed, err := w.runs.Claim(t.Context(), store.ClaimParams{Worker: "w", Queues: []store.QueueLimit{{Queue: "default", Limit: 1}}})
	w.check(err)
	done := store.SettleParams{Ref: job.Ref{RunID: claimed.Runs[0].ID, Worker: "w", Claim: claimed.Runs[0].Claims}, Outcome: job.Completed, To: job.Done, Output: []byte("1"), Retention: time.Hour}
	if landed, err := w.runs.Settle(t.Context(), []store.SettleParams{done}); err != nil || !landed[0].Landed {
		t.Fatal(landed, err)
	}

	r := w.relay(nil)
	if res := w.pass(r); res.Claimed != 0 {
		t.Fatalf("under the dead relay's lease: %+v", res)
	}
	w.lapse()
	if res := w.pass(w.relay(func(c *outbox.Config) { c.Outbox = w.open() })); res != (outbox.Result{Claimed: 2, Published: 2, Deduped: 2}) {
		t.Errorf("%+v", res)
	}
	if got := w.all(); !slices.Equal(got, ids) {
		t.Errorf("runs %v, want %v", got, ids)
	}
	finished, err := w.runs.Get(t.Context(), claimed.Runs[0].ID)
	if err != nil || finished.State != job.Done || finished.Claims != 1 {
		t.Errorf("the finished run: %+v %v", finished, err)
	}
}

// (B5) A relay that stalls past its lease while another publishes has its
// late settle ignored: no row is lost, and none published twice.
func TestLateSettleOfAStalledRelayIsIgnored(t *testing.T) {
	w := newWorld(t)
	ids := w.stage(numbered(3)...)
	other := w.relay(func(c *outbox.Config) {
		c.Outbox = w.open()
		c.Queue = queueFunc(func(ctx context.Context, requests []queue.Request) ([]queue.Verdict, error) {
			v, err := w.queue.EnqueueEach(ctx, requests[:1])
			return v, errors.Join(err, enginetest.Away()) // publishes one, then its queue is away
		})
	})
	stalled := w.relay(func(c *outbox.Config) {
		c.Queue = queueFunc(func(ctx context.Context, requests []queue.Request) ([]queue.Verdict, error) {
			v, err := w.queue.EnqueueEach(ctx, requests[:0])
			w.lapse()
			if res, err := other.Pass(context.Background()); err == nil || res.Published != 1 || res.Released != 2 {
				t.Errorf("the other: %+v %v", res, err)
			}
			// It believes that it has published, and has not.
			return append(v, queue.Verdict{Result: queue.Result{ID: ids[0]}}, queue.Verdict{Result: queue.Result{ID: ids[1]}},
				queue.Verdict{Refused: &abi.Error{Code: job.CodeUnknownJob}}), err
		})
	})
	if res := w.pass(stalled); res != (outbox.Result{Claimed: 3, Missed: 3}) {
		t.Errorf("the stalled one: %+v", res)
	}
	if w.events.Count("outbox.settle-missed") != 1 || w.metric("runner_outbox_settle_missed_total") != 3 {
		t.Errorf("logged %v", w.events.Messages())
	}
	if res := w.drain(w.relay(nil)); res.Published != 2 || res.Deduped != 0 {
		t.Errorf("the next: %+v", res)
	}
	if got := w.all(); !slices.Equal(got, ids) {
		t.Errorf("runs %v, want %v", got, ids)
	}
}

// (B3, B9) Two relays on one outbox publish each of 1,000 rows once, and
// each in the order of staging.
func TestTwoRelaysPublishEachRowOnceAndInOrder(t *testing.T) {
	w := newWorld(t)
	ids := w.stage(numbered(1000)...)
	inserted := map[string]int{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for n := range 2 {
		var mine []string
		db := w.open()
		r := w.relay(func(c *outbox.Config) {
			c.Batch = 17
			c.Outbox = db
			c.Queue = queueFunc(func(ctx context.Context, requests []queue.Request) ([]queue.Verdict, error) {
				verdicts, err := w.queue.EnqueueEach(ctx, requests)
				mu.Lock()
				defer mu.Unlock()
				for i, v := range verdicts {
					mine = append(mine, requests[i].ID)
					if !v.Deduped {
						inserted[v.ID]++
					}
				}
				return verdicts, err
			})
		})
		wg.Go(func() {
			for {
				res, err := r.Pass(context.Background())
				if err != nil {
					t.Error(err)
					return
				}
				if res.Claimed == 0 {
					break
				}
				if res.Missed != 0 || res.Deduped != 0 {
					t.Errorf("relay %d: %+v", n, res)
				}
			}
			if !slices.IsSorted(mine) {
				t.Errorf("relay %d was out of order", n)
			}
		})
	}
	wg.Wait()
	if got := w.all(); !slices.Equal(got, ids) {
		t.Errorf("%d runs of %d", len(got), len(ids))
	}
	for id, n := range inserted {
		if n != 1 {
			t.Errorf("row %s was inserted %d times", id, n)
		}
	}
	if n := len(w.rows(store.Published)); n != 1000 {
		t.Errorf("%d rows are published", n)
	}
}
