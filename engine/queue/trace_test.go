package queue_test

import (
	"context"
	"testing"

	"github.com/jobrunner/runner/engine/internal/enginetest"
	"github.com/jobrunner/runner/engine/manifest"
	"github.com/jobrunner/runner/engine/queue"
	"github.com/jobrunner/runner/engine/store"
)

// nowhere takes runs and keeps none.
type nowhere struct{ store.Store }

func (nowhere) Enqueue(_ context.Context, batch []store.EnqueueParams) ([]store.EnqueueResult, error) {
	out := make([]store.EnqueueResult, len(batch))
	for i := range batch {
		out[i].ID = batch[i].ID
	}
	return out, nil
}

// A batch costs as many allocations without a tracer as its requests do: what a
// tracer would need is not made. (TR3)
func TestAnEnqueueWithoutATracerAllocatesNothingForIt(t *testing.T) {
	m := enginetest.Serve(&enginetest.Guest{Name: "q", Handlers: map[string]enginetest.Handler{"free": nil}}, nil).Manifest
	allocs := func(tracer *enginetest.Tracer) float64 {
		cfg := queue.Config{Store: nowhere{enginetest.Memory(t)}, Manifest: func() *manifest.Manifest { return m }}
		if tracer != nil {
			cfg.Tracer = tracer
		}
		q := queue.New(cfg)
		insert := queue.Insert(nowhere{}.Enqueue)
		one := []queue.Request{{Job: "free"}}
		return testing.AllocsPerRun(100, func() {
			if _, err := q.EnqueueThrough(t.Context(), one, insert); err != nil {
				t.Fatal(err)
			}
		})
	}
	off, on := allocs(nil), allocs(&enginetest.Tracer{})
	if off > 10 || on <= off {
		t.Errorf("%v allocations without a tracer, %v with one", off, on)
	}
}
