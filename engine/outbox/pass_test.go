package outbox_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
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

// (B1) What was rolled back never runs, though its id was answered; what
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

// A direct enqueue needs no transaction and no outbox: the two are
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

// (Z8) A row that no queue can take is parked with its reason, holds nobody up,
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

// (B4) A relay with a lease that is none is not made. In a Config, 0 is
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

// (TR2)
func TestARowsWayIsInTheTraceOfItsStaging(t *testing.T) {
	w := newWorld(t)
	const asked = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	ids := w.stage(pgoutbox.Request{Job: "free", Traceparent: asked}, pgoutbox.Request{Job: "nobody", Traceparent: asked})
	tracer := &enginetest.Tracer{}
	w.pass(w.relay(func(c *outbox.Config) { c.Tracer = tracer }))
	way, refused := tracer.Named("outbox free"), tracer.Named("outbox nobody")
	if len(way) != 1 || len(refused) != 1 || len(tracer.Open()) != 0 {
		t.Fatalf("spans %+v, %+v", way, refused)
	}
	if !refused[0].Ending.Failed || refused[0].Ending.Code != job.CodeUnknownJob {
		t.Errorf("what was refused ended %+v", refused[0].Ending)
	}
	run, err := w.runs.Get(t.Context(), ids[0])
	w.check(err)
	if way[0].Parent != asked || run.Traceparent != way[0].ID || way[0].At.After(way[0].Ending.At) {
		t.Errorf("the way is %+v, and the run is under %s", way[0], run.Traceparent)
	}
}
