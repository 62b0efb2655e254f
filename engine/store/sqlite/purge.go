package sqlite

import (
	"context"

	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

// purgeChunk bounds the runs deleted in one transaction: a few milliseconds,
// after which claims and settles have their turn.
const purgeChunk = 500

// rateKept is how long, in ms, the state of a rate outlives its use.
const rateKept = 60_000

var (
	qForgetRates = named("forget_rates")
	qExpiredRuns = named("expired_runs")
	qDeleteRun   = []*statement{
		named("delete_run_steps"), named("delete_run_attempts"), named("delete_run_payload"), named("delete_run_log"), named("delete_run"),
	}
)

// Purge implements store.Admin. It commits chunk by chunk: with an error it
// answers how many were deleted before it. Pages that become free are used
// again; the file does not shrink.
func (s *Store) Purge(ctx context.Context, limit int) (int, error) {
	if limit < 0 {
		return 0, store.Invalid("purge of %d runs", limit)
	}
	total := 0
	for total < limit {
		var n int
		chunk := min(limit-total, purgeChunk)
		err := s.w.do(ctx, func(tx *tx) (err error) {
			n, err = tx.purge(chunk)
			return err
		})
		if err != nil {
			return total, err
		}
		total += n
		if n < chunk {
			break
		}
	}
	return total, nil
}

func (t *tx) purge(limit int) (int, error) {
	type expired struct {
		seq   int64
		queue string
		state job.State
	}
	forget := t.use(qForgetRates)
	forget.int((t.now - rateKept) * 1e6)
	if err := forget.exec(); err != nil {
		return 0, err
	}
	var runs []expired
	q := t.use(qExpiredRuns)
	q.int(t.now)
	q.int(int64(limit))
	for q.step() {
		runs = append(runs, expired{q.colInt(0), q.colText(1), job.State(q.colText(2))})
	}
	if err := q.end(); err != nil {
		return 0, err
	}
	for _, r := range runs {
		if err := t.deleteRun(r.seq); err != nil {
			return 0, err
		}
		t.group.count(r.queue, r.state, -1)
	}
	return len(runs), t.purgeAudit(limit)
}
