package storetest

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

func (m *model) renew(p store.RenewParams) store.RenewResult {
	out := store.RenewResult{Alive: m.alive(p.Worker)}
	if out.Alive {
		m.workers[p.Worker].expires = m.now.Add(p.Lease)
	}
	for _, ref := range p.Held {
		if out.Alive && ref.Worker == p.Worker && m.held(ref) != nil {
			continue
		}
		lost := store.LostRun{Ref: ref}
		if r := m.runs[ref.RunID]; r != nil {
			if lost.State = r.State; r.taken[ref.Claim] && ref.Worker == p.Worker && r.worker[ref.Claim] == ref.Worker {
				lost.State = job.Cancelled
			}
		}
		out.Lost = append(out.Lost, lost)
	}
	for _, h := range p.Progress {
		if r := m.held(h.Ref); out.Alive && h.Ref.Worker == p.Worker && r != nil {
			r.Progress = h.Progress
		}
	}
	return out
}

func (m *model) heldBy(worker string) []*modelRun {
	var out []*modelRun
	for _, r := range m.runs {
		if r.State == job.Running && r.Worker == worker {
			out = append(out, r)
		}
	}
	return out
}

func (m *model) deregister(worker string) {
	for _, r := range m.heldBy(worker) {
		ref := job.Ref{RunID: r.ID, Worker: worker, Claim: r.Claims}
		attempt := r.Attempt
		r.Attempt = max(r.Attempt-1, 0)
		m.end(r, job.Ready, m.now, 0, nil)
		m.record(r, ref, attempt, job.Interrupted, m.now, nil)
	}
	delete(m.workers, worker)
}

// reclaim reclaims everything that has lapsed; its texts are the store's.
func (m *model) reclaim(p store.ReclaimParams, texts func(id string) job.Failure) (requeued, buried []string) {
	for id := range m.workers {
		if m.alive(id) {
			continue
		}
		for _, r := range m.heldBy(id) {
			ref := job.Ref{RunID: r.ID, Worker: id, Claim: r.Claims}
			r.Orphans++
			failure := texts(r.ID)
			to, _ := p.Verdict(&r.Run, id)
			if to == job.Ready {
				m.end(r, job.Ready, m.now, 0, nil)
				m.record(r, ref, r.Attempt, job.Orphaned, m.now, &failure)
				requeued = append(requeued, r.ID)
				continue
			}
			m.end(r, to, time.Time{}, p.Retention[r.Job], &failure)
			m.record(r, ref, r.Attempt, job.Orphaned, time.Time{}, &failure)
			buried = append(buried, r.ID)
		}
		delete(m.workers, id)
	}
	return requeued, buried
}

// cancel returns the code of its refusal, or "".
func (m *model) cancel(p store.CancelParams) string {
	r := m.runs[p.ID]
	switch {
	case r == nil:
		return job.CodeNotFound
	case r.State.Terminal():
		return job.CodeNotCancellable
	}
	record, err := p.Unwind(&r.Run, r.toUndo())
	switch {
	case err != nil:
		return abi.CodeOf(err)
	case record == nil:
		m.end(r, job.Cancelled, time.Time{}, p.Retention, p.Failure())
		return ""
	}
	state, runAt, ref := job.Ready, m.now, job.Ref{RunID: r.ID, Worker: r.Worker, Claim: r.Claims}
	if r.State == job.Running {
		state = job.Suspended
		if w := m.workers[r.Worker]; w != nil && w.expires.After(m.now) {
			runAt = w.expires
		}
	}
	m.saveStep(r, *record)
	m.end(r, state, runAt, 0, p.Failure())
	if state == job.Suspended {
		m.record(r, ref, r.Attempt, job.Unwinding, runAt, p.Failure())
		r.taken[ref.Claim] = true
	}
	return ""
}

func (r *modelRun) toUndo() (u store.ToUndo) {
	for _, s := range r.steps {
		switch {
		case s.Kind == job.KindUnwind:
			u.Unwind, u.Failure = s.Output, &s.Error
		case s.Kind == job.KindUndoable && s.Status == job.StepCompleted:
			u.Undoable = true
		}
	}
	return u
}

func (m *model) letGo(ref job.Ref) {
	r := m.runs[ref.RunID]
	if r != nil && r.State == job.Suspended && r.RunAt.After(m.now) && r.Claims == ref.Claim && r.worker[ref.Claim] == ref.Worker && r.taken[ref.Claim] {
		r.State, r.RunAt = job.Ready, m.now
	}
}

func (m *model) requeue(p store.RequeueParams) string {
	r := m.runs[p.ID]
	switch {
	case r == nil:
		return job.CodeNotFound
	}
	undo := r.toUndo()
	undo.Left = len(job.HalfUndone(&r.Run, r.steps)) > 0
	resumed, err := p.Resume(&r.Run, undo)
	switch {
	case err != nil:
		return abi.CodeOf(err)
	case m.holder(r.Job, r.Tenant, r.Key) != nil:
		return job.CodeDuplicate
	}
	stepsAtEnd := r.Steps
	if p.FromStep != "" {
		i := slices.IndexFunc(r.steps, func(s job.Step) bool { return s.Name == p.FromStep })
		if i < 0 {
			return job.CodeInvalid
		}
		r.steps = r.steps[:i]
		r.Steps = i
	}
	if p.Attempts > 0 {
		r.MaxAttempts = p.Attempts
	}
	if r.State == job.Done && r.Claims == 1 {
		r.attempts = append(r.attempts, job.AttemptRecord{
			Claim: 1, Attempt: r.Attempt, Worker: r.worker[1], Outcome: job.Completed, ClaimedAt: r.ClaimedAt, SettledAt: r.FinishedAt,
			Module: r.Module, StepsAtEnd: stepsAtEnd,
		})
	}
	r.State, r.Attempt, r.Orphans, r.RunAt = job.Ready, 0, 0, m.now
	r.FinishedAt, r.ExpiresAt, r.Output, r.Progress = time.Time{}, time.Time{}, nil, job.Progress{}
	if p.Latest {
		r.Module = ""
	}
	if resumed != nil {
		r.Attempt, r.Error = r.MaxAttempts, resumed.Failure
		i := slices.IndexFunc(r.steps, func(s job.Step) bool { return s.Kind == job.KindUnwind })
		r.steps[i].Output = resumed.Output
	}
	return ""
}

func (m *model) promote(id string) string {
	r := m.runs[id]
	switch {
	case r == nil:
		return job.CodeNotFound
	case !r.State.Promotable() && !m.due(r):
		return job.CodeNotPromotable
	}
	if r.State = job.Ready; m.now.Before(r.RunAt) {
		r.RunAt = m.now
	}
	return ""
}

func (m *model) remove(id string) string {
	r := m.runs[id]
	switch {
	case r == nil:
		return job.CodeNotFound
	case !r.State.Removable():
		return job.CodeNotRemovable
	}
	delete(m.runs, id)
	m.purged[id] = true
	return ""
}

// purge deletes everything that has expired.
func (m *model) purge() int {
	n := 0
	for id, r := range m.runs {
		if !r.ExpiresAt.IsZero() && !r.ExpiresAt.After(m.now) {
			delete(m.runs, id)
			m.purged[id] = true
			n++
		}
	}
	return n
}

func (m *model) stats() store.Stats {
	out := store.Stats{Now: m.now, Events: int64(len(m.events))}
	if len(m.events) > 0 {
		out.OldestEvent = m.events[0].PublishedAt
	}
	queues := map[string]*store.QueueStats{}
	for _, r := range m.runs {
		q := queues[r.Queue]
		if q == nil {
			q = &store.QueueStats{Queue: r.Queue}
			queues[r.Queue] = q
		}
		switch {
		case m.due(r):
			q.Ready++
			if q.OldestDue.IsZero() || r.RunAt.Before(q.OldestDue) {
				q.OldestDue = r.RunAt
			}
		case r.State == job.Delayed:
			q.Delayed++
		case r.State == job.Suspended:
			q.Suspended++
		case r.State == job.Running:
			q.Running++
		case r.State == job.Done:
			q.Done++
		case r.State == job.Failed:
			q.Failed++
		case r.State == job.Dead:
			q.Dead++
		case r.State == job.Cancelled:
			q.Cancelled++
		}
	}
	for _, name := range slices.Sorted(maps.Keys(queues)) {
		out.Queues = append(out.Queues, *queues[name])
	}
	for id := range m.workers {
		if m.alive(id) {
			out.Workers++
		}
	}
	return out
}

// list is every run, newest first.
func (m *model) list() []string {
	return slices.SortedFunc(maps.Keys(m.runs), func(a, b string) int { return -strings.Compare(a, b) })
}
