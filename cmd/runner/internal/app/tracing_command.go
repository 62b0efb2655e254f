package app

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
)

// Traces are those of a command that ends soon. A nil *Traces sends nothing.
type Traces struct {
	tracing *tracing
	failed  *lastFailure
}

// OpenTraces is nil if the environment asks for no traces. It connects to nothing
// yet. Errors: X_INVALID for variables that this program cannot heed.
func OpenTraces(ctx context.Context, getenv func(string) string) (*Traces, error) {
	failed := &lastFailure{}
	t, err := newTracing(ctx, getenv, failed, otlptracehttp.WithRetry(otlptracehttp.RetryConfig{}))
	if err != nil || t == nil {
		return nil, err
	}
	return &Traces{tracing: t, failed: failed}, nil
}

// Close sends what is left within patience, and answers why something was not.
func (t *Traces) Close(patience time.Duration) error {
	if t == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	err := t.tracing.provider.Shutdown(ctx)
	if failed := t.failed.get(); failed != nil {
		return failed
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("the collector did not answer in %v", patience)
	}
	return err
}

// lastFailure keeps what was heard last.
type lastFailure struct {
	mu  sync.Mutex
	err error
}

// Handle implements otel.ErrorHandler.
func (f *lastFailure) Handle(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}

func (f *lastFailure) get() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}
