package store

import (
	"context"
	"errors"
)

// ErrHeld marks an error of a write that has done nothing, since a transaction of
// somebody else holds what it needs: a key that an application enqueues and has not
// committed, a topic that it publishes to. Test with errors.Is.
var ErrHeld = errors.New("held up by another transaction")

type briskKey struct{}

// Brisk has a write with ctx answer ErrHeld soon (after a second, say) where it
// would wait for another transaction as long as ctx lets it. It is for a write whose
// entries have only been brought together: one that is held up holds up the others.
// A store without such transactions need not look.
func Brisk(ctx context.Context) context.Context { return context.WithValue(ctx, briskKey{}, true) }

// IsBrisk reports whether ctx is of Brisk.
func IsBrisk(ctx context.Context) bool { return ctx.Value(briskKey{}) != nil }
