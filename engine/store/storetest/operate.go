package storetest

import (
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

func (e *env) requeue(p store.RequeueParams) job.Run {
	e.Helper()
	r, err := e.db.Requeue(e.ctx, p)
	if err != nil {
		e.Fatalf("requeue: %v", err)
	}
	return r
}

var operateTests = []test{
	{"what no run is named is not found", func(e *env) {
		for _, id := range []string{uid(55), "", "nonsense"} {
			_, err := e.db.Get(e.ctx, id)
			e.wantRefused(err, job.CodeNotFound)
			_, err = e.db.Cancel(e.ctx, store.CancelParams{ID: id})
			e.wantRefused(err, job.CodeNotFound)
			_, err = e.db.Requeue(e.ctx, store.RequeueParams{ID: id})
			e.wantRefused(err, job.CodeNotFound)
			if recs := e.attempts(id); len(recs) != 0 {
				e.Errorf("attempts of nobody: %v", recs)
			}
		}
	}},
	// (X1, S15)
	{"every live state can be cancelled", func(e *env) {
		e.register("w")
		ready := e.add(store.EnqueueParams{})
		running := e.claimOne("w").ID
		if running != ready {
			e.Fatal("claimed another run")
		}
		e.add(store.EnqueueParams{})
		suspended := e.claimOne("w")
		e.finish(suspended, job.Slept, job.Suspended)
		for _, id := range []string{running, suspended.ID, e.add(store.EnqueueParams{}), e.add(store.EnqueueParams{Delay: time.Hour})} {
			now := e.now()
			r, err := e.db.Cancel(e.ctx, store.CancelParams{ID: id, Reason: "not needed", Retention: time.Hour})
			if err != nil {
				e.Fatal(err)
			}
			got := e.wantState(id, job.Cancelled)
			if d := cmp.Diff(got, r); d != "" {
				e.Errorf("answer (-stored +answered):\n%s", d)
			}
			e.wantTime("finished", got.FinishedAt, now)
			if got.Error.Code != job.CodeCancelled || got.Error.Message != "not needed" || got.Worker != "" || !got.ExpiresAt.Equal(got.FinishedAt.Add(time.Hour)) {
				e.Errorf("stored %+v", got)
			}
		}
	}},
	// (X2, X7)
	{"a finished run cannot be cancelled and keeps its story", func(e *env) {
		r := e.start("w", store.EnqueueParams{})
		e.settle(store.SettleParams{Ref: refOf(r), Outcome: job.DeadLettered, To: job.Dead, Error: &job.Failure{Message: "why"}})
		before := e.get(r.ID)
		_, err := e.db.Cancel(e.ctx, store.CancelParams{ID: r.ID, Reason: "late"})
		e.wantRefused(err, job.CodeNotCancellable)
		if d := cmp.Diff(before, e.get(r.ID)); d != "" {
			e.Fatalf("the refusal changed the run:\n%s", d)
		}
		other := e.add(store.EnqueueParams{})
		if _, err := e.db.Cancel(e.ctx, store.CancelParams{ID: other}); err != nil {
			e.Fatal(err)
		}
		_, err = e.db.Cancel(e.ctx, store.CancelParams{ID: other})
		e.wantRefused(err, job.CodeNotCancellable)
	}},
	// (X3)
	{"a cancel without a reason keeps the run's error", func(e *env) {
		r := e.start("w", store.EnqueueParams{})
		e.settle(store.SettleParams{Ref: refOf(r), Outcome: job.Retried, To: job.Ready, Error: &job.Failure{Message: "earlier"}})
		if _, err := e.db.Cancel(e.ctx, store.CancelParams{ID: r.ID}); err != nil {
			e.Fatal(err)
		}
		if got := e.get(r.ID); got.Error.Message != "earlier" || !got.ExpiresAt.IsZero() {
			e.Fatalf("stored %+v", got)
		}
	}},
	// (X4)
	{"a running run's worker learns of the cancel when it renews", func(e *env) {
		r := e.start("w", store.EnqueueParams{})
		if _, err := e.db.Cancel(e.ctx, store.CancelParams{ID: r.ID}); err != nil {
			e.Fatal(err)
		}
		res := e.renew("w", refOf(r))
		if len(res.Lost) != 1 || res.Lost[0].State != job.Cancelled {
			e.Fatalf("answer %+v", res)
		}
	}},
	// (S16, O2)
	{"a requeue starts over with the same id and ordinal", func(e *env) {
		e.register("w")
		for _, end := range []struct {
			outcome job.Outcome
			to      job.State
		}{{job.Completed, job.Done}, {job.Dropped, job.Failed}, {job.DeadLettered, job.Dead}} {
			id := e.add(store.EnqueueParams{Key: "k", MaxAttempts: 2, Input: []byte("1")})
			r := e.claimOne("w")
			e.settle(store.SettleParams{Ref: refOf(r), Outcome: end.outcome, To: end.to, Output: []byte("2"), Module: "m",
				Retention: time.Hour, Progress: &job.Progress{Permille: 5, Note: "n"}, Error: &job.Failure{Message: "e"}})
			e.db.Advance(time.Second)
			now := e.now()
			got := e.requeue(store.RequeueParams{ID: id})
			if d := cmp.Diff(e.get(id), got); d != "" {
				e.Errorf("answer (-stored +answered):\n%s", d)
			}
			e.wantTime("due", got.RunAt, now)
			want := job.Run{
				ID: id, Job: jobA, Queue: queueA, Key: "k", State: job.Ready, MaxAttempts: 2, Claims: 1, Input: []byte("1"), Module: "m",
				Error: job.Failure{Message: "e"}, RunAt: got.RunAt, CreatedAt: r.CreatedAt, StartedAt: r.StartedAt, ClaimedAt: r.ClaimedAt,
			}
			if d := cmp.Diff(want, got); d != "" {
				e.Errorf("%s requeued (-want +got):\n%s", end.to, d)
			}
			if held, err := e.db.FindLive(e.ctx, jobA, "", "k"); err != nil || held != id {
				e.Errorf("the key is held by %q, %v", held, err)
			}
			again := e.claimOne("w")
			if again.ID != id || again.Attempt != 1 || again.Claims != 2 {
				e.Errorf("claimed %+v", again)
			}
			e.finish(again, job.Completed, job.Done)
		}
	}},
	{"a requeue writes down the first attempt that left no record", func(e *env) {
		r := e.start("w", store.EnqueueParams{})
		e.saveStep(store.StepParams{Ref: refOf(r), Name: "a"})
		p := store.SettleParams{Ref: refOf(r), Outcome: job.Completed, To: job.Done, Module: "m"}
		e.settle(p)
		ended := e.get(r.ID)
		e.requeue(store.RequeueParams{ID: r.ID, FromStep: "a"})
		want := []job.AttemptRecord{{
			Claim: 1, Attempt: 1, Worker: "w", Outcome: job.Completed, ClaimedAt: r.ClaimedAt, SettledAt: ended.FinishedAt, Module: "m", StepsAtEnd: 1,
		}}
		if d := cmp.Diff(want, e.attempts(r.ID)); d != "" {
			e.Fatalf("timeline (-want +got):\n%s", d)
		}
		e.claimOne("w")
		if res := e.settle(p); !res.Landed {
			e.Fatal("a repeat of the first settle did not find its own")
		}
	}},
	{"a cancelled run can be requeued", func(e *env) {
		id := e.add(store.EnqueueParams{})
		if _, err := e.db.Cancel(e.ctx, store.CancelParams{ID: id}); err != nil {
			e.Fatal(err)
		}
		e.requeue(store.RequeueParams{ID: id})
		e.wantState(id, job.Ready)
	}},
	// (O1)
	{"a live run cannot be requeued", func(e *env) {
		r := e.start("w", store.EnqueueParams{})
		for _, id := range []string{r.ID, e.add(store.EnqueueParams{}), e.add(store.EnqueueParams{Delay: time.Hour})} {
			_, err := e.db.Requeue(e.ctx, store.RequeueParams{ID: id})
			e.wantRefused(err, job.CodeNotRequeueable)
		}
	}},
	// (Z4)
	{"a requeue can raise the attempts", func(e *env) {
		r := e.start("w", store.EnqueueParams{MaxAttempts: 1})
		e.finish(r, job.DeadLettered, job.Dead)
		if got := e.requeue(store.RequeueParams{ID: r.ID, Attempts: 7}); got.MaxAttempts != 7 || e.get(r.ID).MaxAttempts != 7 {
			e.Fatalf("attempts %d", got.MaxAttempts)
		}
		_, err := e.db.Requeue(e.ctx, store.RequeueParams{ID: r.ID, Attempts: -1})
		e.wantRefused(err, job.CodeInvalid)
	}},
	// (O3) By Seq: what came after may depend on what runs again.
	{"retry from a step drops it and what came after", func(e *env) {
		r := e.start("w", store.EnqueueParams{})
		for _, name := range []string{"c", "a", "b"} {
			e.saveStep(store.StepParams{Ref: refOf(r), Name: name})
		}
		e.saveStep(store.StepParams{Ref: refOf(r), Name: "c", Output: []byte("again")}) // replaced: its place stays the first
		e.finish(r, job.DeadLettered, job.Dead)
		if got := e.requeue(store.RequeueParams{ID: r.ID, FromStep: "a"}); got.Steps != 1 {
			e.Fatalf("%d steps left", got.Steps)
		}
		if steps := e.steps(r.ID); len(steps) != 1 || steps[0].Name != "c" {
			e.Fatalf("steps %+v", steps)
		}
		again := e.claimOne("w")
		if again.Steps != 1 {
			e.Fatalf("claimed with %d steps", again.Steps)
		}
		e.saveStep(store.StepParams{Ref: refOf(again), Name: "b"})
		if steps := e.steps(r.ID); len(steps) != 2 || steps[1].Name != "b" || steps[1].Seq != 2 {
			e.Fatalf("steps %+v", steps)
		}
	}},
	{"retry from a step that is not there is refused and changes nothing", func(e *env) {
		r := e.start("w", store.EnqueueParams{})
		e.saveStep(store.StepParams{Ref: refOf(r), Name: "a"})
		e.finish(r, job.DeadLettered, job.Dead)
		_, err := e.db.Requeue(e.ctx, store.RequeueParams{ID: r.ID, FromStep: "b"})
		e.wantRefused(err, job.CodeInvalid)
		e.wantState(r.ID, job.Dead)
		if len(e.steps(r.ID)) != 1 {
			e.Fatal("a step was dropped")
		}
	}},
	// (P20)
	{"purge deletes what has expired, oldest first, with its history", func(e *env) {
		e.register("w")
		end := func(retention time.Duration) string {
			id := e.add(store.EnqueueParams{Input: make([]byte, 5000)})
			r := e.claimOne("w")
			e.saveStep(store.StepParams{Ref: refOf(r), Name: "a"})
			e.finish(r, job.Retried, job.Ready)
			r = e.claimOne("w")
			e.settle(store.SettleParams{Ref: refOf(r), Outcome: job.Completed, To: job.Done, Retention: retention})
			return id
		}
		later, sooner, never, much := end(20*time.Second), end(10*time.Second), end(0), end(time.Hour)
		live := e.add(store.EnqueueParams{})
		purge := func(limit, want int) {
			e.Helper()
			n, err := e.db.Purge(e.ctx, limit)
			if err != nil || n != want {
				e.Fatalf("purge of at most %d deleted %d, %v, want %d", limit, n, err, want)
			}
		}
		purge(10, 0)
		e.db.Advance(21 * time.Second)
		purge(0, 0)
		purge(1, 1)
		_, err := e.db.Get(e.ctx, sooner)
		e.wantCode(err, job.CodeNotFound)
		e.wantState(later, job.Done)
		purge(10, 1)
		for _, id := range []string{sooner, later} {
			if len(e.steps(id)) != 0 || len(e.attempts(id)) != 0 {
				e.Errorf("run %s left history behind", id)
			}
		}
		for _, id := range []string{never, much, live} {
			e.get(id)
		}
		// The id of a purged run is as new as any.
		if res := e.enqueue(store.EnqueueParams{ID: sooner})[0]; res.Deduped {
			e.Fatalf("answer %+v", res)
		}
		if n := len(e.steps(sooner)) + len(e.attempts(sooner)); n != 0 {
			e.Fatalf("a new run inherited %d records", n)
		}
	}},
	{"a requeued run is not purged", func(e *env) {
		r := e.start("w", store.EnqueueParams{})
		e.settle(store.SettleParams{Ref: refOf(r), Outcome: job.Completed, To: job.Done, Retention: time.Second})
		e.requeue(store.RequeueParams{ID: r.ID})
		e.db.Advance(time.Hour)
		if n, err := e.db.Purge(e.ctx, 10); err != nil || n != 0 {
			e.Fatalf("purged %d, %v", n, err)
		}
		e.wantState(r.ID, job.Ready)
	}},
	// (S27)
	{"a state of another build is refused for that run only", func(e *env) {
		strange, fine := e.add(store.EnqueueParams{}), e.add(store.EnqueueParams{})
		e.db.PlantRunState(e, strange, "hibernating")
		_, err := e.db.Get(e.ctx, strange)
		e.wantRefused(err, job.CodeRowStatusUnknown)
		_, err = e.db.Cancel(e.ctx, store.CancelParams{ID: strange})
		e.wantRefused(err, job.CodeRowStatusUnknown)
		_, err = e.db.Requeue(e.ctx, store.RequeueParams{ID: strange})
		e.wantRefused(err, job.CodeRowStatusUnknown)
		if got := e.list(store.ListParams{}); len(got) != 1 || got[0].ID != fine {
			e.Fatalf("listed %v", ids(got))
		}
		e.register("w")
		if runs := e.claim("w", 5); len(runs) != 1 || runs[0].ID != fine {
			e.Fatalf("claimed %v", ids(runs))
		}
	}},
	{"the store's name and clock", func(e *env) {
		if e.db.Name() == "" {
			e.Error("no name")
		}
		now := e.now()
		if now.Location() != time.UTC || now.Nanosecond()%1e6 != 0 {
			e.Errorf("now is %s, want whole milliseconds of UTC", now)
		}
		e.db.Advance(time.Hour)
		e.wantTime("an hour later", e.now(), now.Add(time.Hour))
	}},
}
