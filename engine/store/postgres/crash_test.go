package postgres

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
	"github.com/jobrunner/runner/engine/store/postgres/pgtest"
)

// What was answered survives a crash of the server, and what was refused for
// certain has not happened. Only errors that say so leave it open.
func TestAnswersSurviveACrash(t *testing.T) {
	ctx := context.Background()
	server, err := pgtest.Start(ctx, pgtest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	}()
	cfg := Config{URL: server.URL()}
	m, err := OpenMigrator(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Migrate(ctx); err != nil {
		t.Fatal(err)
	}
	s := open(t, cfg)
	s.claims.limit = time.Hour // a claim that a busy machine delays must not end the handovers
	if err := s.Register(ctx, store.RegisterParams{ID: "w", Lease: time.Hour}); err != nil {
		t.Fatal(err)
	}
	for round := range 3 {
		crash(t, server, s, round)
	}
}

// told is what a run's owner was told.
type told struct {
	mu      sync.Mutex
	there   map[string]bool // enqueued
	absent  map[string]bool // refused for certain
	settled map[string]bool
	running map[string]bool // its settle was refused for certain
	stepped map[string]bool // its step was recorded
}

func crash(t *testing.T, server *pgtest.Server, s *Store, round int) {
	t.Helper()
	ctx := context.Background()
	now := told{there: map[string]bool{}, absent: map[string]bool{}, settled: map[string]bool{}, running: map[string]bool{}, stepped: map[string]bool{}}
	note := func(m map[string]bool, id string) {
		now.mu.Lock()
		m[id] = true
		now.mu.Unlock()
	}
	var done, answers atomic.Int64
	enough := make(chan struct{})
	var once sync.Once
	answered := func() {
		if answers.Add(1) == 200 {
			once.Do(func() { close(enough) })
		}
	}
	var wg sync.WaitGroup
	for e := range 4 {
		wg.Go(func() {
			for n := 0; done.Load() == 0; n++ {
				id := idAt(time.Now(), round*10_000_000+e*1_000_000+n)
				_, err := s.Enqueue(ctx, []store.EnqueueParams{{ID: id, Job: "j", Queue: "q", MaxAttempts: 3}})
				switch {
				case err == nil:
					note(now.there, id)
					answered()
				case !errors.Is(err, store.ErrUnknown):
					note(now.absent, id)
				}
			}
		})
	}
	wg.Go(func() {
		// Runs that are handed over, and the step of each recorded with the end of the
		// one before.
		var last *job.Run
		for n := 0; done.Load() == 0; n++ {
			id := idAt(time.Now(), round*10_000_000+9_000_000+n)
			res, err := s.Enqueue(ctx, []store.EnqueueParams{{ID: id, Job: "j", Queue: "handed", MaxAttempts: 3, Minted: true, Worker: "w"}})
			if err != nil {
				if !errors.Is(err, store.ErrUnknown) {
					note(now.absent, id)
				}
				continue
			}
			note(now.there, id)
			if res[0].Run == nil {
				t.Errorf("run %s was not handed over", id)
				continue
			}
			r, before := res[0].Run, last
			last = r
			if before == nil {
				continue
			}
			saved, ended, err := s.Record(ctx,
				[]store.StepParams{{Ref: refOf(*r), Name: "a", Kind: job.KindStep, Status: job.StepCompleted, Output: []byte("1"), New: true}},
				[]store.SettleParams{{Ref: refOf(*before), Outcome: job.Completed, To: job.Done, Output: []byte(before.ID)}})
			switch {
			case err == nil && saved[0].Landed && ended[0].Landed:
				note(now.settled, before.ID)
				note(now.stepped, r.ID)
				answered()
			case err == nil:
				t.Errorf("of runs %s and %s landed %+v and %+v", r.ID, before.ID, saved, ended)
			case !errors.Is(err, store.ErrUnknown):
				note(now.running, before.ID)
			}
		}
	})
	for range 2 {
		wg.Go(func() {
			for done.Load() == 0 {
				res, err := s.Claim(ctx, store.ClaimParams{Worker: "w", Queues: []store.QueueLimit{{Queue: "q", Limit: 5}}})
				if err != nil {
					continue
				}
				for _, r := range res.Runs {
					out, err := s.Settle(ctx, []store.SettleParams{{Ref: refOf(r), Outcome: job.Completed, To: job.Done, Output: []byte(r.ID)}})
					switch {
					case err == nil && out[0].Landed:
						note(now.settled, r.ID)
						answered()
					case err == nil:
						t.Errorf("the settle of run %s did not land", r.ID)
					case !errors.Is(err, store.ErrUnknown):
						note(now.running, r.ID)
					}
				}
			}
		})
	}
	<-enough
	if err := server.Down(ctx, "immediate"); err != nil {
		t.Fatal(err)
	}
	done.Store(1)
	wg.Wait()
	if err := server.Up(ctx); err != nil {
		t.Fatal(err)
	}
	state := func(id string) (job.Run, string) {
		r, err := s.Get(ctx, id)
		if code := abi.CodeOf(err); err != nil && code != job.CodeNotFound {
			t.Fatal(err)
		}
		return r, fmt.Sprint(r.State)
	}
	for id := range now.there {
		if _, st := state(id); st == "" {
			t.Errorf("run %s was answered and is gone", id)
		}
	}
	for id := range now.absent {
		if _, st := state(id); st != "" {
			t.Errorf("run %s was refused and is %s", id, st)
		}
	}
	for id := range now.settled {
		if r, st := state(id); st != string(job.Done) || string(r.Output) != id {
			t.Errorf("run %s was settled and is %s", id, st)
		}
	}
	for id := range now.stepped {
		if steps, err := s.ListSteps(ctx, id); err != nil || len(steps) != 1 {
			t.Errorf("the step of run %s was recorded and is %v, %v", id, steps, err)
		}
	}
	for id := range now.running {
		if _, st := state(id); st != string(job.Running) {
			t.Errorf("run %s was not settled and is %s", id, st)
		}
	}
	t.Logf("round %d: %d enqueued, %d refused, %d settled, %d not, %d stepped", round, len(now.there), len(now.absent), len(now.settled), len(now.running), len(now.stepped))
}

// A connection that is cut after its statement was sent leaves the outcome open;
// one that is cut before does not.
func TestALostAnswerIsUnknown(t *testing.T) {
	ctx := context.Background()
	s := open(t, migrated(t, Config{MaxConns: 1}))
	c, err := s.pool.Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	pid := c.Conn().PgConn().PID()
	c.Release()
	locked, unlock := lockTable(t, s, "waiting")
	answer := make(chan error)
	go func() {
		_, err := s.Enqueue(ctx, entry(1))
		answer <- err
	}()
	locked(pid) // the statement waits in the server
	kill(t, s, pid)
	err = <-answer
	unlock()
	wantCode(t, err, job.CodeDatabaseUnavailable)
	if !errors.Is(err, store.ErrUnknown) {
		t.Fatalf("%v does not say that the outcome is open", err)
	}
	// The pool's next connection is a new one, and nothing need be told.
	if _, err := s.Enqueue(ctx, entry(2)); err != nil {
		t.Fatal(err)
	}
	// A caller that stops waiting learns no more.
	waiting, cancel := context.WithCancel(ctx)
	c, err = s.pool.Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	pid = c.Conn().PgConn().PID()
	c.Release()
	locked, unlock = lockTable(t, s, "waiting")
	go func() {
		_, err := s.Enqueue(waiting, entry(3))
		answer <- err
	}()
	locked(pid)
	cancel()
	err = <-answer
	unlock()
	if !errors.Is(err, context.Canceled) || !errors.Is(err, store.ErrUnknown) {
		t.Fatalf("%v", err)
	}
	// A read has nothing to leave open.
	done, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := s.Stats(done); !errors.Is(err, context.Canceled) || errors.Is(err, store.ErrUnknown) {
		t.Fatalf("%v", err)
	}
}
