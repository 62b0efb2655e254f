package postgres

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

// Batches over the same few runs and keys, in every order, from everywhere: none
// fails, none deadlocks, and in the end nobody holds anything.
func TestContendingBatchesNeverDeadlock(t *testing.T) {
	ctx := context.Background()
	cfg := migrated(t, Config{MaxConns: 16})
	s := open(t, cfg)
	deadlocks := func() (n int64) {
		t.Helper()
		err := s.pool.QueryRow(ctx, "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()").Scan(&n)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := deadlocks()
	const rounds = 40
	var ids atomic.Int64
	fresh := func() string { return idAt(time.Now(), int(ids.Add(1))) }
	var wg sync.WaitGroup
	check := func(what string, err error, fine ...string) {
		if err == nil {
			return
		}
		for _, code := range fine {
			if abi.CodeOf(err) == code {
				return
			}
		}
		t.Errorf("%s: %v", what, err)
	}
	// Enqueue the same keys in different orders.
	for e := range 3 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(e), 1))
			for range rounds {
				var batch []store.EnqueueParams
				for _, k := range r.Perm(12) {
					batch = append(batch, store.EnqueueParams{ID: fresh(), Job: "j", Queue: "q", Key: fmt.Sprint("k", k), MaxAttempts: 100})
				}
				_, err := s.Enqueue(ctx, batch)
				check("enqueue", err)
			}
		})
	}
	// Claim, save, settle and renew, as workers that come and go.
	for w := range 4 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(w), 2))
			for n := range rounds {
				worker := fmt.Sprintf("w%d-%d", w, n)
				check("register", s.Register(ctx, store.RegisterParams{ID: worker, Lease: 20 * time.Millisecond}))
				res, err := s.Claim(ctx, store.ClaimParams{Worker: worker, Queues: []store.QueueLimit{{Queue: "q", Limit: 6}}})
				check("claim", err)
				var refs []job.Ref
				var steps []store.StepParams
				var settles []store.SettleParams
				for _, i := range r.Perm(len(res.Runs)) {
					ref := refOf(res.Runs[i])
					refs = append(refs, ref)
					steps = append(steps, store.StepParams{Ref: ref, Name: "s", Kind: job.KindStep, Status: job.StepCompleted, Module: "m"})
					end := store.SettleParams{Ref: ref, Outcome: job.Completed, To: job.Done}
					if r.IntN(2) == 0 {
						end.Outcome, end.To = job.Retried, job.Ready
					}
					settles = append(settles, end)
				}
				_, err = s.SaveSteps(ctx, steps)
				check("save", err)
				_, err = s.Renew(ctx, store.RenewParams{Worker: worker, Lease: 20 * time.Millisecond, Held: refs})
				check("renew", err)
				// Twice at once: a repeat after a lost answer may overtake.
				var both sync.WaitGroup
				for range 2 {
					both.Go(func() {
						_, err := s.Settle(ctx, settles)
						check("settle", err)
					})
				}
				both.Wait()
				if r.IntN(2) == 0 {
					check("deregister", s.Deregister(ctx, worker))
				}
			}
		})
	}
	for o := range 2 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(o), 3))
			for range rounds {
				_, err := s.Reclaim(ctx, store.ReclaimParams{Limit: 5})
				check("reclaim", err)
				runs, err := s.List(ctx, store.ListParams{Limit: 20})
				check("list", err)
				for _, i := range r.Perm(len(runs)) {
					if o == 0 {
						_, err = s.Cancel(ctx, store.CancelParams{ID: runs[i].ID, Retention: time.Millisecond})
						check("cancel", err, job.CodeNotCancellable, job.CodeNotFound)
					} else {
						_, err = s.Requeue(ctx, store.RequeueParams{ID: runs[i].ID})
						check("requeue", err, job.CodeNotRequeueable, job.CodeDuplicate, job.CodeNotFound)
					}
				}
				_, err = s.Purge(ctx, 10)
				check("purge", err)
			}
		})
	}
	wg.Wait()
	if n := deadlocks() - before; n != 0 {
		t.Errorf("%d deadlocks", n)
	}
	// Every running run's worker is registered: nothing can be left held for ever.
	var orphans int
	err := s.pool.QueryRow(ctx, s.cfg.dialect().fill(`SELECT count(*) FROM {schema}.running r WHERE NOT EXISTS (SELECT FROM {schema}.workers w WHERE w.id = r.worker)`)).Scan(&orphans)
	if err != nil || orphans != 0 {
		t.Errorf("%d runs are held by workers that are gone, %v", orphans, err)
	}
	// Every live run with a key holds it, and nobody else does.
	var wrong int
	err = s.pool.QueryRow(ctx, s.cfg.dialect().fill(`
		WITH live AS (SELECT id, job, tenant, key FROM {schema}.waiting WHERE key <> ''
			UNION ALL SELECT id, job, tenant, key FROM {schema}.running WHERE key <> '')
		SELECT count(*) FROM live FULL JOIN {schema}.live_keys k ON k.run_id = live.id AND (k.job, k.tenant, k.key) = (live.job, live.tenant, live.key)
		WHERE live.id IS NULL OR k.run_id IS NULL`)).Scan(&wrong)
	if err != nil || wrong != 0 {
		t.Errorf("%d keys and live runs do not match, %v", wrong, err)
	}
	var twice int
	err = s.pool.QueryRow(ctx, s.cfg.dialect().fill(`
		SELECT count(*) FROM (SELECT id FROM {schema}.waiting UNION ALL SELECT id FROM {schema}.running UNION ALL SELECT id FROM {schema}.finished) a
		GROUP BY id HAVING count(*) > 1`)).Scan(&twice)
	if err == nil {
		t.Errorf("a run is in %d tables", twice)
	}
}

// The same id again is the same run again, also while that run moves from table
// to table: its handler never runs twice.
func TestARepublishedRunRunsOnce(t *testing.T) {
	ctx := context.Background()
	s := open(t, migrated(t, Config{MaxConns: 12}))
	if err := s.Register(ctx, store.RegisterParams{ID: "w", Lease: time.Hour}); err != nil {
		t.Fatal(err)
	}
	const runs = 60
	ids := make([]string, runs)
	for i := range ids {
		ids[i] = idAt(time.Now(), i)
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for p := range 4 {
		wg.Go(func() {
			for n := p; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				batch := []store.EnqueueParams{
					{ID: ids[n%runs], Job: "j", Queue: "q", MaxAttempts: 1},
					{ID: ids[(n+7)%runs], Job: "j", Queue: "q", Key: ids[(n+7)%runs], MaxAttempts: 1},
				}
				if _, err := s.Enqueue(ctx, batch[:1+n%2]); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	seen := map[string]int{}
	for len(seen) < runs && !t.Failed() {
		res, err := s.Claim(ctx, store.ClaimParams{Worker: "w", Queues: []store.QueueLimit{{Queue: "q", Limit: 3}}})
		if err != nil {
			t.Fatal(err)
		}
		var batch []store.SettleParams
		for _, r := range res.Runs {
			seen[r.ID]++
			batch = append(batch, store.SettleParams{Ref: refOf(r), Outcome: job.Completed, To: job.Done})
		}
		if _, err := s.Settle(ctx, batch); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	wg.Wait()
	res, err := s.Claim(ctx, store.ClaimParams{Worker: "w", Queues: []store.QueueLimit{{Queue: "q", Limit: 100}}})
	if err != nil || len(res.Runs) != 0 {
		t.Fatalf("%d runs are there again, %v", len(res.Runs), err)
	}
	for id, n := range seen {
		if n != 1 {
			t.Errorf("run %s ran %d times", id, n)
		}
	}
}
