package sim_test

import (
	"context"
	"time"
)

// act does one thing that happens to a fleet.
func (w *world) act() {
	w.enqueue()
	switch w.rng.IntN(20) {
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
		w.count("clock jump")
		w.skew.Add(int64(d))
	case 9, 10:
		w.pause()
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
	w.count("drain")
	w.note("%s drains for %v", p.name, budget.Round(time.Millisecond))
	p.busy.Store(true)
	w.opened.Add(1)
	go func() {
		defer w.opened.Add(-1)
		p.quiesce(budget / 2)
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
	p.switched = time.Now()
	w.count("deploy")
	if _, err := p.engine.Switch(w.deployment(p, int(next))); err != nil {
		w.wrong("a deployment was refused: " + err.Error())
	}
}
