package step

import (
	"context"
	"fmt"
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
	return a.sleep(ctx, abi.FuncSleep, d, store.StepParams{Name: name, Sleep: d})
}

// SleepUntil is Sleep until t. Whether t has passed is told by the run's clock,
// which says the same in every attempt; where that lags, the run suspends to be
// due at once.
func (a *Attempt) SleepUntil(ctx context.Context, name string, t time.Time) (time.Time, error) {
	return a.sleep(ctx, abi.FuncSleepUntil, t.Sub(a.clock), store.StepParams{Name: name, WakeAt: t})
}

// sleep is both of them: d is how long, by the run's clock, and first the record
// if there is none, but for what every sleep's has.
func (a *Attempt) sleep(ctx context.Context, fn string, d time.Duration, first store.StepParams) (time.Time, error) {
	name := first.Name
	if a.open.name != "" {
		return time.Time{}, outsideOnly("a sleep", "sleep", a.open.name)
	}
	if d > abi.MaxSleep {
		return time.Time{}, &abi.Refusal{Code: abi.CodeLimit}
	}
	if err := a.enter(ctx, fn, name); err != nil {
		return time.Time{}, err
	}
	if d <= 0 && a.records[name] == nil {
		return a.clock, nil
	}
	r, err := a.visit(name, job.KindSleep)
	if err != nil {
		return time.Time{}, err
	}
	if r != nil && !r.WakeAt.After(a.now()) {
		a.cameThrough("sleep", r, r.WakeAt)
		return a.at(r.WakeAt), nil
	}
	if r != nil {
		first = store.StepParams{Name: name, WakeAt: r.WakeAt}
	}
	first.Kind, first.Status, first.Module = job.KindSleep, job.StepSleeping, a.p.Module
	return time.Time{}, &Suspend{Record: &first}
}

// outsideOnly refuses what cannot be done while a step is open.
func outsideOnly(what, verb, step string) error {
	return &abi.Refusal{Code: abi.CodeOutsideStepOnly, Failure: abi.Failure{
		Kind: abi.FailTerminal, Message: fmt.Sprintf("%s was asked for inside step %q", what, step), Fix: verb + " between steps",
	}}
}

// SQL is not served yet.
func (a *Attempt) SQL(context.Context, []byte) ([]byte, error) { return nil, unsupported() }

func unsupported() error { return &abi.Refusal{Code: abi.CodeUnsupported} }
