// Package trace is what the engine tells a tracer of its work: spans of enqueues,
// of fires, of a row's way through an outbox, of attempts and of what happens
// within and between them, under the trace of whoever asked for the run. It knows
// no tracing library, and an engine without a Tracer pays a comparison.
package trace

import "time"

// Tracer makes spans. It is safe for concurrent use and does not block.
type Tracer interface {
	Start(p Params) Span
}

// Params begin a span.
type Params struct {
	Name string // few of them: no ids in it
	Kind Kind
	// Parent is the W3C traceparent of the span above; what is none begins a trace.
	Parent string
	At     time.Time // zero is now
	Attrs  []Attr
}

// Kind is which side of a queue a span is on.
type Kind int

const (
	Internal Kind = iota
	Consumer      // works what was enqueued
	Producer      // enqueues
)

// Attr is a fact about a span: Text, or Number without one. It is no payload.
type Attr struct {
	Key    string
	Text   string
	Number int64
}

// Span is a span that goes on.
type Span interface {
	// Traceparent names it to what happens under it.
	Traceparent() string
	// End ends it, once.
	End(p EndParams)
}

// EndParams say how a span ended.
type EndParams struct {
	At     time.Time // zero is now
	Failed bool
	Code   string // of the failure; its texts go nowhere
	Attrs  []Attr
}
