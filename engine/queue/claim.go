package queue

import (
	"context"

	"github.com/jobrunner/runner/engine/store"
)

// Claim hands out due runs, one statement for all the asked queues. An error
// that is store.ErrUnknown may have moved runs to the worker without telling
// it: the caller must not keep that worker's lease alive for ever.
func (q *Queue) Claim(ctx context.Context, p store.ClaimParams) (store.ClaimResult, error) {
	res, err := q.store.Claim(ctx, p)
	if err == nil && len(res.Runs) > 0 {
		q.metrics.Batch("claim", len(res.Runs))
	}
	return res, err
}
