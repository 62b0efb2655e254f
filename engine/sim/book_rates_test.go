package sim_test

import (
	"slices"
	"strings"
	"time"

	"github.com/jobrunner/runner/engine/manifest"
)

// ratesOf are the rates that the versions have of a job or a queue, by version.
func (b *book) ratesOf(of string) (out []manifest.Rate) {
	for v := int64(1); v <= versions; v++ {
		m := b.w.manifests[v]
		var r *manifest.Rate
		if j := m.Jobs[after(of, "job ")]; j != nil {
			r = j.Rate
		} else if q, is := m.Queues[after(of, "queue ")]; is {
			r = q.Rate
		}
		if r == nil {
			return nil
		}
		out = append(out, *r)
	}
	return out
}

// after is the word of s after a prefix.
func after(s, prefix string) string {
	rest, is := strings.CutPrefix(s, prefix)
	if !is {
		return ""
	}
	word, _, _ := strings.Cut(rest, " ")
	return word
}

// most is how many starts there may be of something in a time: what the greater of
// the versions' rates allows. Rates of different periods keep one account, in which
// a start under one does not count as one under the other: then they save up apart.
func most(rates []manifest.Rate, t time.Duration) float64 {
	saved, speed := 0, 0.0
	for i, r := range rates {
		speed = max(speed, float64(r.Limit)/float64(r.Per))
		if i == 0 || r.Per == rates[0].Per {
			saved = max(saved, r.Limit)
		} else {
			saved += r.Limit
		}
	}
	return float64(saved) + speed*float64(t) + 1e-6
}

// spends counts a start, and checks every time that ends with it.
func (b *book) spends(of, tenant, name string) {
	rates := b.ratesOf(of)
	if rates == nil {
		return
	}
	if rates[0].By == "tenant" {
		of += " of " + tenant
	}
	now := b.w.now()
	b.starts[of] = append(b.starts[of], now)
	for i, at := range b.starts[of] {
		if n := len(b.starts[of]) - i; float64(n) > most(rates, now.Sub(at)) {
			b.wrong("%s was claimed as number %d of %s in %v, which the rates %v do not allow", name, n, of, now.Sub(at), rates)
		}
	}
}

// affords reports whether a rate surely allows a start now: that no time which ends
// now would have one too many. Of one that is not the same in all versions that is
// not known, unless nothing was started lately.
func (b *book) affords(of string) bool {
	rates := b.ratesOf(of)
	starts, now := b.starts[of], b.w.now().Add(-5*time.Millisecond) // rates are kept in whole intervals
	one := !slices.ContainsFunc(rates, func(r manifest.Rate) bool { return r != rates[0] })
	for i, at := range starts {
		if one && float64(len(starts)-i+1) > most(rates, now.Sub(at)) {
			return false
		}
		for _, r := range rates {
			if !one && now.Sub(at) < r.Per {
				return false
			}
		}
	}
	return true
}
