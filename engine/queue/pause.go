package queue

import (
	"context"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

// maxReason bounds why something was paused, in bytes.
const maxReason = 1 << 10

// SetPause pauses a queue, a job or a tenant, or resumes it, and answers whether
// that changed anything. It holds in every process and through every restart,
// until it is taken back. Who does it is WithActor's.
//
// Errors: X_INVALID for a kind or a name that is none.
func (q *Queue) SetPause(ctx context.Context, p store.PauseParams) (changed bool, err error) {
	most := job.MaxTenant
	if p.Kind != store.PauseTenant {
		most = abi.MaxName
	}
	if err := job.CheckText(job.CodeInvalid, "name of the "+string(p.Kind), p.Name, most); err != nil {
		return false, err
	}
	if err := job.CheckText(job.CodeInvalid, "reason", p.Reason, maxReason); err != nil {
		return false, err
	}
	if p.By == "" {
		p.By = Actor(ctx)
	}
	return q.store.SetPause(ctx, p)
}

// Pauses lists what is or was paused, by kind and name.
func (q *Queue) Pauses(ctx context.Context) ([]store.Pause, error) { return q.store.ListPauses(ctx) }
