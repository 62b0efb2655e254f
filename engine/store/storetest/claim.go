package storetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

var claimTests = []test{
	// (S2, C6)
	{"a claim counts the attempt and advances the ordinal", func(e *env) {
		e.register("w")
		id := e.add(store.EnqueueParams{Input: []byte(`1`)})
		now := e.now()
		r := e.claimOne("w")
		if r.ID != id || r.State != job.Running || r.Worker != "w" || r.Attempt != 1 || r.Claims != 1 || string(r.Input) != "1" {
			e.Fatalf("claimed %+v", r)
		}
		e.wantTime("claimed", r.ClaimedAt, now)
		e.wantTime("started", r.StartedAt, now)
		stored := e.wantState(id, job.Running)
		if stored.Worker != "w" || stored.Attempt != 1 || stored.Claims != 1 || !stored.ClaimedAt.Equal(r.ClaimedAt) {
			e.Fatalf("stored %+v", stored)
		}
		first := r.StartedAt
		e.finish(r, job.Retried, job.Ready)
		e.db.Advance(time.Second)
		r = e.claimOne("w")
		if r.Attempt != 2 || r.Claims != 2 || !r.StartedAt.Equal(first) || !r.ClaimedAt.After(first) {
			e.Fatalf("claimed again %+v", r)
		}
	}},
	// (C3)
	{"no queues is refused", func(e *env) {
		e.register("w")
		_, err := e.db.Claim(e.ctx, store.ClaimParams{Worker: "w"})
		e.wantRefused(err, job.CodeClaimQueuesEmpty)
	}},
	// (C4)
	{"limit 0 takes none and a negative one is refused", func(e *env) {
		e.register("w")
		e.add(store.EnqueueParams{})
		if runs := e.claim("w", 0); len(runs) != 0 {
			e.Fatalf("limit 0 claimed %d", len(runs))
		}
		_, err := e.db.Claim(e.ctx, store.ClaimParams{Worker: "w", Queues: []store.QueueLimit{{Queue: queueA, Limit: -1}}})
		e.wantRefused(err, job.CodeInvalid)
	}},
	{"never more than the limit of each queue", func(e *env) {
		e.register("w")
		for range 5 {
			e.add(store.EnqueueParams{Queue: "a"})
			e.add(store.EnqueueParams{Queue: "b"})
			e.add(store.EnqueueParams{Queue: "c"})
		}
		res := e.claimAll("w", store.QueueLimit{Queue: "a", Limit: 2}, store.QueueLimit{Queue: "b", Limit: 4})
		got := map[string]int{}
		for _, r := range res.Runs {
			got[r.Queue]++
		}
		if got["a"] != 2 || got["b"] != 4 || got["c"] != 0 {
			e.Fatalf("claimed %v", got)
		}
	}},
	// (Z2)
	{"an unknown or lapsed worker claims nothing", func(e *env) {
		e.add(store.EnqueueParams{})
		q := store.QueueLimit{Queue: queueA, Limit: 1}
		if res := e.claimAll("nobody", q); !res.WorkerGone || len(res.Runs) != 0 {
			e.Fatalf("unknown worker: %+v", res)
		}
		e.register("w")
		e.db.Advance(lease)
		if res := e.claimAll("w", q); !res.WorkerGone || len(res.Runs) != 0 {
			e.Fatalf("lapsed worker: %+v", res)
		}
	}},
	// (S2, S28) Within a tenant: priority, due time, id.
	{"lower priority first, then the earlier due time, then the id", func(e *env) {
		e.register("w")
		now := e.now()
		want := []string{
			e.add(store.EnqueueParams{Priority: -1, RunAt: now.Add(-time.Second)}),
			e.add(store.EnqueueParams{RunAt: now.Add(-3 * time.Second)}),
			e.add(store.EnqueueParams{RunAt: now.Add(-2 * time.Second)}),
		}
		tied := now.Add(-time.Second)
		// Inserted in the order of neither their ids nor their priorities.
		e.add(store.EnqueueParams{ID: uid(503), RunAt: tied})
		e.add(store.EnqueueParams{ID: uid(504), RunAt: tied, Priority: 5})
		e.add(store.EnqueueParams{ID: uid(501), RunAt: tied})
		e.add(store.EnqueueParams{ID: uid(502), RunAt: tied})
		want = append(want, uid(501), uid(502), uid(503), uid(504))
		var got []string
		for range want {
			got = append(got, e.claimOne("w").ID)
		}
		if !slices.Equal(got, want) {
			e.Fatalf("claimed in the order\n%v\nwant\n%v", got, want)
		}
	}},
	{"what a claim hands out together is in the same order", func(e *env) {
		e.register("w")
		for i := range 6 {
			e.add(store.EnqueueParams{Priority: 6 - i})
		}
		want := []string{uid(6), uid(5), uid(4), uid(3)}
		if got := ids(e.claim("w", 4)); !slices.Equal(got, want) {
			e.Fatalf("claimed %v, want %v", got, want)
		}
	}},
	// (S2, C2)
	{"delayed and suspended runs are claimed at their time, not before", func(e *env) {
		e.register("w")
		e.add(store.EnqueueParams{Delay: 10 * time.Second})
		r := e.start("w2", store.EnqueueParams{})
		e.settle(store.SettleParams{Ref: refOf(r), Outcome: job.Slept, To: job.Suspended,
			Step: &store.StepParams{Name: "nap", Kind: job.KindSleep, Status: job.StepSleeping, Sleep: 10 * time.Second}})
		e.db.Advance(8 * time.Second)
		if runs := e.claim("w", 10); len(runs) != 0 {
			e.Fatalf("claimed %d runs before their time", len(runs))
		}
		e.db.Advance(2 * time.Second)
		if runs := e.claim("w", 10); len(runs) != 2 {
			e.Fatalf("claimed %d runs at their time, want 2", len(runs))
		}
	}},
	{"the next due time is never late", func(e *env) {
		e.register("w")
		q := store.QueueLimit{Queue: queueA, Limit: 10}
		if res := e.claimAll("w", q); !res.NextDue.IsZero() {
			e.Fatalf("an empty queue is next due at %s", res.NextDue)
		}
		now := e.now()
		e.add(store.EnqueueParams{Delay: time.Hour})
		e.add(store.EnqueueParams{Delay: 20 * time.Second})
		e.add(store.EnqueueParams{Delay: time.Second, Queue: "other"})
		res := e.claimAll("w", q)
		if res.NextDue.IsZero() || res.NextDue.After(now.Add(21*time.Second)) {
			e.Fatalf("next due %s, want at most %s", res.NextDue, now.Add(20*time.Second))
		}
		e.wantTime("the claim's now", res.Now, now)
		res = e.claimAll("w", q, store.QueueLimit{Queue: "other", Limit: 1})
		if res.NextDue.IsZero() || res.NextDue.After(now.Add(2*time.Second)) {
			e.Fatalf("next due of two queues %s", res.NextDue)
		}
	}},
	// (FL5) A rotation is one run of each tenant.
	{"one tenant's backlog delays another by one rotation at most", func(e *env) {
		e.register("w")
		for range 50 {
			e.add(store.EnqueueParams{Tenant: "big"})
		}
		e.add(store.EnqueueParams{Tenant: "small"})
		e.add(store.EnqueueParams{Tenant: ""})
		seen := map[string]bool{}
		for range 3 {
			seen[e.claimOne("w").Tenant] = true
		}
		if !seen["small"] || !seen[""] || !seen["big"] {
			e.Fatalf("three claims of three tenants served %v", seen)
		}
	}},
	{"the rotation goes on where it stopped", func(e *env) {
		e.register("w")
		for i := range 12 {
			e.add(store.EnqueueParams{Tenant: string(rune('a' + i%4))})
		}
		for round := range 3 {
			seen := map[string]int{}
			for range 4 {
				seen[e.claimOne("w").Tenant]++
			}
			if len(seen) != 4 {
				e.Fatalf("round %d served %v", round, seen)
			}
		}
	}},
	{"a large claim is shared out evenly", func(e *env) {
		e.register("w")
		for range 20 {
			e.add(store.EnqueueParams{Tenant: "a"})
			e.add(store.EnqueueParams{Tenant: "b"})
		}
		e.add(store.EnqueueParams{Tenant: "c"})
		got := map[string]int{}
		for _, r := range e.claim("w", 11) {
			got[r.Tenant]++
		}
		if got["a"] != 5 || got["b"] != 5 || got["c"] != 1 {
			e.Fatalf("a claim of 11 took %v", got)
		}
		if n := len(e.claim("w", 100)); n != 30 {
			e.Fatalf("the rest was %d runs, want 30", n)
		}
	}},
	{"priorities order one tenant's runs, never another's", func(e *env) {
		e.register("w")
		for range 5 {
			e.add(store.EnqueueParams{Tenant: "a", Priority: -100})
		}
		e.add(store.EnqueueParams{Tenant: "b", Priority: 100})
		seen := map[string]bool{}
		for range 2 {
			seen[e.claimOne("w").Tenant] = true
		}
		if !seen["b"] {
			e.Fatal("tenant b waits behind another tenant's priorities")
		}
	}},
	{"more tenants than the limit are all served in turn", func(e *env) {
		e.register("w")
		for i := range 30 {
			e.add(store.EnqueueParams{Tenant: fmt.Sprintf("t%02d", i)})
			e.add(store.EnqueueParams{Tenant: fmt.Sprintf("t%02d", i)})
		}
		seen := map[string]int{}
		for range 6 {
			for _, r := range e.claim("w", 5) {
				seen[r.Tenant]++
			}
		}
		if len(seen) != 30 {
			e.Fatalf("one rotation of 30 tenants served %d", len(seen))
		}
	}},
	// (C2, O10)
	{"a paused queue is skipped", func(e *env) {
		e.register("w")
		e.add(store.EnqueueParams{})
		e.add(store.EnqueueParams{Queue: "other"})
		e.pause(store.PauseQueue, queueA)
		res := e.claimAll("w", store.QueueLimit{Queue: queueA, Limit: 5}, store.QueueLimit{Queue: "other", Limit: 5})
		if len(res.Runs) != 1 || res.Runs[0].Queue != "other" {
			e.Fatalf("claimed %v", ids(res.Runs))
		}
	}},
	// (X5)
	{"a cancelled run is never claimed", func(e *env) {
		e.register("w")
		id := e.add(store.EnqueueParams{})
		later := e.add(store.EnqueueParams{Delay: time.Second})
		for _, id := range []string{id, later} {
			if _, err := e.db.Cancel(e.ctx, store.CancelParams{ID: id}); err != nil {
				e.Fatal(err)
			}
		}
		e.db.Advance(time.Minute / 4)
		if runs := e.claim("w", 5); len(runs) != 0 {
			e.Fatalf("claimed %v", ids(runs))
		}
	}},
	// (S21)
	{"a finished run is never claimed again", func(e *env) {
		e.register("w")
		for _, end := range []struct {
			outcome job.Outcome
			to      job.State
		}{{job.Completed, job.Done}, {job.Dropped, job.Failed}, {job.DeadLettered, job.Dead}, {job.Refused, job.Failed}} {
			e.add(store.EnqueueParams{})
			e.finish(e.claimOne("w"), end.outcome, end.to)
		}
		if runs := e.claim("w", 10); len(runs) != 0 {
			e.Fatalf("claimed %v", ids(runs))
		}
	}},
}
