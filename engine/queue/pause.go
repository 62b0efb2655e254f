package queue

import (
	"context"
	"fmt"
	"unicode/utf8"

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
	if len(p.Name) > most || !utf8.ValidString(p.Name) || hasNUL(p.Name) {
		return false, invalid("the name of the %s is no text of at most %d bytes", p.Kind, most)
	}
	if len(p.Reason) > maxReason || !utf8.ValidString(p.Reason) || hasNUL(p.Reason) {
		return false, &abi.Error{Code: job.CodeInvalid, Message: fmt.Sprintf("the reason is no text of at most %d bytes", maxReason)}
	}
	if p.By == "" {
		p.By = Actor(ctx)
	}
	return q.store.SetPause(ctx, p)
}

// Pauses lists what is or was paused, by kind and name.
func (q *Queue) Pauses(ctx context.Context) ([]store.Pause, error) { return q.store.ListPauses(ctx) }
