package store

import (
	"encoding/json"
	"fmt"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/internal/runid"
	"github.com/jobrunner/runner/engine/job"
)

// What every store checks of its arguments, before it writes.

// Invalid is X_INVALID with a message.
func Invalid(format string, args ...any) error {
	return &abi.Error{Code: job.CodeInvalid, Message: fmt.Sprintf(format, args...)}
}

// NoID says that an id, of what is named, is none.
func NoID(what, id string) error {
	return &abi.Error{Code: job.CodeIDInvalid, Message: fmt.Sprintf("the %s %s is not a lower-case UUID", what, job.Quote(id))}
}

// CheckIDs checks the ids of entries. Errors: X_ID_INVALID.
func CheckIDs(batch []EnqueueParams) error {
	for i := range batch {
		p := &batch[i]
		if _, ok := runid.Parse(p.ID); !ok {
			return NoID("id", p.ID)
		}
		if _, ok := runid.Parse(p.Parent); !ok && p.Parent != "" {
			return NoID("parent", p.Parent)
		}
	}
	return nil
}

// CheckEvents checks what is to be published. Errors: X_ID_INVALID, X_INVALID.
func CheckEvents(batch []EventParams) error {
	for i := range batch {
		p := &batch[i]
		if _, ok := runid.Parse(p.ID); !ok {
			return NoID("id", p.ID)
		}
		if _, ok := runid.Parse(p.Run); !ok && p.Run != "" {
			return NoID("run", p.Run)
		}
		if p.Topic == "" || p.Keep <= 0 {
			return Invalid("an event of topic %q, kept for %v", p.Topic, p.Keep)
		}
	}
	return nil
}

// Check refuses a record that no history can have. Errors: X_INVALID, X_ID_INVALID.
func (p *StepParams) Check() error {
	if _, err := job.ParseStepStatus(string(p.Status)); err != nil {
		return Invalid("step %s: %v", p.Name, err)
	}
	if (p.Wait != nil) != (p.Status == job.StepWaiting && p.Kind == job.KindWait) {
		return Invalid("step %s is a %s that is %s, and waits for %+v", p.Name, p.Kind, p.Status, p.Wait)
	}
	if err := CheckEvents(p.Publish); err != nil {
		return err
	}
	return CheckIDs(p.Enqueue)
}

// Named is the output of a step that enqueued, with OutputEnqueued.
func (p *StepParams) Named(results []EnqueueResult) ([]byte, error) {
	ids := make([]abi.EnqueueResult, len(results))
	for i, e := range results {
		ids[i] = abi.EnqueueResult{ID: e.ID, Deduped: e.Deduped && e.ID != p.Enqueue[i].ID}
	}
	return json.Marshal(ids)
}

// Check refuses what no attempt can end as. Errors: X_INVALID, X_ID_INVALID.
func (p *SettleParams) Check() error {
	if !p.Outcome.Settles(p.To) {
		return Invalid("an attempt of run %s cannot be settled as %q to %q", p.Ref.RunID, p.Outcome, p.To)
	}
	if p.Step != nil {
		if err := p.Step.Check(); err != nil {
			return err
		}
	}
	if p.Invoke != nil {
		if p.To != job.Suspended || p.Step != nil || p.Invoke.Most < 0 {
			return Invalid("run %s invokes and goes to %s", p.Ref.RunID, p.To)
		}
		for i := range p.Invoke.Start {
			if err := CheckIDs([]EnqueueParams{p.Invoke.Start[i].Run}); err != nil {
				return err
			}
		}
	}
	return CheckIDs(p.Enqueue)
}

// Check refuses a requeue that is none. Errors: X_INVALID.
func (p RequeueParams) Check() error {
	if p.Attempts < 0 {
		return Invalid("requeue with %d attempts", p.Attempts)
	}
	return nil
}

// Check refuses bounds below none. Errors: X_INVALID.
func (p ReclaimParams) Check() error {
	if p.Limit < 0 || p.MaxOrphans < 0 {
		return Invalid("reclaim with limit %d and at most %d orphans", p.Limit, p.MaxOrphans)
	}
	return nil
}

// Check refuses a pause of nothing. Errors: X_INVALID.
func (p PauseParams) Check() error {
	switch p.Kind {
	case PauseQueue, PauseJob, PauseTenant:
	default:
		return &abi.Error{Code: job.CodeInvalid, Message: fmt.Sprintf("a pause of %s", job.Quote(string(p.Kind))), Fix: "a queue, a job or a tenant can be paused"}
	}
	if p.Name == "" && p.Kind != PauseTenant {
		return &abi.Error{Code: job.CodeInvalid, Message: fmt.Sprintf("a pause of a %s without a name", p.Kind), Fix: "name it"}
	}
	return nil
}

// Check refuses an ageing of nothing. Errors: X_INVALID.
func (p AgeParams) Check() error {
	if p.Limit < 0 || p.Waited <= 0 {
		return Invalid("ageing of %d runs that waited %s", p.Limit, p.Waited)
	}
	return nil
}
