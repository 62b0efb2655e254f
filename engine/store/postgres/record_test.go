package postgres

import (
	"context"
	"testing"
	"time"

	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

// What Record answers is compared with a model in TestModel. Here it is that
// both kinds share one transaction, also when a step turns out not to be new.
func TestRecordIsOneTransaction(t *testing.T) {
	s := openWith(t, Config{})
	ctx := context.Background()
	if err := s.Register(ctx, store.RegisterParams{ID: "w", Lease: time.Hour}); err != nil {
		t.Fatal(err)
	}
	enqueueN(t, s.Store, 4, 4, noTenant)
	res, err := s.Claim(ctx, store.ClaimParams{Worker: "w", Queues: []store.QueueLimit{{Queue: "q", Limit: 4}}})
	if err != nil || len(res.Runs) != 4 {
		t.Fatal(len(res.Runs), err)
	}
	step := func(run int, name string, fresh bool) store.StepParams {
		return store.StepParams{Ref: refOf(res.Runs[run]), Name: name, Kind: job.KindStep, Status: job.StepCompleted, Output: []byte("1"), New: fresh}
	}
	end := func(run int) store.SettleParams {
		return store.SettleParams{Ref: refOf(res.Runs[run]), Outcome: job.Completed, To: job.Done}
	}
	record := func(steps []store.StepParams, ends []store.SettleParams) {
		t.Helper()
		saved, ended, err := s.Record(ctx, steps, ends)
		if err != nil || len(saved) != len(steps) || len(ended) != len(ends) {
			t.Fatal(saved, ended, err)
		}
		for i, r := range saved {
			if !r.Landed || r.At.IsZero() {
				t.Errorf("step %d: %+v", i, r)
			}
		}
		for i, r := range ended {
			if !r.Landed {
				t.Errorf("end %d: %+v", i, r)
			}
		}
	}
	record([]store.StepParams{step(0, "a", true), step(1, "a", false)}, []store.SettleParams{end(2)})
	// The step is there: the short statement fails, and the end must not be lost with it.
	record([]store.StepParams{step(0, "a", true), step(1, "b", true)}, []store.SettleParams{end(3)})

	xmin := func(sql string, id string) (x string) {
		t.Helper()
		if err := s.pool.QueryRow(ctx, s.cfg.dialect().fill(sql), id).Scan(&x); err != nil {
			t.Fatal(err)
		}
		return x
	}
	for _, c := range []struct{ step, run int }{{1, 3}} {
		a := xmin(`SELECT xmin::text FROM {schema}.steps WHERE run_id = $1::text::uuid AND name = 'b'`, res.Runs[c.step].ID)
		b := xmin(`SELECT xmin::text FROM {schema}.finished WHERE id = $1::text::uuid`, res.Runs[c.run].ID)
		if a != b {
			t.Errorf("a step is of transaction %s, the end beside it of %s", a, b)
		}
	}
	// A repeat finds what landed.
	record([]store.StepParams{step(0, "a", true)}, []store.SettleParams{end(2), end(3)})
	if steps, err := s.ListSteps(ctx, res.Runs[0].ID); err != nil || len(steps) != 1 {
		t.Errorf("steps %v, %v", steps, err)
	}
}
