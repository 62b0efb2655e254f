package sim_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

func (b *book) saved(batch []store.StepParams, res []store.StepResult) {
	before, last := b.runs, b.lastEvent()
	if slices.ContainsFunc(batch, func(p store.StepParams) bool { return len(p.Enqueue)+len(p.Publish) > 0 }) {
		before = b.refresh("SaveSteps")
		var events []store.EventParams
		for i := range res {
			if res[i].Landed {
				events = append(events, batch[i].Publish...)
			}
		}
		b.published("SaveSteps", events)
	}
	for i := range res {
		p := &batch[i]
		name := fmt.Sprintf("%s#%d/%s", b.label(p.Ref.RunID), p.Ref.Claim, p.Name)
		fenced := holds(before, p.Ref)
		if res[i].Landed != fenced {
			r := before[p.Ref.RunID]
			b.wrong("the record of %s: landed is %v, and its run was %s under claim %d", name, res[i].Landed, r.State, r.Claims)
		}
		if !res[i].Landed {
			for j := range p.Enqueue {
				id := p.Enqueue[j].ID
				if _, was := before[id]; !was {
					if _, is := b.runs[id]; is {
						b.wrong("the record of %s did not land, and what it enqueued did", name)
					}
				}
			}
			continue
		}
		for j := range res[i].Enqueued {
			b.exists("the record of "+name, res[i].Enqueued[j].ID)
		}
		b.recorded("SaveSteps", p.Ref.RunID, p)
		if p.Kind == job.KindWait {
			b.listens("SaveSteps", p.Ref.RunID, last)
		}
	}
}

// final reports whether a record in that status replays for ever.
func final(s job.StepStatus) bool {
	return s == job.StepCompleted || s == job.StepFailed || s == job.StepTimedOut
}

// recorded checks the history of a run after a write of p: what was final is as
// it was, and p is there.
func (b *book) recorded(op, run string, p *store.StepParams) {
	before, now := b.history(run)
	for name, old := range before {
		is, ok := now[name]
		if name == p.Name && p.OutputEnqueued {
			continue // written again, after an answer that was lost, a key may have another holder
		}
		if old.Kind == job.KindUnwind && (b.isTouched(run) || b.bereft[run]) {
			continue // a cancel may say of an unwind that it ends so
		}
		if old.Kind == job.KindCompensation && old.Status == job.StepFailed && b.isResumed(run) {
			continue // a retry has what could not be undone tried again
		}
		if final(old.Status) && (!ok || is.Status != old.Status || !bytes.Equal(is.Output, old.Output)) {
			b.wrong("%s changed the record %s/%s from %s %s to %s %s", op, b.label(run), name, old.Status, old.Output, is.Status, is.Output)
		}
	}
	b.unwinding(p, before, now)
	is, ok := now[p.Name]
	switch {
	case !ok:
		b.wrong("%s did not record %s/%s", op, b.label(run), p.Name)
	case p.Status == job.StepStarted && final(before[p.Name].Status): // that it begins was given up and repeated, and comes late
	case p.Status != job.StepWaiting && is.Status != p.Status:
		b.wrong("%s recorded %s/%s as %s, and it is %s", op, b.label(run), p.Name, p.Status, is.Status)
	case p.Status == job.StepCompleted && !p.OutputEnqueued && !bytes.Equal(is.Output, p.Output):
		b.wrong("%s recorded %s/%s with %s, and it has %s", op, b.label(run), p.Name, p.Output, is.Output)
	}
}

// history reads a run's records and answers what they were when last read.
func (b *book) history(run string) (before, now map[string]job.Step) {
	steps, err := b.w.truth.ListSteps(context.Background(), run)
	if err != nil {
		b.wrong("the history of %s cannot be read: %v", b.label(run), err)
	}
	now = make(map[string]job.Step, len(steps))
	for _, s := range steps {
		now[s.Name] = s
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	before, b.records[run] = b.records[run], now
	return before, now
}

// isResumed reports whether a retry had a run go on being undone.
func (b *book) isResumed(id string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.resumed[id]
}

// requeued forgets what an operator had a run do again.
func (b *book) requeued(p store.RequeueParams) {
	b.refresh("Requeue")
	if steps := b.steps(p.ID); steps[job.UnwindName].Kind == job.KindUnwind {
		left := false
		for name, s := range steps {
			left = left || isBooking(&s) && !undone(steps, name)
		}
		if !left || p.FromStep != "" || p.NoCompensate {
			b.wrong("%s was undone, and goes on", b.label(p.ID))
		}
		if p.FromStep == "" {
			b.history(p.ID) // its record of the unwind counts the attempts anew
			b.mu.Lock()
			b.resumed[p.ID] = true
			b.mu.Unlock()
		}
	}
	if p.FromStep != "" {
		b.forgotten(p.ID)
	}
}

// forgotten leaves out what a run has no record of any more: it may do that again.
func (b *book) forgotten(run string) {
	before, now := b.history(run)
	b.mu.Lock()
	defer b.mu.Unlock()
	for name := range b.waiting[run] {
		if _, is := now[name]; !is {
			delete(b.waiting[run], name)
		}
	}
	for name := range before {
		if _, is := now[name]; !is {
			delete(b.seen, run+" "+name)
			delete(b.onces, run+" "+name)
		}
	}
}

// saw checks that a run is given one and the same output of a step, by whatever
// attempt asks for it.
func (b *book) saw(p *process, run, step, output string) {
	if p.dead.Load() {
		return
	}
	b.mu.Lock()
	before, ok := b.seen[run+" "+step]
	if !ok {
		b.seen[run+" "+step] = output
	}
	b.mu.Unlock()
	if ok && before != output {
		b.wrong("the handler of %s was given %s for step %q, and now %s", b.label(run), before, step, output)
	}
}

// body counts a step's body and answers its number among those of the step.
func (b *book) body(run, step string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.bodies[run+" "+step]++
	return b.bodies[run+" "+step]
}

// once counts a body that must not run twice.
func (b *book) once(run, step string) {
	b.mu.Lock()
	b.onces[run+" "+step]++
	n := b.onces[run+" "+step]
	b.mu.Unlock()
	if n > 1 {
		b.wrong("the once step %s/%s ran %d times", b.label(run), step, n)
	}
}
