package storetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

// booked starts a run that has a step to undo.
func (e *env) booked(worker string, p store.EnqueueParams) job.Run {
	e.Helper()
	r := e.start(worker, p)
	e.book(r)
	return r
}

func (e *env) book(r job.Run) {
	e.Helper()
	if !e.saveStep(store.StepParams{Ref: refOf(r), Name: "book", Kind: job.KindUndoable, Output: []byte("1"), New: true}).Landed {
		e.Fatal("the step was not recorded")
	}
}

func (e *env) cancel(p store.CancelParams) job.Run {
	e.Helper()
	r, err := e.db.Cancel(e.ctx, p)
	if err != nil {
		e.Fatalf("cancel: %v", err)
	}
	return r
}

// wantUnwind checks that a run is to be undone, and how.
func (e *env) wantUnwind(id string, want job.Unwind, failure job.Failure) {
	e.Helper()
	for _, s := range e.steps(id) {
		if s.Kind != job.KindUnwind {
			continue
		}
		var got job.Unwind
		if err := json.Unmarshal(s.Output, &got); err != nil {
			e.Fatal(err)
		}
		if got != want || s.Error != failure || s.Name != job.UnwindName || s.Status != job.StepCompleted {
			e.Fatalf("the record is %+v of %+v, want %+v of %+v", s, got, want, failure)
		}
		return
	}
	e.Fatal("nothing says that the run is undone")
}

var undoTests = []test{
	// (SG23) In each waiting state: it is ready to be undone, under its key.
	{"a waiting run with something to undo is ready to be undone when it is cancelled", func(e *env) {
		e.register("w")
		ends := map[string]func(job.Run){
			"delayed": func(r job.Run) {
				e.settle(store.SettleParams{Ref: refOf(r), Outcome: job.Retried, To: job.Delayed, Delay: time.Hour, Error: &job.Failure{Message: "earlier"}})
			},
			"ready": func(r job.Run) { e.finish(r, job.Interrupted, job.Ready) },
			"asleep": func(r job.Run) {
				e.settle(store.SettleParams{Ref: refOf(r), Outcome: job.Slept, To: job.Suspended,
					Step: &store.StepParams{Name: "nap", Kind: job.KindSleep, Status: job.StepSleeping, Sleep: time.Hour}})
			},
			"waiting": func(r job.Run) {
				e.settle(store.SettleParams{Ref: refOf(r), Outcome: job.Slept, To: job.Suspended,
					Step: &store.StepParams{Name: "paid", Kind: job.KindWait, Status: job.StepWaiting, Sleep: time.Hour, Wait: &store.WaitParams{Topic: "t"}}})
			},
		}
		for name, end := range ends {
			id := e.add(store.EnqueueParams{Key: name})
			r := e.claimOne("w")
			e.book(r)
			end(r)
			before := e.get(id)
			now := e.now()
			got := e.cancel(store.CancelParams{ID: id, Reason: "not needed", Retention: time.Hour, By: "ann"})
			if d := cmp.Diff(e.get(id), got); d != "" {
				e.Errorf("%s: answer (-stored +answered):\n%s", name, d)
			}
			want := before
			want.State, want.RunAt, want.Steps = job.Ready, got.RunAt, before.Steps+1
			want.Error = job.Failure{Code: job.CodeCancelled, Message: "not needed"}
			if d := cmp.Diff(want, got); d != "" {
				e.Errorf("%s: cancelled (-want +got):\n%s", name, d)
			}
			e.wantTime("due", got.RunAt, now)
			e.wantUnwind(id, job.Unwind{From: before.Attempt, Cancelled: true}, want.Error)
			if held, err := e.db.FindLive(e.ctx, jobA, "", name); err != nil || held != id {
				e.Errorf("%s: the key is held by %q, %v", name, held, err)
			}
			// Nothing that it waited for wakes it any more.
			if res, err := e.db.Publish(e.ctx, []store.EventParams{e.event(store.EventParams{Topic: "t"})}); err != nil || res[0].Woken != 0 {
				e.Errorf("%s: an event woke %+v, %v", name, res, err)
			}
			again := e.claimOne("w")
			if again.ID != id || again.Attempt != before.Attempt+1 {
				e.Fatalf("%s: claimed %+v", name, again)
			}
			if res := e.settle(store.SettleParams{Ref: refOf(again), Outcome: job.Undone, To: job.Cancelled, Retention: time.Minute}); !res.Landed {
				e.Errorf("%s: the end did not land", name)
			}
			ended := e.wantState(id, job.Cancelled)
			if ended.Error != want.Error || !ended.ExpiresAt.Equal(ended.FinishedAt.Add(time.Minute)) {
				e.Errorf("%s: ended as %+v", name, ended)
			}
		}
		if got := e.audit(store.AuditParams{}); len(got) != len(ends) || got[0].Verb != store.AuditCancel || got[0].Detail != "not needed" {
			e.Errorf("audit %+v", got)
		}
	}},
	// (R15) An attempt beyond the run's own was lost before it could record that it
	// undoes; those that follow are no more for it.
	{"a run that is cancelled beyond its attempts is undone in as many as it had", func(e *env) {
		lost := func() {
			e.db.Advance(2 * lease)
			if res, err := e.db.Reclaim(e.ctx, store.ReclaimParams{UnwindJobs: []string{jobA}}); err != nil || len(res.Requeued) != 1 {
				e.Fatalf("%+v, %v", res, err)
			}
		}
		e.booked("w", store.EnqueueParams{MaxAttempts: 2})
		lost()
		e.orphan("w1")
		lost()
		r := e.orphan("w2")
		lost()
		if e.cancel(store.CancelParams{ID: r.ID}); r.Attempt != 3 {
			e.Fatalf("cancelled at attempt %d, want one beyond its own", r.Attempt)
		}
		e.wantUnwind(r.ID, job.Unwind{From: 2, Cancelled: true}, job.Failure{Code: job.CodeCancelled})
	}},
	// (R15)
	{"a cancel that takes the last attempt to undo is followed by another", func(e *env) {
		e.booked("w", store.EnqueueParams{MaxAttempts: 1})
		e.db.Advance(2 * lease)
		if res, err := e.db.Reclaim(e.ctx, store.ReclaimParams{UnwindJobs: []string{jobA}}); err != nil || len(res.Requeued) != 1 {
			e.Fatalf("%+v, %v", res, err)
		}
		last := e.orphan("w1")
		e.cancel(store.CancelParams{ID: last.ID})
		e.db.Advance(2 * lease)
		if r := e.orphan("w2"); r.ID != last.ID || last.Attempt != 2 || r.Attempt != 3 {
			e.Errorf("handed out at attempt %d, and then at %d, want 2 and 3", last.Attempt, r.Attempt)
		}
		e.wantUnwind(last.ID, job.Unwind{From: 1, Cancelled: true}, job.Failure{Code: job.CodeCancelled})
	}},
	{"a cancel that undoes without a reason keeps the run's error", func(e *env) {
		r := e.booked("w", store.EnqueueParams{})
		e.settle(store.SettleParams{Ref: refOf(r), Outcome: job.Retried, To: job.Ready, Error: &job.Failure{Message: "earlier"}})
		if got := e.cancel(store.CancelParams{ID: r.ID}); got.Error.Message != "earlier" || got.State != job.Ready {
			e.Errorf("cancelled as %+v", got)
		}
		e.wantUnwind(r.ID, job.Unwind{From: 1, Cancelled: true}, job.Failure{Code: job.CodeCancelled})
	}},
	// (SG24) Two attempts of one run never overlap for a cancel.
	{"a running run that is to be undone waits until its worker has let go of it", func(e *env) {
		for _, how := range []string{"it lets go", "it lapses"} {
			r := e.booked(how, store.EnqueueParams{})
			e.db.Advance(10 * time.Second)
			e.register("w " + how)
			now := e.now()
			got := e.cancel(store.CancelParams{ID: r.ID, Reason: "enough"})
			if d := cmp.Diff(e.get(r.ID), got); d != "" || got.State != job.Suspended || got.Worker != "" || got.Attempt != 1 {
				e.Fatalf("cancelled as %+v (-stored +answered):\n%s", got, d)
			}
			e.wantTime("due", got.RunAt, now.Add(19*time.Second))
			want := job.AttemptRecord{Claim: 1, Attempt: 1, Worker: how, Outcome: job.Unwinding, ClaimedAt: r.ClaimedAt, RunAt: got.RunAt,
				Error: job.Failure{Code: job.CodeCancelled, Message: "enough"}, StepsAtEnd: 2}
			if recs := e.attempts(r.ID); len(recs) != 1 {
				e.Fatalf("timeline %+v", recs)
			} else {
				want.SettledAt = recs[0].SettledAt
				if d := cmp.Diff(want, recs[0]); d != "" {
					e.Errorf("timeline (-want +got):\n%s", d)
				}
			}
			// Its attempt writes nothing more, and hears why.
			if e.saveStep(store.StepParams{Ref: refOf(r), Name: "late"}).Landed {
				e.Error("a step was recorded after the cancel")
			}
			if e.settle(store.SettleParams{Ref: refOf(r), Outcome: job.Completed, To: job.Done}).Landed {
				e.Error("a settle landed after the cancel")
			}
			if res := e.renew(how, refOf(r)); len(res.Lost) != 1 || res.Lost[0].State != job.Cancelled {
				e.Errorf("the renewal answered %+v", res)
			}
			// Who did not hold it hears what it is.
			if res := e.renew("w "+how, refOf(r)); len(res.Lost) != 1 || res.Lost[0].State != job.Suspended {
				e.Errorf("a stranger's renewal answered %+v", res)
			}
			_, err := e.db.Promote(e.ctx, store.PromoteParams{ID: r.ID})
			e.wantRefused(err, job.CodeNotPromotable)
			if runs := e.claim("w "+how, 1); len(runs) != 0 {
				e.Fatal("claimed while its worker may still run it")
			}
			if how == "it lets go" {
				stranger := refOf(r)
				stranger.Worker = "someone"
				for _, ref := range []job.Ref{stranger, {RunID: uid(999), Worker: how, Claim: 1}, {RunID: "?"}} {
					if err := e.db.LetGo(e.ctx, ref); err != nil {
						e.Fatal(err)
					}
				}
				e.wantState(r.ID, job.Suspended)
				if err := e.db.LetGo(e.ctx, refOf(r)); err != nil {
					e.Fatal(err)
				}
				e.wantState(r.ID, job.Ready)
			} else {
				e.db.Advance(21 * time.Second)
				e.register("x")
				how = "x"
			}
			worker := "w " + how
			if how == "x" {
				worker = how
			}
			undoes := e.claimOne(worker)
			if undoes.ID != r.ID || undoes.Attempt != 2 {
				e.Fatalf("claimed %+v", undoes)
			}
			if err := e.db.LetGo(e.ctx, refOf(r)); err != nil { // late
				e.Fatal(err)
			}
			e.wantState(r.ID, job.Running)
			e.settle(store.SettleParams{Ref: refOf(undoes), Outcome: job.Undone, To: job.Cancelled})
			if got := e.wantState(r.ID, job.Cancelled); got.Error.Message != "enough" {
				e.Errorf("error %+v", got.Error)
			}
		}
	}},
	{"a cancel lets go of nothing else", func(e *env) {
		r := e.start("w", store.EnqueueParams{})
		e.settle(store.SettleParams{Ref: refOf(r), Outcome: job.Slept, To: job.Suspended,
			Step: &store.StepParams{Name: "nap", Kind: job.KindSleep, Status: job.StepSleeping, Sleep: time.Hour}})
		if err := e.db.LetGo(e.ctx, refOf(r)); err != nil {
			e.Fatal(err)
		}
		e.wantState(r.ID, job.Suspended)
	}},
	{"a cancel ends a run where it is if it has nothing to undo, or is told to", func(e *env) {
		r := e.start("w", store.EnqueueParams{})
		e.saveStep(store.StepParams{Ref: refOf(r), Name: "look"})
		e.saveStep(store.StepParams{Ref: refOf(r), Name: "book", Kind: job.KindUndoable, Status: job.StepRetrying, Error: &job.Failure{Message: "full"}})
		if got := e.cancel(store.CancelParams{ID: r.ID}); got.State != job.Cancelled {
			e.Errorf("cancelled as %+v", got)
		}
		e.add(store.EnqueueParams{})
		r = e.claimOne("w")
		e.book(r)
		if got := e.cancel(store.CancelParams{ID: r.ID, NoCompensate: true, Reason: "left"}); got.State != job.Cancelled || got.Steps != 1 {
			e.Errorf("cancelled as %+v", got)
		}
		if got := e.audit(store.AuditParams{}); got[0].Detail != "left, nothing undone" {
			e.Errorf("audit %+v", got[0])
		}
	}},
	// (SG23)
	{"a run that is being undone ends cancelled when it is cancelled, and once only", func(e *env) {
		r := e.booked("w", store.EnqueueParams{})
		failure := job.Failure{Message: "no money"}
		e.settle(store.SettleParams{Ref: refOf(r), Outcome: job.Unwinding, To: job.Ready, Error: &failure,
			Step: &store.StepParams{Name: job.UnwindName, Kind: job.KindUnwind, Status: job.StepCompleted, Output: []byte(`{"from":1}`), Error: &failure}})
		undoes := e.claimOne("w")
		e.saveStep(store.StepParams{Ref: refOf(undoes), Name: job.CompensationPrefix + "pay", Kind: job.KindCompensation})
		e.cancel(store.CancelParams{ID: r.ID})
		e.wantUnwind(r.ID, job.Unwind{From: 1, Cancelled: true}, failure)
		if got := e.wantState(r.ID, job.Suspended); got.Error != failure || got.Steps != 3 {
			e.Errorf("cancelled as %+v", got)
		}
		_, err := e.db.Cancel(e.ctx, store.CancelParams{ID: r.ID, Reason: "again"})
		e.wantRefused(err, job.CodeNotCancellable)
		if got := e.cancel(store.CancelParams{ID: r.ID, NoCompensate: true}); got.State != job.Cancelled || got.Error != failure {
			e.Errorf("ended as %+v", got)
		}
	}},
	// (SG22)
	{"a run that was undone, or began to be, is not requeued", func(e *env) {
		e.register("w")
		undone, begun, plain := e.add(store.EnqueueParams{Key: "k"}), e.add(store.EnqueueParams{}), e.add(store.EnqueueParams{})
		for _, r := range e.claim("w", 3) {
			if r.ID != plain {
				e.book(r)
			}
			e.cancel(store.CancelParams{ID: r.ID, Reason: "left"})
		}
		got, err := e.db.Unwinds(e.ctx, []string{undone, "?", plain, begun, uid(999)})
		want := map[string]job.Unwind{undone: {From: 1, Cancelled: true}, begun: {From: 1, Cancelled: true}}
		if d := cmp.Diff(want, got); d != "" || err != nil {
			e.Errorf("unwinds (-want +got), %v:\n%s", err, d)
		}
		e.db.Advance(lease)
		e.register("x")
		for _, r := range e.claim("x", 2) {
			e.settle(store.SettleParams{Ref: refOf(r), Outcome: job.Undone, To: job.Cancelled})
		}
		e.cancel(store.CancelParams{ID: e.booked("y", store.EnqueueParams{}).ID, NoCompensate: true})
		holder := e.add(store.EnqueueParams{Key: "k"})
		for _, p := range []store.RequeueParams{{ID: undone}, {ID: begun, Attempts: 3}, {ID: begun, FromStep: "book"}} {
			before := e.get(p.ID)
			_, err := e.db.Requeue(e.ctx, p)
			e.wantRefused(err, job.CodeNotRequeueable)
			if !errors.Is(err, store.ErrUndone) {
				e.Errorf("refused with %v", err)
			}
			if d := cmp.Diff(before, e.get(p.ID)); d != "" {
				e.Errorf("the refusal changed the run:\n%s", d)
			}
		}
		_, err = e.db.Requeue(e.ctx, store.RequeueParams{ID: holder})
		if e.wantRefused(err, job.CodeNotRequeueable); errors.Is(err, store.ErrUndone) {
			e.Errorf("a live run was refused with %v", err)
		}
		e.requeue(store.RequeueParams{ID: plain})
	}},
	// (SG28) By its own id, with as many attempts as before, whatever stopped it.
	{"a run that stopped half undone goes on being undone when it is requeued", func(e *env) {
		failure := job.Failure{Code: "X_CARD", Message: "no money", Fix: "earn some"}
		stuck := job.Failure{Code: job.CodeCompensationFailed, Message: "the hotel does not answer"}
		for i, stop := range []string{"failed for good", "dropped", "its workers were lost", "cancelled, and failed for good"} {
			w := func(n int) string { return fmt.Sprint("w", i, " ", n) }
			r := e.booked(w(0), store.EnqueueParams{MaxAttempts: 2, Key: "k" + stop})
			e.saveStep(store.StepParams{Ref: refOf(r), Name: "pay", Kind: job.KindUndoable, Output: []byte("2"), Module: "m1"})
			unwind := store.StepParams{Name: job.UnwindName, Kind: job.KindUnwind, Status: job.StepCompleted, Output: []byte(`{"from":1}`), Error: &failure}
			e.settle(store.SettleParams{Ref: refOf(r), Outcome: job.Unwinding, To: job.Ready, Error: &failure, Step: &unwind})
			if stop == "cancelled, and failed for good" {
				e.cancel(store.CancelParams{ID: r.ID})
			}
			undoes := e.claimOne(w(0))
			e.saveStep(store.StepParams{Ref: refOf(undoes), Name: job.CompensationPrefix + "pay", Kind: job.KindCompensation})
			settle := store.SettleParams{Ref: refOf(undoes), Outcome: job.DeadLettered, To: job.Dead, Error: &stuck, Step: &store.StepParams{
				Name: job.CompensationPrefix + "book", Kind: job.KindCompensation, Status: job.StepFailed, Attempts: 1, Error: &stuck,
			}}
			code := job.CodeCompensationFailed
			switch stop {
			case "dropped":
				settle.Outcome, settle.To = job.Dropped, job.Failed
				fallthrough
			default:
				e.settle(settle)
			case "its workers were lost":
				e.db.Advance(2 * lease)
				e.reclaimWith(store.ReclaimParams{Limit: 10, MaxOrphans: 1, UnwindJobs: []string{jobA}})
				code = job.CodeWorkerLost
			}
			stopped := e.get(r.ID)
			if stopped.State.Live() || stopped.Error.Code != code {
				e.Fatalf("%s: stopped as %+v", stop, stopped)
			}
			if said := stopped.Error.Message; code == job.CodeWorkerLost && !strings.Contains(said, "X_CARD no money") {
				e.Errorf("buried with %q, which says nothing of its own failure", said)
			}
			if left := job.HalfUndone(&stopped, e.steps(r.ID)); len(left) != 1 || left[0] != "book" {
				e.Errorf("%s: left are %v", stop, left)
			}
			// A person may want otherwise.
			for _, p := range []store.RequeueParams{{ID: r.ID, NoCompensate: true}, {ID: r.ID, FromStep: "book"}} {
				_, err := e.db.Requeue(e.ctx, p)
				if e.wantRefused(err, job.CodeNotRequeueable); !errors.Is(err, store.ErrUndone) {
					e.Errorf("refused with %v", err)
				}
			}
			attempts := 0
			most := 2
			if stop == "dropped" {
				attempts, most = 5, 5
			}
			now := e.now()
			got := e.requeue(store.RequeueParams{ID: r.ID, Attempts: attempts, By: "ann"})
			if d := cmp.Diff(e.get(r.ID), got); d != "" {
				e.Errorf("%s: answer (-stored +answered):\n%s", stop, d)
			}
			want := stopped
			want.State, want.Attempt, want.MaxAttempts, want.Orphans, want.RunAt = job.Ready, most, most, 0, got.RunAt
			want.FinishedAt, want.ExpiresAt, want.Error = time.Time{}, time.Time{}, failure
			if d := cmp.Diff(want, got); d != "" {
				e.Errorf("%s: requeued (-want +got):\n%s", stop, d)
			}
			e.wantTime("due", got.RunAt, now)
			e.wantUnwind(r.ID, job.Unwind{From: most, Cancelled: stop == "cancelled, and failed for good"}, failure)
			if held, err := e.db.FindLive(e.ctx, jobA, "", r.Key); err != nil || held != r.ID {
				e.Errorf("%s: the key is held by %q, %v", stop, held, err)
			}
			// Lost workers leave it as many attempts as it has, and no more.
			for n := range most {
				e.register(w(n + 1))
				if again := e.claimOne(w(n + 1)); again.ID != r.ID || again.Attempt != most+n+1 {
					e.Fatalf("%s: claimed %+v", stop, again)
				}
				e.db.Advance(2 * lease)
				e.reclaimWith(store.ReclaimParams{Limit: 10, UnwindJobs: []string{jobA}})
			}
			buried := e.wantState(r.ID, job.Dead)
			if buried.Error.Code != job.CodeCompensationFailed || !strings.Contains(buried.Error.Message, "X_CARD no money") {
				e.Errorf("%s: buried with %+v", stop, buried.Error)
			}
			// And again: nothing of it is lost.
			e.requeue(store.RequeueParams{ID: r.ID})
			e.register(w(99))
			undoes = e.claimOne(w(99))
			e.saveStep(store.StepParams{Ref: refOf(undoes), Name: job.CompensationPrefix + "book", Kind: job.KindCompensation})
			e.settle(store.SettleParams{Ref: refOf(undoes), Outcome: job.DeadLettered, To: job.Dead, Error: &failure})
			_, err := e.db.Requeue(e.ctx, store.RequeueParams{ID: r.ID})
			if e.wantRefused(err, job.CodeNotRequeueable); !errors.Is(err, store.ErrUndone) {
				e.Errorf("%s: undone to its end, it was refused with %v", stop, err)
			}
		}
	}},
	// A compensator that is gone from the module leaves its step as it is.
	{"a run that ended with its own failure was undone to its end, whatever was left", func(e *env) {
		r := e.booked("w", store.EnqueueParams{})
		failure := job.Failure{Message: "no money"}
		unwind := store.StepParams{Name: job.UnwindName, Kind: job.KindUnwind, Status: job.StepCompleted, Output: []byte(`{"from":1}`), Error: &failure}
		e.settle(store.SettleParams{Ref: refOf(r), Outcome: job.Unwinding, To: job.Ready, Error: &failure, Step: &unwind})
		e.settle(store.SettleParams{Ref: refOf(e.claimOne("w")), Outcome: job.DeadLettered, To: job.Dead, Error: &failure})
		if _, err := e.db.Requeue(e.ctx, store.RequeueParams{ID: r.ID}); !errors.Is(err, store.ErrUndone) {
			e.Errorf("refused with %v", err)
		}
	}},
	{"a requeue keeps the module that a run began with, unless it is told to leave it", func(e *env) {
		r := e.booked("w", store.EnqueueParams{})
		e.saveStep(store.StepParams{Ref: refOf(r), Name: "pay", Module: "m1"})
		e.settle(store.SettleParams{Ref: refOf(r), Outcome: job.DeadLettered, To: job.Dead, Error: &job.Failure{Message: "no"}})
		if got := e.requeue(store.RequeueParams{ID: r.ID}); got.Module != "m1" {
			e.Errorf("requeued on %q", got.Module)
		}
		e.settle(store.SettleParams{Ref: refOf(e.claimOne("w")), Outcome: job.DeadLettered, To: job.Dead, Error: &job.Failure{Message: "no"}})
		if got := e.requeue(store.RequeueParams{ID: r.ID, Latest: true}); got.Module != "" || e.get(r.ID).Module != "" {
			e.Errorf("requeued on %q", got.Module)
		}
		again := e.claimOne("w")
		e.saveStep(store.StepParams{Ref: refOf(again), Name: "more", Module: "m2"})
		if got := e.get(r.ID); got.Module != "m2" || again.Module != "" {
			e.Errorf("claimed on %q, and recorded on %q", again.Module, got.Module)
		}
		if got := e.audit(store.AuditParams{}); got[0].Detail != "on the latest module" {
			e.Errorf("audit %+v", got[0])
		}
	}},
	// (SG22) The audit has both, in the commit that enqueues.
	{"a run in place of another is audited with it, and begins once", func(e *env) {
		e.register("w")
		old, held := e.add(store.EnqueueParams{}), e.add(store.EnqueueParams{Key: "k"})
		e.ids++
		fresh := e.params(store.EnqueueParams{ID: uid(e.ids), Parent: old})
		p := store.RestartParams{Of: old, Run: fresh, By: "ann", Detail: "attempts 3"}
		res, err := e.db.Restart(e.ctx, p)
		if err != nil || res.Deduped || res.ID != fresh.ID {
			e.Fatalf("answered %+v, %v", res, err)
		}
		if got := e.get(fresh.ID); got.State != job.Ready || got.Parent != old {
			e.Errorf("enqueued %+v", got)
		}
		want := []string{"ann retry " + fresh.ID + " in place of run " + old + ", attempts 3", "ann retry " + old + " run " + fresh.ID + " in its place, attempts 3"}
		said := func() (out []string) {
			for _, a := range e.audit(store.AuditParams{}) {
				out = append(out, strings.Join([]string{a.By, string(a.Verb), a.Subject, a.Detail}, " "))
			}
			return out
		}
		if d := cmp.Diff(want, said()); d != "" {
			e.Errorf("audit (-want +got):\n%s", d)
		}
		if res, err := e.db.Restart(e.ctx, p); err != nil || !res.Deduped || res.ID != fresh.ID {
			e.Errorf("a second one answered %+v, %v", res, err)
		}
		e.ids++
		p.Run = e.params(store.EnqueueParams{ID: uid(e.ids), Key: "k"})
		if res, err := e.db.Restart(e.ctx, p); err != nil || !res.Deduped || res.ID != held {
			e.Errorf("with a key that is held it answered %+v, %v", res, err)
		}
		p.Run.ID = "nonsense"
		if _, err := e.db.Restart(e.ctx, p); err == nil {
			e.Error("an id that is none was enqueued")
		}
		if d := cmp.Diff(want, said()); d != "" {
			e.Errorf("what enqueued nothing is audited (-want +got):\n%s", d)
		}
	}},
	{"a child with something to undo is undone when its parent ends, or is cancelled", func(e *env) {
		for _, end := range []string{"cancel", "undo", "no compensate", "done"} {
			worker := "w " + end
			parent := e.start(worker, store.EnqueueParams{})
			if end == "undo" {
				e.book(parent)
			}
			e.ids++
			child := e.params(store.EnqueueParams{ID: uid(e.ids), Parent: parent.ID})
			e.settle(store.SettleParams{Ref: refOf(parent), Outcome: job.Slept, To: job.Suspended, Invoke: &store.InvokeParams{
				Start: []store.ChildParams{{Name: "child", Run: child, Retention: time.Hour}},
			}})
			r := e.claimOne(worker)
			if r.ID != child.ID {
				e.Fatalf("claimed %s", r.ID)
			}
			e.book(r)
			e.finish(r, job.Interrupted, job.Ready)
			switch end {
			case "done":
				e.cancel(store.CancelParams{ID: child.ID}) // is undone: its parent waits
				if e.get(parent.ID).State != job.Suspended {
					e.Error("the parent goes on before its child has ended")
				}
				r := e.claimOne(worker)
				e.settle(store.SettleParams{Ref: refOf(r), Outcome: job.Undone, To: job.Cancelled, Parent: parent.ID})
				for _, s := range e.steps(parent.ID) {
					if s.Name == "child" && (s.Status != job.StepFailed || s.Error.Code != job.CodeCancelled) {
						e.Errorf("the child's record is %+v", s)
					}
				}
				e.wantState(parent.ID, job.Ready)
				continue
			case "no compensate":
				e.cancel(store.CancelParams{ID: parent.ID, NoCompensate: true})
				e.wantState(child.ID, job.Cancelled)
				continue
			}
			e.cancel(store.CancelParams{ID: parent.ID})
			want := job.Cancelled
			if end == "undo" {
				want = job.Ready
			}
			e.wantState(parent.ID, want)
			got := e.wantState(child.ID, job.Ready)
			e.wantUnwind(child.ID, job.Unwind{Cancelled: true}, *store.ParentEnded(parent.ID))
			if got.Error != *store.ParentEnded(parent.ID) {
				e.Errorf("the child's error is %+v", got.Error)
			}
			for range 2 {
				for _, r := range e.claim(worker, 2) {
					e.settle(store.SettleParams{Ref: refOf(r), Outcome: job.Undone, To: job.Cancelled, Parent: r.Parent})
				}
			}
			e.wantState(parent.ID, job.Cancelled)
			e.wantState(child.ID, job.Cancelled)
		}
	}},
	{"a run that waits behind a gate waits there to be undone", func(e *env) {
		e.register("w")
		id := e.addKeyed("k", store.EnqueueParams{})
		r := e.claimUnder("w", 1, keyed(false))[0]
		e.book(r)
		other := e.addKeyed("k", store.EnqueueParams{Priority: -1})
		e.finish(r, job.Interrupted, job.Ready)
		first := e.claimUnder("w", 5, keyed(false))
		e.wantClaim("of two", first, other)
		if got := e.get(id); got.Blocked == "" {
			e.Fatalf("the run is not behind its gate: %+v", got)
		}
		if got := e.cancel(store.CancelParams{ID: id}); got.State != job.Ready || got.Blocked != "" {
			e.Errorf("cancelled as %+v", got)
		}
		e.wantClaim("while the other runs", e.claimUnder("w", 5, keyed(false)))
		e.finish(first[0], job.Completed, job.Done)
		e.wantClaim("after it", e.claimUnder("w", 5, keyed(false)), id)
	}},
}
