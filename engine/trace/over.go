package trace

import "time"

// Begin begins a span; nil without a tracer.
func Begin(t Tracer, p Params) Span {
	if t == nil {
		return nil
	}
	return t.Start(p)
}

// Over tells of something that began and ended before it was known of, as a wait.
func Over(t Tracer, p Params, end time.Time) {
	if t != nil {
		t.Start(p).End(EndParams{At: end})
	}
}
