package sim_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/jobrunner/runner/engine"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

// operate has an operator do something to a run or a schedule.
func (w *world) operate() {
	c := w.clients[w.operator]
	names := slices.Sorted(maps.Keys(w.declared))
	name := names[w.rng.IntN(len(names))]
	r, found := w.anyRun(job.States...)
	kind := w.rng.IntN(14)
	if w.profile.verb > 0 {
		kind = w.profile.verb
	}
	if !found && (kind < 8 || kind > 11) {
		return
	}
	label := w.book.label(r.ID)
	switch kind {
	case 0, 1:
		w.cancel(r.ID)
	case 2, 12, 13: // the same worker may claim again what its handler is still at
		r, found = w.anyRun(job.Running)
		if !found {
			return
		}
		w.touch(r.ID)
		label := w.book.label(r.ID)
		w.do("operator cancels and retries "+label, func(ctx context.Context) {
			_, _ = c.Cancel(ctx, r.ID, "bounced")
			_, _ = c.Retry(ctx, store.RequeueParams{ID: r.ID})
		})
	case 3:
		w.do("operator retries "+label, func(ctx context.Context) {
			_, _ = c.Retry(ctx, store.RequeueParams{ID: r.ID, Attempts: 5})
		})
	case 4:
		steps := w.book.records[r.ID]
		if len(steps) == 0 {
			return
		}
		from := slices.Sorted(maps.Keys(steps))[w.rng.IntN(len(steps))]
		w.do(fmt.Sprintf("operator retries %s from %s", label, from), func(ctx context.Context) {
			_, _ = c.Retry(ctx, store.RequeueParams{ID: r.ID, FromStep: from})
		})
	case 5:
		w.do("operator promotes "+label, func(ctx context.Context) { _, _ = c.Promote(ctx, r.ID) })
	case 6:
		w.touch(r.ID)
		w.do("operator deletes "+label, func(ctx context.Context) { _, _ = c.Delete(ctx, r.ID) })
	case 7:
		w.bulk()
	case 8:
		w.do("operator pauses "+name, func(ctx context.Context) { _, _ = c.PauseSchedule(ctx, name) })
	case 9, 10:
		w.do("operator resumes "+name, func(ctx context.Context) { _, _ = c.ResumeSchedule(ctx, name) })
	case 11:
		w.do("operator runs "+name, func(ctx context.Context) {
			_, _ = c.RunSchedule(ctx, engine.RunScheduleParams{Name: name})
		})
	}
}

func (w *world) cancel(id string) {
	w.touch(id)
	var how []engine.CancelOption
	if w.rng.IntN(3) == 0 {
		how = append(how, engine.NoCompensate())
	}
	w.do("operator cancels "+w.book.label(id), func(ctx context.Context) { _, _ = w.clients[w.operator].Cancel(ctx, id, "no more", how...) })
}

// bulk has an operator act on what a filter names.
func (w *world) bulk() {
	p := engine.BulkParams{Verb: engine.BulkRetry, Filter: store.ListParams{State: job.Dead}, Limit: 3}
	switch w.rng.IntN(3) {
	case 0:
		p.Verb, p.Filter.State = engine.BulkPromote, job.Delayed
	case 1:
		p.Verb, p.Filter.State = engine.BulkDelete, job.Done
	}
	w.do(fmt.Sprintf("operator does %s to %s runs", p.Verb, p.Filter.State), func(ctx context.Context) {
		_, _ = w.clients[w.operator].Bulk(ctx, p)
	})
}

// touch notes that an operator meant to end a run.
func (w *world) touch(id string) {
	w.book.mu.Lock()
	defer w.book.mu.Unlock()
	w.book.touched[id] = true
}

// anyRun draws a run of the database in one of these states, by its label.
func (w *world) anyRun(states ...job.State) (job.Run, bool) {
	var runs []job.Run
	for _, r := range w.book.runs {
		if slices.Contains(states, r.State) {
			runs = append(runs, r)
		}
	}
	if len(runs) == 0 {
		return job.Run{}, false
	}
	slices.SortFunc(runs, func(a, b job.Run) int {
		return cmp.Or(cmp.Compare(w.book.label(a.ID), w.book.label(b.ID)), cmp.Compare(a.ID, b.ID))
	})
	return runs[w.rng.IntN(len(runs))], true
}

// pause has an operator pause something, or resume what is paused.
func (w *world) pause() {
	if paused := w.book.pausedNow(); len(paused) > 0 && w.rng.IntN(3) > 0 {
		w.resumeOne(paused[w.rng.IntN(len(paused))])
		return
	}
	of := pauseOf{store.PauseQueue, []string{"default", "side", "lanes", "drip", "crowd"}[w.rng.IntN(5)]}
	switch w.rng.IntN(3) {
	case 0:
		of = pauseOf{store.PauseJob, jobs[w.rng.IntN(len(jobs))]}
	case 1:
		of = pauseOf{store.PauseTenant, orgs[w.rng.IntN(len(orgs))]}
	}
	w.do("operator pauses "+of.String(), func(ctx context.Context) {
		_, _ = w.clients[w.operator].SetPause(ctx, store.PauseParams{Kind: of.kind, Name: of.name})
	})
}

func (w *world) resumeOne(of pauseOf) {
	w.do("operator resumes "+of.String(), func(ctx context.Context) {
		_, _ = w.clients[w.operator].SetPause(ctx, store.PauseParams{Kind: of.kind, Name: of.name, Resume: true})
	})
}
