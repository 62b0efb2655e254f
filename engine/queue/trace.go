package queue

import (
	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/store"
	"github.com/jobrunner/runner/engine/trace"
)

// beginSpan begins the span of an enqueue, under which its runs will be; nil
// without a tracer. A request of a batch that names another parent than the first
// stays under that.
func (q *Queue) beginSpan(prepared []store.EnqueueParams) trace.Span {
	if q.tracer == nil {
		return nil
	}
	first := &prepared[0]
	p := trace.Params{Name: "enqueue " + first.Job, Kind: trace.Producer, Parent: first.Traceparent}
	if len(prepared) > 1 {
		p.Name, p.Attrs = "enqueue", []trace.Attr{{Key: "runner.runs", Number: int64(len(prepared))}}
	}
	span, parent := q.tracer.Start(p), first.Traceparent
	for i := range prepared {
		if prepared[i].Traceparent == parent {
			prepared[i].Traceparent = span.Traceparent()
		}
	}
	return span
}

// endSpan ends it with what it led to.
func endSpan(span trace.Span, results []Result, err error) {
	if span == nil {
		return
	}
	end := trace.EndParams{Failed: err != nil, Code: abi.CodeOf(err)}
	if len(results) == 1 && err == nil {
		end.Attrs = []trace.Attr{{Key: "runner.run", Text: results[0].ID}}
		if results[0].Deduped {
			end.Attrs = append(end.Attrs, trace.Attr{Key: "runner.deduped", Number: 1})
		}
	}
	span.End(end)
}
