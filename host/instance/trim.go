package instance

import (
	"context"
	"time"
)

// TrimResult is what a Trim did.
type TrimResult struct {
	Trimmed int // instances whose private pages and stacks were given back
	Closed  int // instances closed
}

// Trim gives back what instances idle at now keep: after TrimAfter their
// private pages and native stacks, after CloseAfter the rest. Whoever owns the
// pool calls it every few seconds.
func (p *Pool) Trim(now time.Time) TrimResult {
	var res TrimResult
	var closing, trimming []*Instance
	p.mu.Lock()
	for _, t := range p.templates {
		n := 0 // t.idle is ordered by idleSince
		for n < len(t.idle) && now.Sub(t.idle[n].idleSince) >= p.cfg.TrimAfter {
			n++
		}
		keep := t.idle[:0]
		for i, in := range t.idle {
			switch {
			case now.Sub(in.idleSince) >= p.cfg.CloseAfter:
				closing = append(closing, in)
			case i < n && !in.trimmed:
				trimming = append(trimming, in)
			default:
				keep = append(keep, in)
				continue
			}
			p.idleBytes -= in.bytes()
			t.out++
		}
		clear(t.idle[len(keep):])
		t.idle = keep
	}
	p.mu.Unlock()

	for _, in := range closing {
		in.close(context.Background())
		in.t.returned()
		res.Closed++
	}
	for _, in := range trimming {
		if err := in.trim(); err != nil {
			p.discards.Add(1)
			in.close(context.Background())
			in.t.returned()
			continue
		}
		in.t.putBack(in)
		res.Trimmed++
	}
	return res
}

// putBack makes a trimmed instance idle again, as long as it was before.
func (t *Template) putBack(in *Instance) {
	p := t.pool
	p.mu.Lock()
	if t.closed {
		p.mu.Unlock()
		in.close(context.Background())
		t.returned()
		return
	}
	t.out--
	in.trimmed = true
	at := 0
	for at < len(t.idle) && t.idle[at].idleSince.Before(in.idleSince) {
		at++
	}
	t.idle = append(t.idle, nil)
	copy(t.idle[at+1:], t.idle[at:])
	t.idle[at] = in
	p.idleBytes += in.bytes()
	p.mu.Unlock()
}
