package sqlite

import (
	"context"

	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

var (
	qGetRun       = named("get_run")
	qListAttempts = named("list_attempts")
)

// Get implements store.Admin.
func (s *Store) Get(ctx context.Context, id string) (job.Run, error) {
	var out job.Run
	err := s.read(ctx, func(c *conn) (err error) {
		out, _, err = c.get(id)
		return err
	})
	if err != nil {
		return job.Run{}, err
	}
	return out, nil
}

// get returns a run with its input and output, and its seq.
func (c *conn) get(id string) (r job.Run, seq int64, err error) {
	u, ok := parseUUID(id)
	if !ok {
		return r, 0, store.NotFound(id)
	}
	q := c.use(qGetRun)
	q.blob(u[:])
	found := q.step()
	if found {
		if r, seq, err = scanRun(&q); err != nil {
			q.end()
			return r, seq, err
		}
		r.Input, r.Output = q.colBlob(runColumns), q.colBlob(runColumns+1)
	}
	if err := q.end(); err != nil {
		return r, 0, err
	}
	if !found {
		return r, 0, store.NotFound(id)
	}
	return r, seq, nil
}

// Attempts implements store.Admin.
func (s *Store) Attempts(ctx context.Context, runID string) ([]job.AttemptRecord, error) {
	id, ok := parseUUID(runID)
	if !ok {
		return nil, nil
	}
	var out []job.AttemptRecord
	err := s.read(ctx, func(c *conn) error {
		out = nil
		q := c.use(qListAttempts)
		q.blob(id[:])
		for q.step() {
			out = append(out, job.AttemptRecord{
				Claim: q.colInt(0), Attempt: int(q.colInt(1)), Worker: q.colText(2), Outcome: job.Outcome(q.colText(3)),
				ClaimedAt: q.colTime(4), SettledAt: q.colTime(5), RunAt: q.colTime(6), Error: scanFailure(&q, 7),
				Module: q.colText(11), StepsAtEnd: int(q.colInt(12)),
			})
		}
		return q.end()
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}
