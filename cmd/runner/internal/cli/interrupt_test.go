package cli

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// A command that waits for a pipe nobody writes to hears no context.
func TestAnInterruptedCommandIsWaitedForAShortWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		began, stopped := time.Now(), false
		stop := func() { stopped = true }
		cancel()
		if err := awaitInterruptible(ctx, stop, make(chan error)); !errors.Is(err, context.Canceled) || !stopped || time.Since(began) != interruptPatience {
			t.Errorf("%v after %v, signals given back: %v", err, time.Since(began), stopped)
		}
		done := make(chan error, 1)
		time.AfterFunc(interruptPatience/2, func() { done <- nil })
		if err := awaitInterruptible(ctx, stop, done); err != nil {
			t.Errorf("a command that ended in time: %v", err)
		}
	})
}
