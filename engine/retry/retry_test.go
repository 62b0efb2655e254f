package retry

import (
	"math"
	"math/rand/v2"
	"testing"
	"testing/quick"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/job"
)

// plain is the default policy without jitter.
func plain(change func(*job.RetryPolicy)) job.RetryPolicy {
	p := job.DefaultRetry
	p.Jitter = false
	if change != nil {
		change(&p)
	}
	return p
}

func constant(r float64) func() float64 { return func() float64 { return r } }

const almostOne = 1 - 0x1p-53

func TestR1DefaultPolicy(t *testing.T) {
	want := job.RetryPolicy{
		Attempts: 3, Backoff: job.BackoffExponential, Delay: time.Second,
		MaxDelay: time.Hour, Jitter: true, DeadLetter: true,
	}
	if d := cmp.Diff(want, job.DefaultRetry); d != "" {
		t.Error(d)
	}
}

func TestR2Curves(t *testing.T) {
	for _, c := range []struct {
		shape job.Backoff
		most  time.Duration
		want  []time.Duration
	}{
		{job.BackoffFixed, time.Hour, []time.Duration{2 * time.Second, 2 * time.Second, 2 * time.Second, 2 * time.Second}},
		{job.BackoffLinear, time.Hour, []time.Duration{2 * time.Second, 4 * time.Second, 6 * time.Second, 8 * time.Second}},
		{job.BackoffLinear, 5 * time.Second, []time.Duration{2 * time.Second, 4 * time.Second, 5 * time.Second, 5 * time.Second}},
		{job.BackoffExponential, time.Hour, []time.Duration{2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second}},
		{job.BackoffExponential, 9 * time.Second, []time.Duration{2 * time.Second, 4 * time.Second, 8 * time.Second, 9 * time.Second}},
	} {
		p := plain(func(p *job.RetryPolicy) { p.Backoff, p.Delay, p.MaxDelay = c.shape, 2*time.Second, c.most })
		for i, want := range c.want {
			if got := Backoff(p, i+1); got != want {
				t.Errorf("%s, at most %s: after attempt %d a wait of %s, want %s", c.shape, c.most, i+1, got, want)
			}
		}
	}
}

func TestR3ClampComesBeforeJitterAndJitterIsEqual(t *testing.T) {
	p := plain(func(p *job.RetryPolicy) {
		p.Delay, p.MaxDelay, p.Attempts, p.Jitter = time.Second, 10*time.Second, 100, true
	})
	for _, c := range []struct {
		attempt int
		r       float64
		want    time.Duration
	}{
		{1, 0, 500 * time.Millisecond},
		{1, 0.5, 750 * time.Millisecond},
		{20, 0, 5 * time.Second}, // a clamped curve keeps its floor of a half
		{20, 0.5, 7500 * time.Millisecond},
		{20, almostOne, 10*time.Second - 1},
	} {
		got := Next(Params{Policy: p, Attempt: c.attempt, Rand: constant(c.r)})
		if got.Delay != c.want {
			t.Errorf("attempt %d, draw %v: wait %s, want %s", c.attempt, c.r, got.Delay, c.want)
		}
	}
}

func TestR6KindsDecideTogetherWithTheAttempt(t *testing.T) {
	keep := plain(func(p *job.RetryPolicy) { p.MaxDelay = time.Minute })
	drop := keep
	drop.DeadLetter = false
	dead := Decision{Outcome: job.DeadLettered, To: job.Dead, Counted: true}
	with := func(d Decision, why StopReason) Decision { d.Stop = why; return d }
	for name, c := range map[string]struct {
		p    Params
		want Decision
	}{
		"retry": {
			Params{Policy: keep, Attempt: 1},
			Decision{Outcome: job.Retried, To: job.Delayed, Delay: time.Second, Counted: true}},
		"retry after": {
			Params{Policy: keep, Attempt: 1, Kind: abi.FailRetryAfter, Wait: 7 * time.Second},
			Decision{Outcome: job.Retried, To: job.Delayed, Delay: 7 * time.Second, Counted: true}},
		"retry after, clamped": {
			Params{Policy: keep, Attempt: 1, Kind: abi.FailRetryAfter, Wait: time.Hour},
			Decision{Outcome: job.Retried, To: job.Delayed, Delay: time.Minute, Counted: true}},
		"retry after nothing": {
			Params{Policy: keep, Attempt: 1, Kind: abi.FailRetryAfter},
			Decision{Outcome: job.Retried, To: job.Ready, Counted: true}},
		"terminal": {
			Params{Policy: keep, Attempt: 1, Kind: abi.FailTerminal}, with(dead, Terminal)},
		"terminal, no dead letters": {
			Params{Policy: drop, Attempt: 1, Kind: abi.FailTerminal},
			Decision{Outcome: job.Dropped, To: job.Failed, Counted: true, Stop: Terminal}},
		"last attempt": {
			Params{Policy: keep, Attempt: 3}, with(dead, NoneLeft)},
		"last attempt, no dead letters": {
			Params{Policy: drop, Attempt: 3},
			Decision{Outcome: job.Dropped, To: job.Failed, Counted: true, Stop: NoneLeft}},
	} {
		t.Run(name, func(t *testing.T) {
			if d := cmp.Diff(c.want, Next(c.p)); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestR7OnlyDeclaredCodesAreClassified(t *testing.T) {
	if k, ok := Classify(abi.CodeABIViolation); !ok || k != abi.FailTerminal {
		t.Errorf("an ABI violation is %v, %v", k, ok)
	}
	for _, code := range []string{"", "X_CARD_DECLINED", abi.CodeGuestTrap} {
		if k, ok := Classify(code); ok || k != abi.FailRetry {
			t.Errorf("%q is classified as %v", code, k)
		}
	}
}

func TestR8CeilingOutranksEveryKindButTerminal(t *testing.T) {
	p := plain(nil)
	for kind, want := range map[abi.FailureKind]StopReason{
		abi.FailRetry: NoneLeft, abi.FailRetryAfter: NoneLeft, abi.FailTerminal: Terminal,
	} {
		if got := Next(Params{Policy: p, Attempt: 3, Kind: kind, Wait: time.Second}); got.Stop != want {
			t.Errorf("kind %d at the last attempt stops for %q, want %q", kind, got.Stop, want)
		}
	}
}

func TestR8CeilingIsTheRows(t *testing.T) {
	p := plain(nil)
	if got := Next(Params{Policy: p, Attempt: 3, MaxAttempts: 4}); got.Stop != NotStopped {
		t.Errorf("a raised row stops: %+v", got)
	}
	if got := Next(Params{Policy: p, Attempt: 2, MaxAttempts: 2}); got.Stop != NoneLeft {
		t.Errorf("a lowered row goes on: %+v", got)
	}
}

func TestR10AnUnusableWaitFallsBackToThePolicy(t *testing.T) {
	got := Next(Params{Policy: plain(nil), Attempt: 2, Kind: abi.FailRetryAfter, Wait: -1})
	if want := 2 * time.Second; got.Delay != want {
		t.Errorf("wait %s, want %s", got.Delay, want)
	}
}

func TestR11RateLimitedIsAFloorNeverClampedWithASpread(t *testing.T) {
	p := plain(func(p *job.RetryPolicy) { p.MaxDelay = 10 * time.Second })
	limited := func(wait time.Duration, r float64) Decision {
		return Next(Params{Policy: p, Attempt: 3, Kind: abi.FailRateLimited, Wait: wait, Rand: constant(r)})
	}
	for _, c := range []struct {
		wait time.Duration
		r    float64
		want time.Duration
	}{
		{time.Minute, 0, time.Minute},
		{time.Minute, 0.5, 65 * time.Second}, // spread below MaxDelay, not below half the wait
		{4 * time.Second, 0.5, 5 * time.Second},
		{0, 0, 4 * time.Second},  // not stated: the policy's backoff
		{-1, 0, 4 * time.Second}, // not usable: likewise
	} {
		got := limited(c.wait, c.r)
		want := Decision{Outcome: job.Deferred, To: job.Delayed, Delay: c.want}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("wait %s, draw %v: %s", c.wait, c.r, d)
		}
	}
}

func TestR11ARateLimitWithoutAnyWaitDoesNotSpin(t *testing.T) {
	p := plain(func(p *job.RetryPolicy) { p.Delay = 0 })
	got := Next(Params{Policy: p, Attempt: 1, Kind: abi.FailRateLimited})
	if got.Delay < time.Second {
		t.Errorf("an uncounted attempt comes back after %s", got.Delay)
	}
}

func TestR13EngineCodes(t *testing.T) {
	for code, want := range map[string]abi.FailureKind{
		job.CodeStepDuplicate: abi.FailTerminal, job.CodeReplayDiverged: abi.FailTerminal, job.CodeCompensationUnknown: abi.FailTerminal,
		job.CodeInputInvalid: abi.FailTerminal, job.CodeTenantMismatch: abi.FailTerminal, job.CodeStepOutcomeUnknown: abi.FailTerminal,
		job.CodeTimeout: abi.FailRetry, job.CodeStepTimeout: abi.FailRetry,
		job.CodeDatabaseUnavailable: abi.FailRetry, job.CodeDatabaseBusy: abi.FailRetry, job.CodeDraining: abi.FailRetry,
	} {
		if got, ok := Classify(code); !ok || got != want {
			t.Errorf("%s is %v, %v; want %v", code, got, ok, want)
		}
	}
	if _, ok := Classify(job.CodeLeaseLost); ok {
		t.Error("a lost lease is classified")
	}
}

func TestR16AnUnknownKindCountsAttempts(t *testing.T) {
	got := Next(Params{Policy: plain(nil), Attempt: 1, Kind: 99})
	if got.Outcome != job.Retried || got.Delay != time.Second {
		t.Errorf("got %+v", got)
	}
}

// Whatever the numbers are, a decision is one that a store accepts.
func TestEveryDecisionIsLegal(t *testing.T) {
	shapes := []job.Backoff{job.BackoffFixed, job.BackoffLinear, job.BackoffExponential, "", "unknown"}
	check := func(attempts, attempt, max int, delay, most, wait int64, shape, kind uint8, jitter, dead bool, r float64) bool {
		p := job.RetryPolicy{
			Attempts: attempts, Backoff: shapes[int(shape)%len(shapes)], Delay: time.Duration(delay),
			MaxDelay: time.Duration(most), Jitter: jitter, DeadLetter: dead,
		}
		d := Next(Params{Policy: p, Attempt: attempt, MaxAttempts: max, Kind: abi.FailureKind(kind % 6), Wait: time.Duration(wait), Rand: constant(r)})
		switch {
		case !d.Outcome.Settles(d.To), d.Counted != d.Outcome.Counted():
			return false
		case d.Delay < 0, (d.Delay > 0) != (d.To == job.Delayed):
			return false
		case (d.Stop == NotStopped) == d.To.Terminal():
			return false
		case d.Outcome == job.Retried && d.Delay > maxOf(most, 0):
			return false
		case d.Outcome == job.Deferred && wait > 0 && d.Delay < time.Duration(wait):
			return false
		}
		return true
	}
	if err := quick.Check(check, &quick.Config{MaxCount: 20_000}); err != nil {
		t.Error(err)
	}
}

func maxOf(a, b int64) time.Duration { return time.Duration(max(a, b)) }

func TestBackoffNeverFallsAsAttemptsRise(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		p := plain(func(p *job.RetryPolicy) {
			p.Backoff = []job.Backoff{job.BackoffFixed, job.BackoffLinear, job.BackoffExponential}[rng.IntN(3)]
			p.Delay = time.Duration(rng.Int64N(math.MaxInt64))>>rng.IntN(63) + 1
			p.MaxDelay = time.Duration(rng.Int64N(math.MaxInt64)) >> rng.IntN(63)
		})
		last := time.Duration(0)
		for _, n := range []int{-1, 0, 1, 2, 3, 10, 62, 63, 64, 65, 1000, math.MaxInt32, math.MaxInt} {
			d := Backoff(p, n)
			if d < last || d > p.MaxDelay {
				t.Fatalf("%+v: attempt %d waits %d after %d", p, n, d, last)
			}
			last = d
		}
	}
}

func TestBackoffOfHugeAttemptsEndsAtOnce(t *testing.T) {
	p := plain(func(p *job.RetryPolicy) { p.Delay, p.MaxDelay = 1, math.MaxInt64 })
	if got := Backoff(p, math.MaxInt); got != math.MaxInt64 {
		t.Errorf("got %d", got)
	}
	p.Delay = 0
	if got := Backoff(p, math.MaxInt); got != 0 {
		t.Errorf("no delay grew to %d", got)
	}
}

func TestRandOutsideItsRangeIsKeptInside(t *testing.T) {
	p := job.DefaultRetry
	for _, r := range []float64{-1, math.NaN(), 1, 2, math.Inf(1)} {
		d := Next(Params{Policy: p, Attempt: 1, Rand: constant(r)}).Delay
		if d < 500*time.Millisecond || d > time.Second {
			t.Errorf("draw %v waits %s", r, d)
		}
	}
}

func BenchmarkNext(b *testing.B) {
	p := Params{Policy: job.DefaultRetry, Attempt: 2, Rand: rand.Float64}
	for b.Loop() {
		Next(p)
	}
}
