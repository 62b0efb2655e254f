package abitest

import (
	"context"
	"errors"
	"time"

	"github.com/jobrunner/runner/abi"
)

// Settle ends the attempt as an engine does: it moves the clock to when the run
// is due again and says whether it is. A wait and a rate limit leave the
// attempt's number as it is; a failure with attempts left raises it.
func (m *Memory) Settle(out abi.Outcome) (again bool) {
	var suspended *Suspended
	var retry *StepRetry
	switch {
	case out.Kind == abi.Done:
		return false
	case out.Kind == abi.Stopped && errors.As(out.Err, &suspended):
		m.mu.Lock()
		if due := m.due(suspended); due.After(m.clock) {
			m.clock = due
		}
		m.mu.Unlock()
		if suspended.For == abi.FuncInvoke {
			m.finishChildren()
		}
		return true
	case out.Kind == abi.Stopped && errors.As(out.Err, &retry):
		return m.again(retry.Failure) || m.unwinds(out)
	case out.Kind == abi.Failed && m.ended():
		return false
	case out.Kind == abi.Failed, out.Kind == abi.Crashed:
		return m.again(out.Failure) || m.unwinds(out)
	}
	return false
}

// again prepares a further attempt after f, if one is left. The backoff is
// exponential from one second, without jitter.
func (m *Memory) again(f abi.Failure) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.retries(f) {
		return false
	}
	if f.Kind == abi.FailRateLimited {
		m.clock = m.clock.Add(f.RetryAfter)
		return true
	}
	delay := time.Second << min(m.attempt-1, 12)
	if f.Kind == abi.FailRetryAfter {
		delay = f.RetryAfter
	}
	m.clock = m.clock.Add(delay)
	m.attempt++
	return true
}

// maxRuns ends a Drive whose handler never gets anywhere, such as one that is
// rate limited for ever.
const maxRuns = 1000

// Drive runs attempts of handler on g until m's run is settled, and returns how
// the last ended.
func Drive(ctx context.Context, g abi.Guest, m *Memory, handler string, input []byte) abi.Outcome {
	for {
		out := g.Run(ctx, m.Attempt(handler, input), m)
		if !m.Settle(out) || m.Runs() >= maxRuns {
			return m.final(out)
		}
	}
}
