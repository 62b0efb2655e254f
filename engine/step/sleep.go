package step

import (
	"context"
	"time"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

// Sleep answers once d has passed since the run first asked for the sleep of
// that name; until then its error is a *Suspend, whose record carries the wake
// time. A sleep of no length is answered at once. What wakes a run is its due
// time in the store, so a run that is back before its wake time (an operator
// made it due) suspends for the rest.
func (a *Attempt) Sleep(ctx context.Context, name string, d time.Duration) (time.Time, error) {
	if a.open.name != "" {
		return time.Time{}, &abi.Refusal{Code: abi.CodeOutsideStepOnly, Failure: abi.Failure{
			Kind: abi.FailTerminal, Message: "a sleep was asked for inside step \"" + a.open.name + "\"", Fix: "sleep between steps",
		}}
	}
	if d > abi.MaxSleep {
		return time.Time{}, &abi.Refusal{Code: abi.CodeLimit}
	}
	if err := a.enter(ctx, abi.FuncSleep, name); err != nil {
		return time.Time{}, err
	}
	if d <= 0 && a.records[name] == nil {
		return a.clock, nil
	}
	r, err := a.visit(name, job.KindSleep)
	if err != nil {
		return time.Time{}, err
	}
	if r == nil {
		return time.Time{}, &Suspend{&store.StepParams{
			Name: name, Kind: job.KindSleep, Status: job.StepSleeping, Sleep: d, Module: a.p.Module,
		}}
	}
	if r.WakeAt.After(a.now()) {
		return time.Time{}, &Suspend{&store.StepParams{
			Name: name, Kind: job.KindSleep, Status: job.StepSleeping, WakeAt: r.WakeAt, Module: a.p.Module,
		}}
	}
	return a.at(r.WakeAt), nil
}

// WaitEvent is not served yet.
func (a *Attempt) WaitEvent(context.Context, abi.WaitParams) ([]byte, time.Time, error) {
	return nil, time.Time{}, unsupported()
}

// Compensate is not served yet.
func (a *Attempt) Compensate(context.Context, string) error { return unsupported() }

// SQL is not served yet.
func (a *Attempt) SQL(context.Context, []byte) ([]byte, error) { return nil, unsupported() }

func unsupported() error { return &abi.Refusal{Code: abi.CodeUnsupported} }
