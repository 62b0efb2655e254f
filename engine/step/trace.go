package step

import (
	"time"

	"github.com/jobrunner/runner/engine/trace"
)

// beginSpan begins the span of the body of a step or of its undoing; nil without a
// tracer.
func (a *Attempt) beginSpan(kind, name string) trace.Span {
	if a.p.Tracer == nil {
		return nil
	}
	return a.p.Tracer.Start(trace.Params{Name: kind, Parent: a.p.Traceparent, Attrs: []trace.Attr{{Key: "runner.step", Text: name}}})
}

// cameThrough tells of a sleep or a wait that the run has just come through: it is the last
// of its records, and its attempt goes on from there. It stands beside the
// attempts, under what enqueued the run.
func (a *Attempt) cameThrough(kind string, r *record, end time.Time) {
	if a.p.Tracer == nil || a.unvisited > 0 || r.StartedAt.IsZero() || end.Before(r.StartedAt) {
		return
	}
	trace.Over(a.p.Tracer, trace.Params{
		Name: kind, Parent: a.p.Run.Traceparent, At: r.StartedAt,
		Attrs: []trace.Attr{{Key: "runner.run", Text: a.p.Run.ID}, {Key: "runner.step", Text: r.Name}},
	}, end)
}

// asked begins the span of what a guest enqueues, under the step or the attempt
// that asks; its runs are under it.
func (a *Attempt) asked(kind string, runs int) (traceparent string, span trace.Span) {
	traceparent = a.traceparent()
	if a.p.Tracer == nil {
		return traceparent, nil
	}
	span = a.p.Tracer.Start(trace.Params{Name: kind, Kind: trace.Producer, Parent: traceparent, Attrs: []trace.Attr{{Key: "runner.runs", Number: int64(runs)}}})
	return span.Traceparent(), span
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
