package sim_test

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

// bookings is what the names of steps begin with that can be undone.
const bookings = "book"

// cancelHard is the cancel that ends a run where it is.
const cancelHard = "Cancel, without compensation"

func isBooking(s *job.Step) bool {
	return s.Kind == job.KindUndoable && s.Status == job.StepCompleted
}

// cancelling reports whether a live run is being undone since it was cancelled.
func (b *book) cancelling(run string) bool {
	if r := b.runs[run]; !r.State.Live() || !b.w.manifest.Jobs[r.Job].Compensates {
		return false
	}
	var u job.Unwind
	rec, begun := b.steps(run)[job.UnwindName]
	return begun && json.Unmarshal(rec.Output, &u) == nil && u.Cancelled
}

// mostAttempts is how many attempts a run may have come to: its own, as many again
// to undo it, and the one of those that a cancel took.
func (b *book) mostAttempts(r *job.Run) int {
	if !b.w.manifest.Jobs[r.Job].Compensates {
		return r.MaxAttempts
	}
	most := 2 * r.MaxAttempts
	var u job.Unwind
	if rec, begun := b.steps(r.ID)[job.UnwindName]; r.Attempt <= most || !begun || json.Unmarshal(rec.Output, &u) != nil {
		return most
	}
	records, err := b.w.truth.Attempts(context.Background(), r.ID)
	if err != nil {
		b.wrong("the timeline of %s cannot be read: %v", b.label(r.ID), err)
	}
	for _, a := range records {
		if a.Outcome == job.Unwinding && a.Attempt > u.From {
			return most + 1
		}
	}
	return most
}

func undone(steps map[string]job.Step, name string) bool {
	return steps[job.CompensationPrefix+name].Status == job.StepCompleted
}

// unwinding checks a record of a run against what is known of its unwind: the
// last step first, each once, and nothing goes forward any more.
func (b *book) unwinding(p *store.StepParams, before, now map[string]job.Step) {
	run := p.Ref.RunID
	if _, begun := before[job.UnwindName]; begun && p.Kind != job.KindUnwind && p.Kind != job.KindCompensation {
		b.wrong("%s recorded %s, though it is being undone", b.label(run), p.Name)
	}
	if p.Kind != job.KindCompensation || p.Status != job.StepCompleted {
		return
	}
	name := strings.TrimPrefix(p.Name, job.CompensationPrefix)
	s := now[name]
	if _, begun := now[job.UnwindName]; !begun || !isBooking(&s) {
		b.wrong("%s undid %s, which is %s, and its unwind has begun: %v", b.label(run), name, s.Status, begun)
	}
	for _, other := range now {
		if isBooking(&other) && other.Seq > s.Seq && !undone(now, other.Name) {
			b.wrong("%s undid %s before %s, which came after it", b.label(run), name, other.Name)
		}
	}
	by, again := b.undoers[run+" "+name]
	if again && by != p.Ref {
		b.wrong("%s undid %s under claim %d, and again under claim %d", b.label(run), name, by.Claim, p.Ref.Claim)
	}
	b.undoers[run+" "+name] = p.Ref
}

// unwound checks a run of a job that compensates when it has ended.
func (b *book) unwound(op string, r job.Run) {
	if !b.w.manifest.Jobs[r.Job].Compensates {
		return
	}
	steps := b.steps(r.ID)
	_, begun := steps[job.UnwindName]
	if r.State == job.Done {
		if begun {
			b.wrong("%s: %s is done, and was being undone", op, b.label(r.ID))
		}
		return
	}
	if r.State == job.Cancelled && (op == cancelHard || op == "Delete") {
		return // as was asked for
	}
	if r.Error.Code == job.CodeWorkerLost || r.Error.Code == job.CodeCompensationFailed {
		return // for a person, who is told
	}
	for name, s := range steps {
		if isBooking(&s) && !undone(steps, name) {
			b.wrong("%s: %s is %s with %s, and %s is not undone (its unwind has begun: %v)", op, b.label(r.ID), r.State, r.Error.Code, name, begun)
		}
	}
}

// undoes is called by a compensator that begins.
func (b *book) undoes(p *process, run, step string) {
	if p.dead.Load() {
		return
	}
	b.mu.Lock()
	steps := b.records[run]
	_, begun := steps[job.UnwindName]
	s := steps[step]
	b.mu.Unlock()
	if !begun { // a cancel has written that, perhaps
		_, begun = b.steps(run)[job.UnwindName]
	}
	if !begun || s.Status != job.StepCompleted {
		b.wrong("%s undoes %s, which is %q, and its unwind has begun: %v", b.label(run), step, s.Status, begun)
	}
}
