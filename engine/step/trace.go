package step

import "github.com/jobrunner/runner/engine/trace"

// beginSpan begins the span of a step's body; nil without a tracer.
func (a *Attempt) beginSpan(name string) trace.Span {
	if a.p.Tracer == nil {
		return nil
	}
	return a.p.Tracer.Start(trace.Params{Name: "step", Parent: a.p.Traceparent, Attrs: []trace.Attr{{Key: "runner.step", Text: name}}})
}

// ended ends the open step's span.
func (o *openStep) ended(p trace.EndParams) {
	if o.span != nil {
		o.span.End(p)
		o.span = nil
	}
}

// EndSpan ends what the attempt left open: a step that did not end, or that is to
// be run again.
func (a *Attempt) EndSpan() { a.open.ended(trace.EndParams{Failed: true}) }

// traceparent is what the attempt enqueues under.
func (a *Attempt) traceparent() string {
	if a.open.span != nil {
		return a.open.span.Traceparent()
	}
	if a.p.Traceparent != "" {
		return a.p.Traceparent
	}
	return a.p.Run.Traceparent
}
