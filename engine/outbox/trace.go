package outbox

import (
	"time"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/queue"
	"github.com/jobrunner/runner/engine/store"
	"github.com/jobrunner/runner/engine/trace"
)

// beginSpans begins the span of each row's way through the outbox, from when it was
// staged, under whoever staged it; its run will be under that. A row that is
// published again has another.
func (r *Relay) beginSpans(rows []store.Staged, requests []queue.Request) []trace.Span {
	spans, now := make([]trace.Span, len(requests)), time.Now()
	for i := range requests {
		spans[i] = r.cfg.Tracer.Start(trace.Params{
			Name: "outbox " + requests[i].Job, Kind: trace.Producer, Parent: requests[i].Traceparent, At: now.Add(-max(rows[i].Age, 0)),
			Attrs: []trace.Attr{{Key: "runner.outbox", Text: r.cfg.Name}, {Key: "runner.run", Text: requests[i].ID}},
		})
		requests[i].Traceparent = spans[i].Traceparent()
	}
	return spans
}

// endSpans ends them with the verdicts that there are; err is why there are no more.
func endSpans(spans []trace.Span, verdicts []queue.Verdict, err error) {
	for i, span := range spans {
		end := trace.EndParams{Failed: true, Code: abi.CodeOf(err)}
		if i < len(verdicts) {
			end.Failed, end.Code = verdicts[i].Refused != nil, abi.CodeOf(verdicts[i].Refused)
		}
		span.End(end)
	}
}
