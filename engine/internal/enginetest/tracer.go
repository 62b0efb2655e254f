package enginetest

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/jobrunner/runner/engine/trace"
)

// Tracer keeps the spans that it is told of.
type Tracer struct {
	mu    sync.Mutex
	spans []*Span
}

// Span is one of them.
type Span struct {
	trace.Params
	ID     string // its traceparent
	Ended  bool
	Ending trace.EndParams
	tracer *Tracer
}

// Start implements trace.Tracer.
func (t *Tracer) Start(p trace.Params) trace.Span {
	t.mu.Lock()
	defer t.mu.Unlock()
	of := fmt.Sprintf("%032x", len(t.spans)+1)
	if parts := strings.Split(p.Parent, "-"); len(parts) == 4 {
		of = parts[1]
	}
	s := &Span{Params: p, ID: fmt.Sprintf("00-%s-%016x-01", of, len(t.spans)+1), tracer: t}
	t.spans = append(t.spans, s)
	return s
}

// Traceparent implements trace.Span.
func (s *Span) Traceparent() string { return s.ID }

// End implements trace.Span.
func (s *Span) End(p trace.EndParams) {
	s.tracer.mu.Lock()
	defer s.tracer.mu.Unlock()
	if s.Ended {
		panic("the span " + s.Name + " ended twice")
	}
	if p.At.IsZero() {
		p.At = time.Now()
	}
	s.Ended, s.Ending = true, p
}

// Named are the spans of that name, in the order in which they began.
func (t *Tracer) Named(name string) (out []Span) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.spans {
		if s.Name == name {
			out = append(out, *s)
		}
	}
	return out
}

// Open are the names of spans that did not end.
func (t *Tracer) Open() (names []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.spans {
		if !s.Ended {
			names = append(names, s.Name)
		}
	}
	return names
}
