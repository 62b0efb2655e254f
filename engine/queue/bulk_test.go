package queue_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/jobrunner/runner/engine/internal/enginetest"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/queue"
	"github.com/jobrunner/runner/engine/store"
)

// dead enqueues a run with a key and lets it die.
func dead(t *testing.T, q *queue.Queue, db *enginetest.Store, key string) string {
	t.Helper()
	ctx := t.Context()
	res, err := q.Enqueue(ctx, queue.Request{Job: "free", Key: key})
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Register(ctx, store.RegisterParams{ID: res.ID, Lease: time.Minute}); err != nil {
		t.Fatal(err)
	}
	got, err := db.Claim(ctx, store.ClaimParams{Worker: res.ID, Queues: []store.QueueLimit{{Queue: "default", Limit: 1}}})
	if err != nil || len(got.Runs) != 1 {
		t.Fatalf("claimed %+v, %v", got, err)
	}
	r := got.Runs[0]
	settled, err := db.Settle(ctx, []store.SettleParams{{
		Ref: job.Ref{RunID: r.ID, Worker: res.ID, Claim: r.Claims}, Outcome: job.DeadLettered, To: job.Dead, Error: &job.Failure{Code: "X_BROKEN"},
	}})
	if err != nil || !settled[0].Landed {
		t.Fatalf("settled %+v, %v", settled, err)
	}
	return r.ID
}

func live(t *testing.T, q *queue.Queue, key string, delay time.Duration) string {
	t.Helper()
	res, err := q.Enqueue(t.Context(), queue.Request{Job: "free", Key: key, Delay: delay})
	if err != nil {
		t.Fatal(err)
	}
	return res.ID
}

// Blocked runs spend nothing of the limit, and what remains is what a second
// call could move: an operator who repeats the call until nothing remains must
// come to an end. (O4)
func TestABulkRetryMovesTheOldestAndSaysWhatASecondCallCouldMove(t *testing.T) {
	q, db := open(t)
	var ids []string
	for _, key := range []string{"a", "b", "c", "d", "d"} {
		ids = append(ids, dead(t, q, db, key))
	}
	live(t, q, "a", time.Hour)
	filter := store.ListParams{State: job.Dead, Job: "free", Code: "X_BROKEN"}

	dry, err := q.Bulk(t.Context(), queue.BulkParams{Verb: queue.Retry, Filter: filter, Limit: 2, DryRun: true})
	if err != nil || !slices.Equal(dry.Moved, ids[1:3]) || dry.Blocked != 2 || dry.Remaining != 1 {
		t.Fatalf("dry run %+v, %v", dry, err)
	}
	res, err := q.Bulk(t.Context(), queue.BulkParams{Verb: queue.Retry, Filter: filter, Limit: 2, Attempts: 9})
	if err != nil || !slices.Equal(res.Moved, ids[1:3]) || res.Blocked != 2 || res.Remaining != 1 {
		t.Fatalf("first %+v, %v", res, err)
	}
	res, err = q.Bulk(t.Context(), queue.BulkParams{Verb: queue.Retry, Filter: filter})
	if err != nil || !slices.Equal(res.Moved, ids[3:4]) || res.Blocked != 2 || res.Remaining != 0 {
		t.Fatalf("second %+v, %v", res, err)
	}
	for id, want := range map[string]job.State{ids[0]: job.Dead, ids[1]: job.Ready, ids[2]: job.Ready, ids[3]: job.Ready, ids[4]: job.Dead} {
		r, err := q.Get(t.Context(), id)
		if err != nil || r.State != want {
			t.Errorf("run %s is %s, %v, want %s", id, r.State, err, want)
		}
		if slices.Contains(ids[1:3], id) && r.MaxAttempts != 9 {
			t.Errorf("run %s may have %d attempts", id, r.MaxAttempts)
		}
	}
}

func TestEachVerbInBulkActsOnWhatItsFilterNamesAndIsAudited(t *testing.T) {
	q, _ := open(t)
	first, second, other := live(t, q, "1", time.Hour), live(t, q, "2", time.Hour), live(t, q, "3", 0)
	ctx := queue.WithActor(t.Context(), "ann")
	for _, c := range []struct {
		verb  queue.Verb
		state job.State
		after job.State // "" is gone
	}{{queue.Promote, job.Delayed, job.Ready}, {queue.Cancel, job.Ready, job.Cancelled}, {queue.Delete, job.Cancelled, ""}} {
		want := []string{first, second}
		if c.verb != queue.Promote {
			want = append(want, other)
		}
		res, err := q.Bulk(ctx, queue.BulkParams{Verb: c.verb, Filter: store.ListParams{State: c.state}, Reason: "spring cleaning"})
		if err != nil || !slices.Equal(res.Moved, want) || res.Remaining != 0 {
			t.Fatalf("%s: %+v, %v; want %v", c.verb, res, err, want)
		}
		r, err := q.Get(t.Context(), first)
		if r.State != c.after {
			t.Fatalf("%s left run %s in state %q, %v", c.verb, first, r.State, err)
		}
	}
	entries, err := q.Audit(t.Context(), store.AuditParams{Kind: store.AuditRun, Subject: first})
	if err != nil || len(entries) != 3 {
		t.Fatalf("audit %+v, %v", entries, err)
	}
	for i, verb := range []store.AuditVerb{store.AuditDelete, store.AuditCancel, store.AuditPromote} {
		if entries[i].By != "ann" || entries[i].Verb != verb {
			t.Errorf("entry %d is %+v, want %s by ann", i, entries[i], verb)
		}
	}
}

func TestABulkOperationWithoutASuitableStateIsRefused(t *testing.T) {
	q, db := open(t)
	id := live(t, q, "1", 0)
	for _, p := range []queue.BulkParams{
		{Verb: queue.Cancel},
		{Verb: queue.Cancel, Filter: store.ListParams{State: job.Done}},
		{Verb: queue.Retry, Filter: store.ListParams{State: job.Ready}},
		{Verb: queue.Promote, Filter: store.ListParams{State: job.Suspended}},
		{Verb: queue.Delete, Filter: store.ListParams{State: job.Running}},
		{Verb: "explode", Filter: store.ListParams{State: job.Ready}},
		{Verb: queue.Cancel, Filter: store.ListParams{State: job.Ready}, Limit: -1},
		{Verb: queue.Cancel, Filter: store.ListParams{State: job.Ready}, Limit: queue.MaxBulk + 1},
	} {
		res, err := q.Bulk(t.Context(), p)
		code(t, err, job.CodeInvalid)
		if len(res.Moved) != 0 {
			t.Errorf("%+v moved %v", p, res.Moved)
		}
	}
	if r, err := db.Get(t.Context(), id); err != nil || r.State != job.Ready {
		t.Errorf("run is %s, %v", r.State, err)
	}
}

// A run that another moved since the list was read is passed over; an outage
// ends the call with what it had done.
func TestABulkOperationPassesOverWhatChangedAndStopsAtAnOutage(t *testing.T) {
	q, db := open(t)
	first, second, third := live(t, q, "1", 0), live(t, q, "2", 0), live(t, q, "3", 0)
	meddling := queue.New(queue.Config{Store: &meddler{Store: db, t: t, cancel: first, away: third}, Manifest: nil})
	res, err := meddling.Bulk(t.Context(), queue.BulkParams{Verb: queue.Delete, Filter: store.ListParams{State: job.Ready}})
	code(t, err, job.CodeDatabaseUnavailable)
	if !slices.Equal(res.Moved, []string{second}) {
		t.Errorf("moved %v, want %s", res.Moved, second)
	}
}

// meddler deletes a run itself when it is asked to, and is away for another.
type meddler struct {
	store.Store
	t            *testing.T
	cancel, away string
}

func (m *meddler) Delete(ctx context.Context, p store.DeleteParams) (job.Run, error) {
	switch p.ID {
	case m.cancel:
		if _, err := m.Store.Delete(ctx, p); err != nil {
			m.t.Error(err)
		}
	case m.away:
		return job.Run{}, enginetest.Away()
	}
	return m.Store.Delete(ctx, p)
}
