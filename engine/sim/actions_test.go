package sim_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jobrunner/runner/engine"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

// act does one thing that happens to a fleet.
func (w *world) act() {
	w.enqueue()
	switch w.rng.IntN(18) {
	case 0, 1:
		if p := w.any(); p != nil {
			w.kill(p)
		}
	case 2:
		if p := w.any(); p != nil {
			w.stall(p, w.between(0, 4*lease))
		}
	case 3:
		w.drain()
	case 4:
		w.deploy()
	case 5:
		if len(w.alive()) < 4 {
			w.start(w.version())
		}
	case 6:
		w.away = time.Now().Add(w.between(0, 3*lease))
		w.note("the database is away until %s", w.away.Sub(w.began))
	case 7:
		w.fullDisk = time.Now().Add(w.between(0, 3*lease))
		w.note("the disk is full until %s", w.fullDisk.Sub(w.began))
	case 8:
		d := w.between(0, 2*lease)
		w.note("the database's clock jumps by %v", d)
		w.skew.Add(int64(d))
	default:
		w.operate()
	}
}

func (w *world) any() *process {
	alive := w.alive()
	if len(alive) == 0 {
		return nil
	}
	return alive[w.rng.IntN(len(alive))]
}

// drain shuts an engine down in order, and starts it again.
func (w *world) drain() {
	p := w.any()
	if p == nil {
		return
	}
	budget, stop := w.between(0, 15*time.Second), w.rng.IntN(3) == 0
	w.note("%s drains for %v", p.name, budget.Round(time.Millisecond))
	p.busy.Store(true)
	w.opened.Add(1)
	go func() {
		defer w.opened.Add(-1)
		if stop {
			_ = p.engine.Stop() // what it could not write, others find
		} else {
			ctx, cancel := context.WithTimeout(context.Background(), budget)
			_ = p.engine.Drain(ctx)
			cancel()
		}
		p.busy.Store(false)
		if !p.dead.Load() && !w.failed() {
			p.begin()
		}
	}()
}

// deploy has a process serve the other version of the handlers.
func (w *world) deploy() {
	p := w.any()
	if p == nil {
		return
	}
	next := 3 - p.version.Load()
	w.note("%s serves version %d", p.name, next)
	p.version.Store(next)
	if _, err := p.engine.Switch(w.deployment(p, int(next))); err != nil {
		w.wrong("a deployment was refused: " + err.Error())
	}
}

// enqueue has a client ask for runs.
func (w *world) enqueue() {
	n := len(w.book.labels)
	label := func(i int) string { return fmt.Sprintf("r%d.%d", n, i) }
	var reqs []engine.Request
	switch kind := w.rng.IntN(10); kind {
	case 6:
		for i := range 2 + w.rng.IntN(4) {
			reqs = append(reqs, engine.Request{Job: "narrow", Input: encoded(label(i))})
		}
	case 7:
		reqs = append(reqs, engine.Request{Job: "listener", Input: encoded(label(0))})
	case 8, 9:
		w.publish(1 + w.rng.IntN(3))
		return
	case 0, 1:
		reqs = append(reqs, engine.Request{Job: "parent", Input: encoded(label(0))})
	case 2:
		for i := range 2 + w.rng.IntN(4) {
			reqs = append(reqs, engine.Request{Job: "parent", Input: encoded(label(i))})
		}
	case 3:
		reqs = append(reqs, engine.Request{Job: "keyed", Key: keys[w.rng.IntN(len(keys))], Input: encoded(label(0))})
		if w.rng.IntN(2) == 0 {
			reqs[0].OnConflict = engine.Fail
		}
	case 4:
		reqs = append(reqs, engine.Request{Job: "parent", Delay: w.between(0, time.Minute), Input: encoded(label(0))})
	case 5:
		prio := w.rng.IntN(5) - 2
		reqs = append(reqs, engine.Request{Job: "child", Priority: &prio, MaxAttempts: 1 + w.rng.IntN(3), Input: encoded(label(0))})
	}
	c := w.clients[w.client]
	w.do(fmt.Sprintf("client enqueues %d of %s: %s", len(reqs), reqs[0].Job, label(0)), func(ctx context.Context) {
		res, err := c.EnqueueMany(ctx, reqs)
		if err != nil {
			return
		}
		w.book.mu.Lock()
		defer w.book.mu.Unlock()
		for i := range res {
			w.book.accepted[res[i].ID] = true
		}
	})
}

// publish has a client publish events, at a time or one after the other.
func (w *world) publish(n int) {
	for range n {
		w.told++
		payload := fmt.Sprint(w.told)
		w.do("client publishes "+payload, func(ctx context.Context) {
			_, _ = w.clients[w.client].Publish(ctx, engine.Event{Topic: topic, Payload: []byte(payload)})
		})
	}
}

// operate has an operator do something to a run or a schedule.
func (w *world) operate() {
	c := w.clients[w.operator]
	names := slices.Sorted(maps.Keys(w.declared))
	name := names[w.rng.IntN(len(names))]
	r, found := w.anyRun(job.States...)
	kind := w.rng.IntN(14)
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
	w.do("operator cancels "+w.book.label(id), func(ctx context.Context) { _, _ = w.clients[w.operator].Cancel(ctx, id, "no more") })
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
