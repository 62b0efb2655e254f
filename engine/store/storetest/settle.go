package storetest

import (
	"bytes"
	"slices"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

var settleTests = []test{
	// (S5, C9, FL3)
	{"completed: done with its output, held by nobody", func(e *env) {
		r := e.start("w", store.EnqueueParams{})
		e.db.Advance(time.Second)
		now := e.now()
		res := e.settle(store.SettleParams{
			Ref: refOf(r), Outcome: job.Completed, To: job.Done, Output: []byte(`{"ok":true}`), Module: "m1", Retention: time.Hour,
			Progress: &job.Progress{Permille: 1000, Note: "all"},
		})
		if !res.Landed || !res.RunAt.IsZero() {
			e.Fatalf("answer %+v", res)
		}
		got := e.wantState(r.ID, job.Done)
		if string(got.Output) != `{"ok":true}` || got.Worker != "" || got.Module != "m1" || got.Attempt != 1 || got.Progress != (job.Progress{Permille: 1000, Note: "all"}) {
			e.Fatalf("stored %+v", got)
		}
		e.wantTime("finished", got.FinishedAt, now)
		if !got.ExpiresAt.Equal(got.FinishedAt.Add(time.Hour)) {
			e.Fatalf("expires %s, finished %s", got.ExpiresAt, got.FinishedAt)
		}
		if recs := e.attempts(r.ID); len(recs) != 0 {
			e.Fatalf("a first attempt that completed left %d records", len(recs))
		}
	}},
	{"without retention it is kept for ever", func(e *env) {
		r := e.start("w", store.EnqueueParams{})
		e.finish(r, job.Completed, job.Done)
		if got := e.get(r.ID); !got.ExpiresAt.IsZero() {
			e.Fatalf("expires %s", got.ExpiresAt)
		}
	}},
	// (S6)
	{"retried: delayed by its backoff, counted, with its error", func(e *env) {
		r := e.start("w", store.EnqueueParams{})
		now := e.now()
		failure := &job.Failure{Code: "X_CARD", Message: "declined\tnot a separator", Fix: "use another", Stack: "main.go:1"}
		res := e.settle(store.SettleParams{Ref: refOf(r), Outcome: job.Retried, To: job.Delayed, Delay: time.Minute, Error: failure})
		if !res.Landed {
			e.Fatal("not landed")
		}
		e.wantTime("due", res.RunAt, now.Add(time.Minute))
		got := e.wantState(r.ID, job.Delayed)
		if got.Attempt != 1 || got.Error != *failure || !got.RunAt.Equal(res.RunAt) || !got.FinishedAt.IsZero() || got.Worker != "" {
			e.Fatalf("stored %+v", got)
		}
	}},
	{"retried without a wait: ready at once", func(e *env) {
		r := e.start("w", store.EnqueueParams{})
		e.finish(r, job.Retried, job.Ready)
		if again := e.claimOne("w"); again.ID != r.ID || again.Attempt != 2 {
			e.Fatalf("claimed %+v", again)
		}
	}},
	// (S7 to S10, S13, S25) The claim counted the attempt; the settle gives it back.
	{"uncounted outcomes give the attempt back", func(e *env) {
		e.register("w")
		for _, end := range []struct {
			outcome job.Outcome
			to      job.State
		}{
			{job.Slept, job.Suspended}, {job.Interrupted, job.Ready}, {job.Deferred, job.Delayed}, {job.Deferred, job.Ready},
			{job.Shed, job.Ready}, {job.Shed, job.Delayed}, {job.Refused, job.Failed},
		} {
			id := e.add(store.EnqueueParams{})
			e.finish(e.claimOne("w"), end.outcome, end.to)
			if got := e.wantState(id, end.to); got.Attempt != 0 || got.Claims != 1 {
				e.Errorf("%s to %s: attempt %d, claims %d, want 0 and 1", end.outcome, end.to, got.Attempt, got.Claims)
			}
			if end.to.Live() {
				if _, err := e.db.Cancel(e.ctx, store.CancelParams{ID: id}); err != nil {
					e.Fatal(err)
				}
			}
		}
	}},
	{"counted outcomes keep it", func(e *env) {
		e.register("w")
		for _, end := range []struct {
			outcome job.Outcome
			to      job.State
		}{{job.Completed, job.Done}, {job.DeadLettered, job.Dead}, {job.Dropped, job.Failed}, {job.Retried, job.Delayed}} {
			id := e.add(store.EnqueueParams{})
			e.finish(e.claimOne("w"), end.outcome, end.to)
			if got := e.wantState(id, end.to); got.Attempt != 1 {
				e.Errorf("%s: attempt %d, want 1", end.outcome, got.Attempt)
			}
		}
	}},
	// (S11, S12)
	{"dead and failed runs end with their error", func(e *env) {
		e.register("w")
		for _, end := range []struct {
			outcome job.Outcome
			to      job.State
		}{{job.DeadLettered, job.Dead}, {job.Dropped, job.Failed}} {
			id := e.add(store.EnqueueParams{})
			r := e.claimOne("w")
			failure := job.Failure{Code: "X_NO", Message: "no"}
			e.settle(store.SettleParams{Ref: refOf(r), Outcome: end.outcome, To: end.to, Error: &failure, Retention: time.Minute})
			got := e.wantState(id, end.to)
			if got.Error != failure || got.FinishedAt.IsZero() || got.ExpiresAt.IsZero() {
				e.Errorf("stored %+v", got)
			}
		}
	}},
	{"no error keeps the one of an earlier attempt", func(e *env) {
		r := e.start("w", store.EnqueueParams{})
		e.settle(store.SettleParams{Ref: refOf(r), Outcome: job.Retried, To: job.Ready, Error: &job.Failure{Message: "first"}})
		e.finish(e.claimOne("w"), job.Completed, job.Done)
		if got := e.get(r.ID); got.Error.Message != "first" {
			e.Fatalf("error %+v", got.Error)
		}
	}},
	{"an outcome that leads elsewhere is refused with its whole batch", func(e *env) {
		r := e.start("w", store.EnqueueParams{})
		_, err := e.db.Settle(e.ctx, []store.SettleParams{
			{Ref: refOf(r), Outcome: job.Completed, To: job.Done},
			{Ref: refOf(r), Outcome: job.Completed, To: job.Ready},
		})
		e.wantRefused(err, job.CodeInvalid)
		_, err = e.db.Settle(e.ctx, []store.SettleParams{{Ref: refOf(r), Outcome: job.Orphaned, To: job.Ready}})
		e.wantRefused(err, job.CodeInvalid)
		e.wantState(r.ID, job.Running)
	}},
	// (C7, C8)
	{"only the worker and ordinal of the claim may settle", func(e *env) {
		r := e.start("w", store.EnqueueParams{})
		for _, ref := range []job.Ref{
			{RunID: r.ID, Worker: "other", Claim: 1},
			{RunID: r.ID, Worker: "w", Claim: 2},
			{RunID: r.ID, Worker: "w", Claim: 0},
			{RunID: uid(777), Worker: "w", Claim: 1},
			{RunID: "nonsense", Worker: "w", Claim: 1},
		} {
			if res := e.settle(store.SettleParams{Ref: ref, Outcome: job.Completed, To: job.Done}); res.Landed {
				e.Errorf("settling as %+v landed", ref)
			}
		}
		e.wantState(r.ID, job.Running)
	}},
	// (C7) The same worker again is another claim.
	{"an earlier claim of the same worker settles nothing", func(e *env) {
		r := e.start("w", store.EnqueueParams{})
		e.db.Advance(lease)
		e.reclaim()
		e.register("w2")
		second := e.claimOne("w2")
		e.finish(second, job.Interrupted, job.Ready)
		third := e.claimOne("w2")
		if third.Claims != 3 {
			e.Fatalf("third claim has ordinal %d", third.Claims)
		}
		for _, stale := range []job.Ref{refOf(r), {RunID: r.ID, Worker: "w2", Claim: 1}} {
			if res := e.settle(store.SettleParams{Ref: stale, Outcome: job.Completed, To: job.Done}); res.Landed {
				e.Fatalf("a settle of %+v landed under claim 3", stale)
			}
		}
		got := e.wantState(r.ID, job.Running)
		if got.Claims != 3 || got.Worker != "w2" {
			e.Fatalf("stored %+v", got)
		}
	}},
	// (FL3, FL4) A repeat after a lost answer.
	{"a settle repeated finds its own and says landed", func(e *env) {
		e.register("w")
		for _, end := range []struct {
			outcome job.Outcome
			to      job.State
		}{
			{job.Completed, job.Done}, {job.Retried, job.Delayed}, {job.Retried, job.Ready}, {job.Slept, job.Suspended},
			{job.DeadLettered, job.Dead}, {job.Dropped, job.Failed},
		} {
			e.add(store.EnqueueParams{})
			r := e.claimOne("w")
			p := store.SettleParams{Ref: refOf(r), Outcome: end.outcome, To: end.to, Delay: time.Minute, Output: []byte("1")}
			first, again := e.settle(p), e.settle(p)
			if !first.Landed || !again.Landed || !again.RunAt.Equal(first.RunAt) {
				e.Errorf("%s to %s: first %+v, repeated %+v", end.outcome, end.to, first, again)
			}
			if n := len(e.attempts(r.ID)); n > 1 {
				e.Errorf("%s left %d records", end.outcome, n)
			}
			got := e.get(r.ID)
			if end.to.Live() {
				if _, err := e.db.Cancel(e.ctx, store.CancelParams{ID: r.ID}); err != nil {
					e.Fatal(err)
				}
			}
			if wrong := (job.Ref{RunID: r.ID, Worker: "other", Claim: 1}); e.settle(store.SettleParams{Ref: wrong, Outcome: end.outcome, To: end.to}).Landed {
				e.Errorf("%s: another worker's settle of a %s run landed", end.outcome, got.State)
			}
		}
	}},
	{"a settle repeated after the next claim says landed and changes nothing", func(e *env) {
		r := e.start("w", store.EnqueueParams{})
		p := store.SettleParams{Ref: refOf(r), Outcome: job.Retried, To: job.Ready}
		e.settle(p)
		e.register("w2")
		again := e.claimOne("w2")
		if res := e.settle(p); !res.Landed {
			e.Fatal("a repeat after the next claim did not find its own")
		}
		if got := e.wantState(r.ID, job.Running); got.Worker != "w2" || got.Claims != again.Claims {
			e.Fatalf("stored %+v", got)
		}
	}},
	// (X4)
	{"a settle after a cancel lands nothing", func(e *env) {
		r := e.start("w", store.EnqueueParams{})
		if _, err := e.db.Cancel(e.ctx, store.CancelParams{ID: r.ID, Reason: "stop"}); err != nil {
			e.Fatal(err)
		}
		if res := e.settle(store.SettleParams{Ref: refOf(r), Outcome: job.Completed, To: job.Done, Output: []byte("1")}); res.Landed {
			e.Fatal("landed")
		}
		if got := e.wantState(r.ID, job.Cancelled); got.Output != nil || got.Error.Message != "stop" {
			e.Fatalf("stored %+v", got)
		}
	}},
	{"entries of a batch are independent", func(e *env) {
		e.register("w")
		var batch []store.SettleParams
		for range 3 {
			e.add(store.EnqueueParams{})
			batch = append(batch, store.SettleParams{Ref: refOf(e.claimOne("w")), Outcome: job.Completed, To: job.Done})
		}
		batch[1].Ref.Claim = 9
		res, err := e.db.Settle(e.ctx, batch)
		if err != nil {
			e.Fatal(err)
		}
		if got := []bool{res[0].Landed, res[1].Landed, res[2].Landed}; !slices.Equal(got, []bool{true, false, true}) {
			e.Fatalf("landed %v", got)
		}
	}},
	{"the timeline tells every attempt but a first one that completed", func(e *env) {
		r := e.start("w", store.EnqueueParams{MaxAttempts: 9})
		e.saveStep(store.StepParams{Ref: refOf(r), Name: "a"})
		claimed := r.ClaimedAt
		e.db.Advance(time.Second)
		now := e.now()
		failure := job.Failure{Code: "X_A", Message: "boom", Stack: "here"}
		res := e.settle(store.SettleParams{Ref: refOf(r), Outcome: job.Retried, To: job.Delayed, Delay: time.Second, Error: &failure, Module: "m1"})
		e.db.Advance(time.Second)
		second := e.claimOne("w")
		e.finish(second, job.Interrupted, job.Ready)
		third := e.claimOne("w")
		e.finish(third, job.Completed, job.Done)
		recs := e.attempts(r.ID)
		if len(recs) != 3 {
			e.Fatalf("%d records, want 3", len(recs))
		}
		e.wantTime("settled", recs[0].SettledAt, now)
		want := job.AttemptRecord{
			Claim: 1, Attempt: 1, Worker: "w", Outcome: job.Retried, ClaimedAt: claimed, SettledAt: recs[0].SettledAt,
			RunAt: res.RunAt, Error: failure, Module: "m1", StepsAtEnd: 1,
		}
		if d := cmp.Diff(want, recs[0]); d != "" {
			e.Errorf("first record (-want +got):\n%s", d)
		}
		if r := recs[1]; r.Claim != 2 || r.Attempt != 2 || r.Outcome != job.Interrupted || r.RunAt.IsZero() {
			e.Errorf("second record %+v", r)
		}
		if r := recs[2]; r.Claim != 3 || r.Attempt != 2 || r.Outcome != job.Completed || !r.RunAt.IsZero() {
			e.Errorf("third record %+v", r)
		}
	}},
	// (P10) The step's time is the run's.
	{"a sleeping step suspends its run until it wakes", func(e *env) {
		r := e.start("w", store.EnqueueParams{})
		now := e.now()
		res := e.settle(store.SettleParams{Ref: refOf(r), Outcome: job.Slept, To: job.Suspended, Module: "m",
			Step: &store.StepParams{Name: "nap", Kind: job.KindSleep, Status: job.StepSleeping, Sleep: 72 * time.Hour}})
		e.wantTime("due", res.RunAt, now.Add(72*time.Hour))
		got := e.wantState(r.ID, job.Suspended)
		steps := e.steps(r.ID)
		if len(steps) != 1 || steps[0].Status != job.StepSleeping || !steps[0].WakeAt.Equal(res.RunAt) || !got.RunAt.Equal(res.RunAt) {
			e.Fatalf("steps %+v, run due %s", steps, got.RunAt)
		}
		if got.Steps != 1 || got.Module != "m" {
			e.Fatalf("stored %+v", got)
		}
		e.register("w2")
		e.db.Advance(72 * time.Hour)
		e.register("w3")
		again := e.claimOne("w3")
		if again.ID != r.ID {
			e.Fatalf("claimed %s", again.ID)
		}
		until := e.now().Add(5 * time.Minute)
		res = e.settle(store.SettleParams{Ref: refOf(again), Outcome: job.Slept, To: job.Suspended,
			Step: &store.StepParams{Name: "nap2", Kind: job.KindSleep, Status: job.StepSleeping, WakeAt: until}})
		if !res.RunAt.Equal(until) {
			e.Fatalf("due %s, want %s", res.RunAt, until)
		}
	}},
	{"the step of a settle that misses is not written", func(e *env) {
		r := e.start("w", store.EnqueueParams{})
		stale := refOf(r)
		stale.Claim = 7
		res := e.settle(store.SettleParams{Ref: stale, Outcome: job.Retried, To: job.Delayed,
			Step: &store.StepParams{Name: "a", Kind: job.KindStep, Status: job.StepRetrying, Attempts: 1,
				Enqueue: []store.EnqueueParams{e.params(store.EnqueueParams{Queue: "child"})}}})
		if res.Landed || len(e.steps(r.ID)) != 0 || len(e.list(store.ListParams{Queue: "child"})) != 0 {
			e.Fatal("a stale settle left a trace")
		}
	}},
	{"outputs of every kind and size survive", func(e *env) {
		e.register("w")
		for i, out := range payloads() {
			e.add(store.EnqueueParams{})
			r := e.claimOne("w")
			e.settle(store.SettleParams{Ref: refOf(r), Outcome: job.Completed, To: job.Done, Output: out})
			if got := e.get(r.ID); !bytes.Equal(got.Output, out) {
				e.Errorf("output %d of %d bytes came back as %d", i, len(out), len(got.Output))
			}
		}
	}},
}
