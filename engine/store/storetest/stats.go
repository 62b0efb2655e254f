package storetest

import (
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

func (e *env) stats() store.Stats {
	e.Helper()
	st, err := e.db.Stats(e.ctx)
	if err != nil {
		e.Fatalf("stats: %v", err)
	}
	return st
}

var statsTests = []test{
	{"an empty database counts nothing", func(e *env) {
		now := e.now()
		st := e.stats()
		if len(st.Queues) != 0 || st.Workers != 0 {
			e.Fatalf("stats %+v", st)
		}
		e.wantTime("now", st.Now, now)
	}},
	{"events are counted while they are kept", func(e *env) {
		now := e.now()
		e.publish(store.EventParams{Keep: time.Second}, store.EventParams{Topic: "other", Tenant: "t"})
		st := e.stats()
		if st.Events != 2 {
			e.Fatalf("%d events", st.Events)
		}
		e.wantTime("the oldest", st.OldestEvent, now)
		e.db.Advance(10 * time.Second)
		e.publish(store.EventParams{})
		if st = e.stats(); st.Events != 3 {
			e.Fatalf("%d events before a purge", st.Events)
		}
		if _, err := e.db.PurgeEvents(e.ctx, 10); err != nil {
			e.Fatal(err)
		}
		if st = e.stats(); st.Events != 2 {
			e.Fatalf("%d events after a purge", st.Events)
		}
		e.wantTime("the oldest", st.OldestEvent, now)
	}},
	// (S26, W18) Every run in exactly one bucket; due is ready, whatever the state.
	{"buckets are exclusive, and what is due is ready", func(e *env) {
		e.register("w", "gone")
		q := func(p store.EnqueueParams) store.EnqueueParams { p.Queue = "a"; return p }
		end := func(outcome job.Outcome, to job.State, delay time.Duration) {
			e.Helper()
			e.add(q(store.EnqueueParams{}))
			res := e.claimAll("w", store.QueueLimit{Queue: "a", Limit: 1})
			p := store.SettleParams{Ref: refOf(res.Runs[0]), Outcome: outcome, To: to, Delay: delay}
			if !e.settle(p).Landed {
				e.Fatal("not landed")
			}
		}
		end(job.Completed, job.Done, 0)
		end(job.Completed, job.Done, 0)
		end(job.Dropped, job.Failed, 0)
		end(job.DeadLettered, job.Dead, 0)
		end(job.Slept, job.Suspended, time.Hour)
		end(job.Slept, job.Suspended, 5*time.Second)
		e.add(q(store.EnqueueParams{}))
		e.claimAll("w", store.QueueLimit{Queue: "a", Limit: 1})
		cancelled := e.add(q(store.EnqueueParams{}))
		if _, err := e.db.Cancel(e.ctx, store.CancelParams{ID: cancelled}); err != nil {
			e.Fatal(err)
		}
		e.add(q(store.EnqueueParams{Delay: time.Hour}))
		e.add(q(store.EnqueueParams{Delay: 5 * time.Second}))
		e.db.Advance(2 * time.Second)
		readyAt := e.now()
		e.add(q(store.EnqueueParams{}))
		e.add(store.EnqueueParams{Queue: "B", Delay: time.Hour})
		oldest := e.add(store.EnqueueParams{Queue: "c", RunAt: readyAt.Add(-time.Hour)})

		want := []store.QueueStats{
			{Queue: "B", Delayed: 1},
			{Queue: "a", Ready: 1, Delayed: 2, Running: 1, Suspended: 2, Done: 2, Failed: 1, Dead: 1, Cancelled: 1},
			{Queue: "c", Ready: 1, OldestDue: e.get(oldest).RunAt},
		}
		st := e.stats()
		if len(st.Queues) == 3 {
			e.wantTime("oldest due", st.Queues[1].OldestDue, readyAt)
			want[1].OldestDue = st.Queues[1].OldestDue
		}
		if d := cmp.Diff(want, st.Queues); d != "" {
			e.Fatalf("queues (-want +got):\n%s", d)
		}
		if st.Workers != 2 {
			e.Fatalf("%d workers", st.Workers)
		}
		e.db.Advance(4 * time.Second)
		want[1].Ready, want[1].Delayed, want[1].Suspended = 3, 1, 1
		st = e.stats()
		want[1].OldestDue = st.Queues[1].OldestDue
		if d := cmp.Diff(want, st.Queues); d != "" {
			e.Fatalf("queues once the waiting are due (-want +got):\n%s", d)
		}
		if st.Queues[1].OldestDue.After(readyAt.Add(time.Second)) {
			e.Fatalf("oldest due %s, want that of the ready run", st.Queues[1].OldestDue)
		}
	}},
	{"a lapsed worker is not counted", func(e *env) {
		e.register("w")
		e.db.Advance(lease)
		e.register("w2")
		if st := e.stats(); st.Workers != 1 {
			e.Fatalf("%d workers", st.Workers)
		}
	}},
	{"finished runs are counted until they are requeued or purged", func(e *env) {
		r := e.start("w", store.EnqueueParams{MaxAttempts: 1})
		count := func(want store.QueueStats) {
			e.Helper()
			var got store.QueueStats
			if st := e.stats(); len(st.Queues) > 0 {
				got = st.Queues[0]
			}
			want.Queue, want.OldestDue = got.Queue, got.OldestDue
			if got != want {
				e.Fatalf("stats %+v, want %+v", got, want)
			}
		}
		e.settle(store.SettleParams{Ref: refOf(r), Outcome: job.Completed, To: job.Done, Retention: time.Second})
		count(store.QueueStats{Done: 1})
		e.requeue(store.RequeueParams{ID: r.ID})
		count(store.QueueStats{Ready: 1})
		e.claimOne("w")
		e.db.Advance(lease)
		e.reclaimWith(store.ReclaimParams{Limit: 1, Retention: map[string]time.Duration{jobA: time.Second}})
		count(store.QueueStats{Dead: 1})
		e.db.Advance(2 * time.Second)
		if n, err := e.db.Purge(e.ctx, 5); n != 1 || err != nil {
			e.Fatalf("purged %d, %v", n, err)
		}
		count(store.QueueStats{})
	}},
}
