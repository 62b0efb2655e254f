package worker

import (
	"time"

	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/queue"
)

var _ queue.Places = (*Worker)(nil)

// place is a slot that is kept for a run on its way into the store. A drain waits
// for it as it does for a claim.
type place struct {
	w     *Worker
	s     *session
	queue string
}

// Reserve implements queue.Places.
func (w *Worker) Reserve(queueName string) (queue.Place, bool) {
	if !w.slots.spare(queueName) {
		return nil, false
	}
	s, ok := w.beginRound()
	if !ok {
		w.refill(w.slots.release(queueName))
		return nil, false
	}
	return &place{w: w, s: s, queue: queueName}, true
}

// Worker implements queue.Place.
func (p *place) Worker() string { return p.s.id }

// Begin implements queue.Place.
func (p *place) Begin(run *job.Run) {
	a := newAttempt(p.w, p.s, run, time.Now())
	if p.w.hold(a) {
		p.w.limit.begun(run)
		p.w.backlog.start(a)
	} else {
		p.w.handBack(a, true)
	}
	p.w.endRound()
}

// Free implements queue.Place.
func (p *place) Free() {
	p.w.refill(p.w.slots.release(p.queue))
	p.w.endRound()
}

// Doubt implements queue.Place.
func (p *place) Doubt() {
	p.w.retire(p.s, "the answer of an enqueue was lost")
	p.Free()
}
