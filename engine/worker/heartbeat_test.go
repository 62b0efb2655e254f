package worker

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jobrunner/runner/engine/store"
)

// cut answers a renewal when its caller has gone.
type cut struct{ store.Store }

func (cut) Renew(ctx context.Context, _ store.RenewParams) (store.RenewResult, error) {
	<-ctx.Done()
	return store.RenewResult{}, ctx.Err()
}

// A session that was lost while it was renewed is no renewal that failed, whichever
// is heard of first.
func TestARenewalThatItsSessionsEndCutOffHasNotFailed(t *testing.T) {
	w := &Worker{cfg: Config{Store: cut{}, Lease: time.Hour}}
	for range 1000 {
		s := &session{stop: make(chan struct{})}
		s.ctx, s.end = context.WithCancelCause(t.Context())
		s.end(errLeft)
		if _, err := w.renew(s, store.RenewParams{}, time.Hour); !errors.Is(err, errStopped) {
			t.Fatalf("the renewal answers %v", err)
		}
	}
}
