package postgres

import (
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

// ending is one row of the statement settle.
type ending struct {
	ref          job.Ref
	outcome      job.Outcome
	to           job.State
	delay        time.Duration
	uncounted    bool
	orphans      *int32
	reported     bool
	attemptError *job.Failure
	runError     *job.Failure
	output       []byte
	keep         time.Duration
	module       string
	progress     *job.Progress
	step         *store.StepParams
}

// endings are the arrays of the statement settle.
type endings struct {
	ids                                              []pgtype.UUID
	workers, outcomes, states                        []string
	claims, delays, keep                             []int64
	uncounted, reported                              []bool
	orphans                                          []*int32
	attemptErrors, runErrors, modules, progress      []*string
	outputs, stepOutputs                             [][]byte
	stepNames, stepKinds, stepStatuses, stepFailures []*string
	stepAttempts                                     []int32
	sleeps                                           []*int64
	wakes                                            []*time.Time
	elapsed                                          []int64
}

func (a *endings) add(e ending) {
	a.ids = append(a.ids, idParam(e.ref.RunID))
	a.workers = append(a.workers, enc(e.ref.Worker))
	a.claims = append(a.claims, e.ref.Claim)
	a.outcomes = append(a.outcomes, string(e.outcome))
	a.states = append(a.states, string(e.to))
	a.delays = append(a.delays, ms(e.delay))
	a.uncounted = append(a.uncounted, e.uncounted)
	a.orphans = append(a.orphans, e.orphans)
	a.reported = append(a.reported, e.reported)
	a.attemptErrors = append(a.attemptErrors, failureText(e.attemptError))
	a.runErrors = append(a.runErrors, failureText(e.runError))
	a.outputs = append(a.outputs, e.output)
	a.keep = append(a.keep, ms(e.keep))
	if e.module == "" && e.step != nil {
		e.module = e.step.Module
	}
	a.modules = append(a.modules, encOrNull(e.module))
	var progress *string
	if e.progress != nil {
		progress = jsonText(*e.progress)
	}
	a.progress = append(a.progress, progress)
	var (
		st                 store.StepParams
		name, kind, status *string
		sleep              *int64
	)
	if e.step != nil {
		st = *e.step
		n, k, t := enc(st.Name), enc(string(st.Kind)), string(st.Status)
		name, kind, status = &n, &k, &t
		sleep = sleepOf(&st)
	}
	a.stepNames = append(a.stepNames, name)
	a.stepKinds = append(a.stepKinds, kind)
	a.stepStatuses = append(a.stepStatuses, status)
	a.stepAttempts = append(a.stepAttempts, int32(st.Attempts))
	a.sleeps = append(a.sleeps, sleep)
	a.wakes = append(a.wakes, timeOrNull(st.WakeAt))
	a.elapsed = append(a.elapsed, ms(st.Elapsed))
	a.stepFailures = append(a.stepFailures, failureText(st.Error))
	a.stepOutputs = append(a.stepOutputs, st.Output)
}

func (a *endings) args() []any {
	return []any{
		a.ids, a.workers, a.claims, a.outcomes, a.states, a.delays, a.uncounted, a.orphans, a.reported, a.attemptErrors, a.runErrors,
		a.outputs, a.keep, a.modules, a.progress, a.stepNames, a.stepKinds, a.stepStatuses, a.stepAttempts, a.sleeps, a.wakes,
		a.elapsed, a.stepFailures, a.stepOutputs,
	}
}

// sleepOf is how long a sleeping step sleeps, or a wait waits, unless its WakeAt
// says; nil for any other.
func sleepOf(p *store.StepParams) *int64 {
	if p.Status != job.StepSleeping && p.Wait == nil {
		return nil
	}
	d := ms(p.Sleep)
	return &d
}
