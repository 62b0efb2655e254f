// Package loop is the shape of everything in the engine that repeats: a
// function that does one round and says whether it worked, and the rule for
// when the next round begins. It knows neither stores nor runs.
package loop

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"time"
)

// draw is what Uniform answers, if it is not random.
var draw atomic.Pointer[func() float64]

// Uniform is a random number from [0, 1), of which waits are spread.
func Uniform() float64 {
	if f := draw.Load(); f != nil {
		return (*f)()
	}
	return rand.Float64()
}

// Draw has Uniform answer f, until restore is called: for simulations that are
// to be repeated.
func Draw(f func() float64) (restore func()) {
	draw.Store(&f)
	return func() { draw.Store(nil) }
}

// Backoff is a wait that doubles from Floor to Ceiling. The zero value of its
// unexported part is a fresh start. It is not safe for concurrent use.
type Backoff struct {
	Floor   time.Duration
	Ceiling time.Duration
	next    time.Duration
}

// Next is the wait before the next round: Floor first, then twice the last one
// up to Ceiling.
func (b *Backoff) Next() time.Duration {
	d := max(b.next, b.Floor)
	b.next = min(2*d, b.Ceiling)
	return min(d, b.Ceiling)
}

// Reset makes the next wait Floor again.
func (b *Backoff) Reset() { b.next = 0 }

// Jitter spreads d by up to a tenth either way, so that processes started
// together do not stay in step.
func Jitter(d time.Duration) time.Duration {
	spread := int64(d / 5)
	if spread <= 0 {
		return d
	}
	return d - time.Duration(spread/2) + time.Duration(Uniform()*float64(spread+1))
}

// Sleep waits for d or for ctx, and reports whether d has passed.
func Sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// EveryParams describe a repeated round.
type EveryParams struct {
	// Interval is the wait between the end of a round and the next, jittered.
	Interval time.Duration
	// Round does the work once. A round that fails is followed by the same
	// wait as one that worked; Failed is told.
	Round func(context.Context) error
	// Failed hears of an error, and how many rounds in a row have failed, 1 for
	// the first: enough to log the first and then ever fewer.
	Failed func(err error, inARow int)
}

// Every runs rounds until ctx ends; the first begins after one interval. An
// error that ctx's end caused is not reported.
func Every(ctx context.Context, p EveryParams) {
	failures := 0
	for Sleep(ctx, Jitter(p.Interval)) {
		err := p.Round(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			failures = 0
		default:
			failures++
			p.Failed(err, failures)
		}
	}
}

// Loud reports whether the failure number n in a row is worth a log line: the
// first, and then each power of two, so that an outage fills no disk.
func Loud(n int) bool { return n > 0 && n&(n-1) == 0 }
