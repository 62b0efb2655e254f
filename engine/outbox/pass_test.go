package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/internal/enginetest"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/outbox"
	"github.com/jobrunner/runner/engine/queue"
	"github.com/jobrunner/runner/engine/store"
	pgoutbox "github.com/jobrunner/runner/engine/store/postgres/outbox"
)

// (B1, TC9) What was rolled back never runs, though its id was answered; what
// was committed becomes one run.
func TestCommitIsOneRunAndRollbackNone(t *testing.T) {
	w := newWorld(t)
	r := w.relay(nil)
	var gone string
	err := pgx.BeginFunc(t.Context(), w.app, func(tx pgx.Tx) (err error) {
		if gone, err = pgoutbox.Schema(w.cfg.Schema).EnqueueTx(t.Context(), tx, pgoutbox.Request{Job: "free"}); err != nil {
			return err
		}
		return errors.New("the order is refused")
	})
	if err == nil || gone == "" {
		t.Fatal(gone, err)
	}
	if res := w.pass(r); res.Claimed != 0 {
		t.Errorf("after a rollback: %+v", res)
	}
	if _, err := w.runs.Get(t.Context(), gone); abi.CodeOf(err) != job.CodeNotFound {
		t.Errorf("a run under the id that was rolled back: %v", err)
	}
	ids := w.stage(pgoutbox.Request{Job: "free", Input: []byte(`{"a":1}`)})
	if res := w.pass(r); res != (outbox.Result{Claimed: 1, Published: 1}) {
		t.Errorf("after a commit: %+v", res)
	}
	if got := w.all(); !slices.Equal(got, ids) {
		t.Errorf("runs %v, want %v", got, ids)
	}
	if res := w.pass(r); res.Claimed != 0 {
		t.Errorf("once more: %+v", res)
	}
}

// (TC10) A direct enqueue needs no transaction and no outbox: the two are
// different calls, so none is taken for the other.
func TestDirectEnqueueStandsBesideTheOutbox(t *testing.T) {
	w := newWorld(t)
	direct, err := w.queue.Enqueue(t.Context(), queue.Request{Job: "free"})
	w.check(err)
	if got := w.all(); !slices.Equal(got, []string{direct.ID}) {
		t.Errorf("runs %v", got)
	}
	if rows := w.rows(""); len(rows) != 0 {
		t.Errorf("staged %v", rows)
	}
}

// (B2, B16) A row becomes a run under its own id, with all that was asked for.
func TestRowBecomesTheRunThatWasAskedFor(t *testing.T) {
	w := newWorld(t)
	priority := -5
	at := time.Now().Add(time.Hour).UTC().Truncate(time.Millisecond)
	ids := w.stage(
		pgoutbox.Request{Job: "keyed", Input: []byte(`{"id":"\u0000"}`), Key: "mine", Tenant: "acme", RunAt: at, Priority: &priority,
			MaxAttempts: 9, EnqueuedBy: "ann", Traceparent: "00-1-2-01"},
		pgoutbox.Request{Job: "keyed", Input: []byte(`{"id":7}`)},
		pgoutbox.Request{Job: "free", Delay: time.Hour},
		pgoutbox.Request{Job: "free", Delay: time.Hour},
	)
	w.sql(`UPDATE "` + w.cfg.Schema + `".outbox SET staged_at = staged_at - interval '20 minutes' WHERE id = '` + ids[2] + `'`)
	w.sql(`UPDATE "` + w.cfg.Schema + `".outbox SET staged_at = staged_at - interval '2 hours' WHERE id = '` + ids[3] + `'`)
	if res := w.pass(w.relay(nil)); res.Published != 4 {
		t.Fatalf("%+v", res)
	}
	get := func(i int) job.Run {
		run, err := w.runs.Get(t.Context(), ids[i])
		w.check(err)
		return run
	}
	a, b := get(0), get(1)
	if a.Job != "keyed" || string(a.Input) != `{"id":"\u0000"}` || a.Key != "mine" || a.Tenant != "acme" || !a.RunAt.Equal(at) ||
		a.Priority != -5 || a.MaxAttempts != 9 || a.EnqueuedBy != "ann" || a.Traceparent != "00-1-2-01" || a.State != job.Delayed {
		t.Errorf("said: %+v", a)
	}
	if b.Key != "user:7" || b.MaxAttempts != 3 || b.EnqueuedBy != "postgres" || b.State != job.Ready {
		t.Errorf("declared: %+v", b)
	}
	// A delay counts from the staging, not from the publishing.
	if left := time.Until(get(2).RunAt); left < 39*time.Minute || left > 41*time.Minute {
		t.Errorf("of an hour, staged 20 minutes ago, %v are left", left)
	}
	if late := get(3); late.State != job.Ready {
		t.Errorf("a delay that is over: %+v", late)
	}
}

// (B10) What was published stays, and tells which run stands for it.
func TestPublishedRowTellsWhichRunStandsForIt(t *testing.T) {
	w := newWorld(t)
	ids := w.stage(
		pgoutbox.Request{Job: "keyed", Input: []byte(`{"id":1}`)},
		pgoutbox.Request{Job: "keyed", Input: []byte(`{"id":1}`)},
		pgoutbox.Request{Job: "keyed", Input: []byte(`{"id":1}`), OnConflict: pgoutbox.Reject},
		pgoutbox.Request{Job: "keyed", Input: []byte(`{"id":2}`), OnConflict: pgoutbox.Reject},
	)
	r := w.relay(nil)
	if res := w.pass(r); res != (outbox.Result{Claimed: 4, Published: 3, Deduped: 1, Rejected: 1}) {
		t.Errorf("%+v", res)
	}
	rows := w.rows("")
	for i, want := range []struct {
		state store.StagedState
		run   string
		code  string
	}{
		{store.Published, ids[0], ""},
		{store.Published, ids[0], ""},
		{store.Rejected, "", job.CodeDuplicate},
		{store.Published, ids[3], ""},
	} {
		if got := rows[i]; got.ID != ids[i] || got.State != want.state || got.RunID != want.run || got.Code != want.code || got.Relay != r.ID() {
			t.Errorf("row %d: %+v", i, got)
		}
	}
	if !strings.Contains(rows[2].Reason, ids[0]) {
		t.Errorf("the reason does not name the holder: %s", rows[2].Reason)
	}
	if got := w.all(); !slices.Equal(got, []string{ids[0], ids[3]}) {
		t.Errorf("runs %v", got)
	}
	if in, de := w.metric("runner_outbox_published_total"), w.metric("runner_outbox_rejected_total"); in != 3 || de != 1 {
		t.Errorf("counted %v published and %v rejected", in, de)
	}
}

// (0.8) A row that no queue can take is parked with its reason, holds nobody up,
// and is published once its cause is gone and a person says so.
func TestPoisonIsParkedAndRetryable(t *testing.T) {
	w := newWorld(t)
	ids := w.stage(
		pgoutbox.Request{Job: "free", Input: []byte("0")},
		pgoutbox.Request{Job: "soon", Input: []byte("1")},
		pgoutbox.Request{Job: "checked", Input: []byte(`{"n":"one"}`)},
		pgoutbox.Request{Job: "tenant", Tenant: "a", Input: []byte(`{"org":"b"}`)},
		pgoutbox.Request{Job: "keyed", Input: []byte(`{}`)},
		pgoutbox.Request{Job: "free", Input: []byte("5")},
	)
	// Past the function, as another program might write it.
	w.sql(`UPDATE "` + w.cfg.Schema + `".outbox SET input = '\xff' WHERE id = '` + ids[0] + `'`)
	r := w.relay(nil)
	if res := w.pass(r); res != (outbox.Result{Claimed: 6, Published: 1, Rejected: 5}) {
		t.Fatalf("%+v", res)
	}
	want := []string{job.CodeInputInvalid, job.CodeUnknownJob, job.CodeInputInvalid, job.CodeTenantMismatch, job.CodeKeyInvalid}
	for i, row := range w.rows(store.Rejected) {
		if row.ID != ids[i] || row.Code != want[i] || row.Reason == "" {
			t.Errorf("row %d: %s %s: %s", i, row.ID, row.Code, row.Reason)
		}
	}
	if got := w.all(); !slices.Equal(got, ids[5:]) {
		t.Errorf("runs %v, want %v", got, ids[5:])
	}
	if w.events.Count("outbox.rejected") != 4 { // one for each code
		t.Errorf("logged %v", w.events.Messages())
	}
	if strings.Contains(strings.Join(w.events.Messages(), "\n"), "one") {
		t.Errorf("the log repeats an input: %v", w.events.Messages())
	}
	if res := w.pass(r); res.Claimed != 0 {
		t.Errorf("parked rows were claimed: %+v", res)
	}

	w.manifest.Jobs["soon"] = w.manifest.Jobs["free"]
	again, err := w.outbox.RetryStaged(t.Context(), store.RetryStagedParams{Code: job.CodeUnknownJob})
	if err != nil || !slices.Equal(again, ids[1:2]) {
		t.Fatal(again, err)
	}
	if res := w.pass(r); res != (outbox.Result{Claimed: 1, Published: 1}) {
		t.Errorf("retried: %+v", res)
	}
	if got := w.all(); !slices.Equal(got, []string{ids[1], ids[5]}) {
		t.Errorf("runs %v", got)
	}
}

// (B6, TC68) A row that fails to publish stops the batch: those before it are
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
	if abi.CodeOf(err) != job.CodeDatabaseFull || res != (outbox.Result{Claimed: 6, Published: 2, Released: 4}) {
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

// (0.8) While the queue's database is away nothing is lost, rejected or passed
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

// (B5, TC67) A relay that stalls past its lease while another publishes has its
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

// (B3, B9, TC66) Two relays on one outbox publish each of 1,000 rows once, and
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

// (B17) A batch is one write to the queue.
func TestBatchIsOneWrite(t *testing.T) {
	w := newWorld(t)
	w.stage(numbered(100)...)
	if res := w.pass(w.relay(nil)); res.Published != 100 {
		t.Fatalf("%+v", res)
	}
	if n := w.runs.Count("Enqueue"); n != 1 {
		t.Errorf("it took %d", n)
	}
}

// (B14) A pass without a failure releases nothing and asks nothing of the
// database for it; one without rows publishes and settles nothing.
func TestPassAsksForNoMoreThanItNeeds(t *testing.T) {
	w := newWorld(t)
	var ops []string
	r := w.relay(func(c *outbox.Config) {
		c.Outbox = &between{OutboxRelay: w.outbox, do: func(op string, call func() error) error {
			ops = append(ops, op)
			return call()
		}}
	})
	w.pass(r)
	if diff := cmp.Diff([]string{"claim"}, ops); diff != "" {
		t.Error(diff)
	}
	w.stage(numbered(1)...)
	ops = nil
	w.pass(r)
	if diff := cmp.Diff([]string{"claim", "settle"}, ops); diff != "" {
		t.Error(diff)
	}
	if w.runs.Count("Enqueue") != 1 {
		t.Errorf("%d writes to the queue", w.runs.Count("Enqueue"))
	}
}

// (B4, TC69) A relay with a lease that is none is not made. In a Config, 0 is
// what was left out.
func TestRelayWithoutALeaseIsRefused(t *testing.T) {
	w := newWorld(t)
	good := outbox.Config{Outbox: w.outbox, Queue: w.queue}
	for _, change := range []func(*outbox.Config){
		func(c *outbox.Config) { c.Lease = -1 },
		func(c *outbox.Config) { c.Lease = 1500 * time.Microsecond },
		func(c *outbox.Config) { c.Lease = 1<<63 - 1 },
		func(c *outbox.Config) { c.Batch = -1 },
		func(c *outbox.Config) { c.Batch = 1001 },
		func(c *outbox.Config) { c.Outbox = nil },
		func(c *outbox.Config) { c.Queue = nil },
	} {
		bad := good
		change(&bad)
		if _, err := outbox.New(bad); abi.CodeOf(err) != job.CodeInvalid {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	a, err := outbox.New(good)
	w.check(err)
	b, err := outbox.New(good)
	w.check(err)
	if a.ID() == b.ID() { // (I13)
		t.Errorf("two relays are called %s", a.ID())
	}
	if fmt.Sprint(store.CheckLease(0)) == "<nil>" {
		t.Error("a store takes a lease of nothing")
	}
}
