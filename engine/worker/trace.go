package worker

import (
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/trace"
)

// beginSpan begins the attempt's span; nil without a tracer. What the attempt
// enqueues, and its guest, are under it; the run stays under what enqueued it, so
// that the next attempt stands beside this one.
func (a *attempt) beginSpan() trace.Span {
	a.traceparent = a.run.Traceparent
	if a.w.cfg.Tracer == nil {
		return nil
	}
	r := a.run
	attrs := []trace.Attr{
		{Key: "runner.run", Text: r.ID}, {Key: "runner.job", Text: r.Job}, {Key: "runner.queue", Text: r.Queue},
		{Key: "runner.attempt", Number: int64(r.Attempt)}, {Key: "runner.worker", Text: a.session.id},
	}
	if r.Tenant != "" {
		attrs = append(attrs, trace.Attr{Key: "runner.tenant", Text: r.Tenant})
	}
	span := a.w.cfg.Tracer.Start(trace.Params{Name: "attempt " + r.Job, Kind: trace.Consumer, Parent: r.Traceparent, Attrs: attrs})
	a.traceparent = span.Traceparent()
	return span
}

// endSpan ends it with the verdict, when the guest has ended.
func (a *attempt) endSpan(span trace.Span, v verdict) {
	if span == nil {
		return
	}
	if m := a.memory.Load(); m != nil {
		m.EndSpan()
	}
	p := trace.EndParams{Attrs: []trace.Attr{{Key: "runner.outcome", Text: string(v.params.Outcome)}}}
	switch v.params.Outcome {
	case job.Completed, job.Slept:
	default:
		if p.Failed = v.params.Error != nil; p.Failed {
			p.Code = v.params.Error.Code
		}
	}
	if v.abandon {
		p.Attrs[0].Text = "abandoned"
	}
	span.End(p)
}
