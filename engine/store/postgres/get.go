package postgres

import (
	"context"
	"time"

	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

var (
	qGetRun       = named("get_run")
	qListAttempts = named("list_attempts")
	qNow          = named("now")
)

// Now implements store.Clock.
func (s *Store) Now(ctx context.Context) (now time.Time, err error) {
	err = s.read(ctx, func(q queryer) error {
		return s.run(ctx, q, call{st: qNow, scan: func(r *row) error {
			now = r.time()
			return nil
		}})
	})
	return now, err
}

// Get implements store.Admin.
func (s *Store) Get(ctx context.Context, id string) (out job.Run, err error) {
	err = s.read(ctx, func(q queryer) error {
		out, err = s.get(ctx, q, id)
		return err
	})
	if err != nil {
		return job.Run{}, err
	}
	return out, nil
}

// get returns a run with its input and output.
func (s *Store) get(ctx context.Context, q queryer, id string) (out job.Run, err error) {
	u, ok := parseUUID(id)
	if !ok {
		return out, store.NotFound(id)
	}
	found := false
	err = s.run(ctx, q, call{st: qGetRun, args: []any{u.param()}, scan: func(r *row) error {
		found = true
		if out, err = r.run(); err != nil {
			return err
		}
		out.Input, out.Output = r.bytes(), r.bytes()
		return nil
	}})
	if err == nil && !found {
		err = store.NotFound(id)
	}
	return out, err
}

// Attempts implements store.Admin.
func (s *Store) Attempts(ctx context.Context, runID string) (out []job.AttemptRecord, err error) {
	id, ok := parseUUID(runID)
	if !ok {
		return nil, nil
	}
	err = s.read(ctx, func(q queryer) error {
		out = nil
		return s.run(ctx, q, call{st: qListAttempts, args: []any{id.param()}, scan: func(r *row) error {
			out = append(out, job.AttemptRecord{
				Claim: r.int(), Attempt: int(r.int()), Worker: r.text(), Outcome: job.Outcome(r.text()),
				ClaimedAt: r.time(), SettledAt: r.time(), RunAt: r.time(), Error: r.failure(),
				Module: r.text(), StepsAtEnd: int(r.int()),
			})
			return nil
		}})
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}
