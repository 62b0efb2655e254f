package queue

import (
	"errors"

	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

// Places are where runs begin in this process.
type Places interface {
	// Reserve keeps a place for a run of the queue, if one is free and nothing is
	// known to wait for it. It does not block.
	Reserve(queue string) (Place, bool)
}

// Place is one that is kept. One of its methods is called, once, and must not
// block.
type Place interface {
	// Worker is who would hold the run.
	Worker() string
	// Begin begins a run that Worker holds now.
	Begin(run *job.Run)
	// Free gives the place back.
	Free()
	// Doubt gives it back when Worker may hold a run that nobody knows of: see
	// Claim.
	Doubt()
}

// Use has single runs that are enqueued in this process begin in its places, if
// the store hands them over: a commit and a round trip sooner than a claim would
// find them. Call it before the first Enqueue.
func (q *Queue) Use(p Places) {
	if _, ok := q.store.(store.HandsOver); ok {
		q.places = p
	}
}

// handOver reserves a place for the run, if it may begin at once. What it returns
// is to hear what became of the write; nil without a place.
func (q *Queue) handOver(p *store.EnqueueParams) func(store.EnqueueResult, error) {
	if q.places == nil || !p.Minted || !p.RunAt.IsZero() || p.Delay > 0 || q.limited(p) {
		return nil
	}
	place, ok := q.places.Reserve(p.Queue)
	if !ok {
		return nil
	}
	p.Worker = place.Worker()
	id := p.ID
	return func(res store.EnqueueResult, err error) {
		switch {
		case res.Run != nil:
			place.Begin(res.Run)
		case errors.Is(err, store.ErrUnknown), res.Deduped && res.ID == id && res.State == job.Running:
			// A try whose answer was lost may have handed it over.
			place.Doubt()
		default:
			place.Free()
		}
	}
}

// limited reports whether a claim would have more to look at than the queue.
func (q *Queue) limited(p *store.EnqueueParams) bool {
	m := q.manifest()
	j, ok := m.Jobs[p.Job]
	if !ok || p.Gate != "" || j.Limited() {
		return true
	}
	of, ok := m.Queues[p.Queue]
	return ok && (of.PerTenant != 0 || of.TenantWorkers != 0 || of.Rate != nil)
}
