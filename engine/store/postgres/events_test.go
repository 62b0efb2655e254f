package postgres

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

// parkable is a run that is held, and the settle that parks it.
func parkable(t *testing.T, s *Store, id string, w store.WaitParams) store.SettleParams {
	t.Helper()
	ctx := context.Background()
	if _, err := s.Enqueue(ctx, []store.EnqueueParams{{ID: id, Job: "j", Queue: "q", MaxAttempts: 3, Input: []byte("1")}}); err != nil {
		t.Fatal(err)
	}
	res, err := s.Claim(ctx, store.ClaimParams{Worker: "w", Queues: []store.QueueLimit{{Queue: "q", Limit: 1}}})
	if err != nil || len(res.Runs) != 1 {
		t.Fatalf("claimed %+v, %v", res, err)
	}
	return store.SettleParams{Ref: refOf(res.Runs[0]), Outcome: job.Slept, To: job.Suspended, Step: &store.StepParams{
		Name: "w", Kind: job.KindWait, Status: job.StepWaiting, Sleep: time.Hour, Wait: &w,
	}}
}

func eventOf(id string) store.EventParams {
	return store.EventParams{ID: id, Topic: "t", Payload: []byte("7"), Keep: time.Hour}
}

// excluded waits until a session waits for a lock of topics.
func excluded(t *testing.T, s *Store) {
	t.Helper()
	connected(t, s.cfg.URL, func(c *pgx.Conn) {
		for {
			var waits bool
			err := c.QueryRow(context.Background(), `SELECT EXISTS (SELECT FROM pg_locks l JOIN pg_database d ON d.oid = l.database
				WHERE d.datname = current_database() AND l.locktype = 'advisory' AND NOT l.granted)`).Scan(&waits)
			if err != nil {
				t.Fatal(err)
			}
			if waits {
				return
			}
			if pauseFor(t.Context(), time.Millisecond) != nil {
				t.Fatal("nobody came to wait for the topic")
			}
		}
	})
}

// blocks waits until another session waits for that of pid. It looks from outside
// any transaction: within one, the list of sessions stays as it was first read.
func blocks(t *testing.T, s *Store, pid int32) {
	t.Helper()
	connected(t, s.cfg.URL, func(c *pgx.Conn) {
		for {
			var waits bool
			err := c.QueryRow(context.Background(), "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE $1 = ANY (pg_blocking_pids(pid)))", pid).Scan(&waits)
			if err != nil {
				t.Fatal(err)
			}
			if waits {
				return
			}
			if pauseFor(t.Context(), time.Millisecond) != nil {
				t.Fatal("nobody came to wait")
			}
		}
	})
}

// Each side of the race, held open at the point where it has done everything but
// commit: the other must not get past its lock, or neither sees the other's row.
func TestAParkWaitsForAPublishThatIsUnderWay(t *testing.T) {
	ctx := context.Background()
	s := open(t, migrated(t, Config{}))
	if err := s.Register(ctx, store.RegisterParams{ID: "w", Lease: time.Hour}); err != nil {
		t.Fatal(err)
	}
	fromNow := parkable(t, s, "01970000-0000-7000-8000-000000000001", store.WaitParams{Topic: "t", FromNow: true})
	after := parkable(t, s, "01970000-0000-7000-8000-000000000002", store.WaitParams{Topic: "t"})
	settled := make(chan error, 1)
	var seq int64
	err := s.inTx(ctx, func(tx pgx.Tx) error {
		events := []store.EventParams{eventOf("01970000-0000-7000-8000-00000000000e")}
		if err := s.run(ctx, tx, lockTopics(nil, events)); err != nil {
			return err
		}
		out, _, err := s.publishIn(ctx, tx, events)
		if err != nil {
			return err
		}
		seq = out[0].Seq
		go func() {
			_, err := s.Settle(ctx, []store.SettleParams{fromNow, after})
			settled <- err
		}()
		excluded(t, s)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := <-settled; err != nil {
		t.Fatal(err)
	}
	for _, want := range []struct {
		id     string
		state  job.State
		status job.StepStatus
	}{{fromNow.Ref.RunID, job.Suspended, job.StepWaiting}, {after.Ref.RunID, job.Ready, job.StepCompleted}} {
		r, err := s.Get(ctx, want.id)
		if err != nil {
			t.Fatal(err)
		}
		steps, err := s.ListSteps(ctx, want.id)
		if err != nil || len(steps) != 1 {
			t.Fatal(steps, err)
		}
		if r.State != want.state || steps[0].Status != want.status || steps[0].Place != seq {
			t.Errorf("the run is %s, its wait %s at %d; want %s, %s at %d", r.State, steps[0].Status, steps[0].Place, want.state, want.status, seq)
		}
	}
}

func TestAPublishWaitsForAParkThatIsUnderWay(t *testing.T) {
	ctx := context.Background()
	s := open(t, migrated(t, Config{}))
	if err := s.Register(ctx, store.RegisterParams{ID: "w", Lease: time.Hour}); err != nil {
		t.Fatal(err)
	}
	p := parkable(t, s, "01970000-0000-7000-8000-000000000001", store.WaitParams{Topic: "t", FromNow: true})
	type answer struct {
		res []store.EventResult
		err error
	}
	published := make(chan answer, 1)
	err := s.inTx(ctx, func(tx pgx.Tx) error {
		m := &settlingMore{s: s, tx: tx, batch: []store.SettleParams{p}, out: make([]store.SettleResult, 1), landed: make([]bool, 1)}
		if err := m.run(ctx); err != nil {
			return err
		}
		go func() {
			res, err := s.Publish(ctx, []store.EventParams{eventOf("01970000-0000-7000-8000-00000000000e")})
			published <- answer{res, err}
		}()
		excluded(t, s)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	a := <-published
	if a.err != nil || a.res[0].Woken != 1 {
		t.Fatalf("the publish answered %+v, %v", a.res, a.err)
	}
	if r, err := s.Get(ctx, p.Ref.RunID); err != nil || r.State != job.Ready {
		t.Errorf("the run is %s, %v", r.State, err)
	}
}

// Two children of one parent whose ends do not see each other.
func TestTheEndOfAChildWaitsForAnotherThatIsUnderWay(t *testing.T) {
	ctx := context.Background()
	s := open(t, migrated(t, Config{}))
	if err := s.Register(ctx, store.RegisterParams{ID: "w", Lease: time.Hour}); err != nil {
		t.Fatal(err)
	}
	p := parkable(t, s, "01970000-0000-7000-8000-000000000001", store.WaitParams{})
	p.Step = nil
	p.Invoke = &store.InvokeParams{}
	for i, id := range []string{"01970000-0000-7000-8000-00000000000a", "01970000-0000-7000-8000-00000000000b"} {
		p.Invoke.Start = append(p.Invoke.Start, store.ChildParams{Name: []string{"a", "b"}[i], Run: store.EnqueueParams{
			ID: id, Job: "child", Queue: "c", MaxAttempts: 1, Input: []byte("1"), Parent: p.Ref.RunID,
		}})
	}
	if _, err := s.Settle(ctx, []store.SettleParams{p}); err != nil {
		t.Fatal(err)
	}
	res, err := s.Claim(ctx, store.ClaimParams{Worker: "w", Queues: []store.QueueLimit{{Queue: "c", Limit: 2}}})
	if err != nil || len(res.Runs) != 2 {
		t.Fatalf("claimed %+v, %v", res.Runs, err)
	}
	end := func(i int) []store.SettleParams {
		r := res.Runs[i]
		return []store.SettleParams{{Ref: refOf(r), Outcome: job.Completed, To: job.Done, Output: []byte("1"), Parent: r.Parent}}
	}
	settled := make(chan error, 1)
	err = s.inTx(ctx, func(tx pgx.Tx) error {
		g := s.newSettling(end(0), []int{0}, make([]store.SettleResult, 1))
		if err := s.runAll(ctx, tx, g.calls()...); err != nil {
			return err
		}
		var pid int32
		if err := tx.QueryRow(ctx, "SELECT pg_backend_pid()").Scan(&pid); err != nil {
			return err
		}
		go func() {
			_, err := s.Settle(ctx, end(1))
			settled <- err
		}()
		blocks(t, s, pid)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := <-settled; err != nil {
		t.Fatal(err)
	}
	if r, err := s.Get(ctx, p.Ref.RunID); err != nil || r.State != job.Ready {
		t.Errorf("the parent is %s, %v", r.State, err)
	}
}
