package guest

import (
	"fmt"
	"time"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/abi/wire"
)

// EnqueueOption changes how a run is enqueued.
type EnqueueOption func(*abi.EnqueueParams)

// Delay lets the run wait for d.
func Delay(d time.Duration) EnqueueOption {
	return func(p *abi.EnqueueParams) { p.DelayMS = wire.Millis(d) }
}

// At lets the run wait until t.
func At(t time.Time) EnqueueOption { return func(p *abi.EnqueueParams) { p.RunAt = t } }

// Key is the run's idempotency key instead of the one that the manifest makes
// of its input: while a run with that key is live, no second one is made.
func Key(key string) EnqueueOption { return func(p *abi.EnqueueParams) { p.Key = key } }

// Tenant says whom the run works for; it must be what the manifest makes of the
// input.
func Tenant(tenant string) EnqueueOption {
	return func(p *abi.EnqueueParams) { p.Tenant = tenant }
}

// Priority puts the run before others of its queue that have a higher number,
// from -100 to 100, instead of the manifest's.
func Priority(n int) EnqueueOption { return func(p *abi.EnqueueParams) { p.Priority = &n } }

// Enqueue makes a run of a job and returns its id. Inside a step the run exists
// once the step is recorded, and not at all if the step fails; between steps
// it is made once, and every later attempt gets the same id. When a live run
// holds the key already, the id is that run's; EnqueueMany tells.
//
// The error is ErrInvalid for a job that does not exist or an input that its
// schema refuses, ErrLimit for one that is too large.
func (c *Ctx) Enqueue(job string, input any, opts ...EnqueueOption) (string, error) {
	rs, err := c.EnqueueMany(Run{job, input, opts})
	if err != nil {
		return "", err
	}
	return rs[0].ID, nil
}

// Run is what EnqueueMany makes a run of.
type Run struct {
	Job     string
	Input   any
	Options []EnqueueOption
}

// Enqueued is the run that a Run led to.
type Enqueued = abi.EnqueueResult

// EnqueueMany is Enqueue for up to 1,000 runs at once: all of them or none. The
// results are in the order of runs.
func (c *Ctx) EnqueueMany(runs ...Run) ([]Enqueued, error) {
	if len(runs) == 0 {
		return nil, nil
	}
	params := make([]abi.EnqueueParams, len(runs))
	for i, r := range runs {
		var err error
		if params[i], err = r.params(); err != nil {
			return nil, err
		}
	}
	n := c.h.Enqueue(wire.AppendEnqueue(nil, params...))
	if n < 0 {
		return nil, c.refused(abi.FuncEnqueue, n)
	}
	rs, err := wire.ReadEnqueued(c.result(n))
	if err == nil && len(rs) != len(runs) {
		err = fmt.Errorf("%d results for %d runs", len(rs), len(runs))
	}
	if err != nil {
		return nil, Terminal(fmt.Errorf("the host's answer to enqueue cannot be read: %w", err))
	}
	return rs, nil
}

func (r Run) params() (abi.EnqueueParams, error) {
	input, err := encode("the input for job "+r.Job, r.Input)
	if err != nil {
		return abi.EnqueueParams{}, err
	}
	p := abi.EnqueueParams{Job: r.Job, Input: input}
	for _, o := range r.Options {
		o(&p)
	}
	return p, nil
}
