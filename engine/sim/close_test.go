package sim_test

import (
	"context"
	"encoding/json"

	"github.com/jobrunner/runner/engine/job"
)

// buried are the codes under which a run may honestly die here: its handler said
// so, its workers were killed, or an attempt of a once step was.
var buried = map[string]bool{
	job.CodeWorkerLost: true, job.CodeMaxAttempts: true, job.CodeStepOutcomeUnknown: true, job.CodeTimeout: true,
	job.CodeCompensationFailed: true, job.CodeKeyBusy: true, "SIM_CHILD": true, "SIM_SAGA": true,
	job.CodeDatabaseCorrupt: true, job.CodeDatabaseFull: true, job.CodeDatabaseUnavailable: true,
	"X_GUEST_TRAP": true, "SIM_TERMINAL": true, "": true,
}

// close is the account at the end, when everything has come to rest.
func (b *book) close() {
	b.refresh("the end")
	for id := range b.accepted {
		if _, is := b.runs[id]; !is && !b.ended[id] {
			b.wrong("%s was accepted, and nothing is known of it", b.label(id))
		}
	}
	for id, r := range b.runs {
		name := b.label(id)
		switch r.State {
		case job.Done:
			b.done(r)
		case job.Failed, job.Dead:
			if !buried[r.Error.Code] {
				b.wrong("%s is %s with %+v", name, r.State, r.Error)
			}
		case job.Cancelled:
			if !b.touched[id] && !b.bereft[id] {
				b.wrong("%s is cancelled, by nobody", name)
			}
		default:
			if r.Job != "tick" {
				b.wrong("%s never ended: %s, due %s, at %s", name, r.State, r.RunAt, b.w.now())
			}
		}
		b.timeline(r)
	}
	b.kept("the end")
	b.checkSchedules()
	b.checkPauses()
	b.checkOutbox()
}

// done checks that a run's output is made of what its history says.
func (b *book) done(r job.Run) {
	out := map[string]string{}
	if err := json.Unmarshal(b.output(r.ID), &out); err != nil {
		b.wrong("the output of %s cannot be read: %v", b.label(r.ID), err)
		return
	}
	_, steps := b.history(r.ID)
	for name, got := range out {
		s, ok := steps[name]
		if ok && (s.Kind == job.KindStep || s.Kind == job.KindUndoable || s.Kind == job.KindInvoke && s.Status == job.StepCompleted) && string(s.Output) != got {
			b.wrong("%s is done with %s of step %q, of which %s is recorded", b.label(r.ID), got, name, s.Output)
		}
		if !ok {
			b.wrong("%s is done with %s of step %q, of which nothing is recorded", b.label(r.ID), got, name)
		}
	}
}

// timeline checks that each claim was settled at most once, in order.
func (b *book) timeline(r job.Run) {
	records, err := b.w.truth.Attempts(context.Background(), r.ID)
	if err != nil {
		b.wrong("the timeline of %s cannot be read: %v", b.label(r.ID), err)
	}
	last := int64(0)
	for _, a := range records {
		if a.Claim <= last || a.Claim > r.Claims {
			b.wrong("%s: claim %d after %d of %d in its timeline", b.label(r.ID), a.Claim, last, r.Claims)
		}
		last = a.Claim
	}
}
