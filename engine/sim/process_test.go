package sim_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine"
	"github.com/jobrunner/runner/engine/internal/enginetest"
	"github.com/jobrunner/runner/engine/manifest"
	"github.com/jobrunner/runner/engine/outbox"
	"github.com/jobrunner/runner/engine/store"
)

// process is one that uses the database: an engine with its worker, scheduler and
// handlers, or someone who only asks.
type process struct {
	w        *world
	name     string
	mortal   bool          // it may be killed
	off      time.Duration // its own clock, against that of the simulation
	engine   *engine.Engine
	relay    *outbox.Relay
	dead     atomic.Bool // killed, or behind a dead network: not heard of again
	stalled  time.Time   // its operations wait until then; the driver's
	version  atomic.Int64
	switched time.Time   // when it last began to serve another version; the driver's
	busy     atomic.Bool // an action on it is under way
	ended    atomic.Bool // it is closed, and not started again
	closing  sync.Once
}

// outsider is a process without a worker.
func (w *world) outsider(name string) *process {
	p := &process{w: w, name: name, off: w.clockOf(name)}
	c, err := engine.NewClient(engine.ClientConfig{Store: &view{Store: w.db, p: p}, Manifest: w.deployment(p, 1).Manifest})
	if err != nil {
		panic(err)
	}
	w.clients[p] = c
	return p
}

// start begins an engine that serves a version of the handlers.
func (w *world) start(version int) *process {
	name := fmt.Sprintf("e%d", len(w.processes)+1)
	p := &process{w: w, name: name, mortal: true, off: w.clockOf(name)}
	p.version.Store(int64(version))
	var db store.Store = &view{Store: w.db, p: p}
	if w.bug.above != nil {
		db = w.bug.above(db, p)
	}
	e, err := engine.New(engine.Config{
		Store: db, Deployment: w.deployment(p, version), Lease: lease, Drain: 10 * time.Second,
		Loader: func(_ context.Context, _ manifest.Module, digest string) (abi.Guest, error) {
			for v := 1; v <= versions; v++ {
				if g := p.guest(v); g.Digest() == digest {
					return g, nil
				}
			}
			return nil, fmt.Errorf("no module %s", digest)
		},
	})
	if err != nil {
		panic(err)
	}
	p.engine = e
	p.relay = w.relay(p, db)
	w.book.labels[p.relay.ID()] = p.name
	w.processes = append(w.processes, p)
	w.note("%s starts with version %d", p.name, version)
	p.begin()
	return p
}

// begin has the engine start, as a supervisor would: until it does.
func (p *process) begin() {
	p.busy.Store(true)
	p.w.opened.Add(1)
	go func() {
		defer p.w.opened.Add(-1)
		defer p.busy.Store(false)
		for !p.dead.Load() && !p.ended.Load() {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			err := p.engine.Start(ctx)
			cancel()
			if err == nil {
				_ = p.relay.Start()
				break
			}
			time.Sleep(time.Second)
		}
		if p.ended.Load() { // meanwhile
			p.quiesce(0)
			_ = p.engine.Close()
		}
	}()
}

// clockOf draws by how much the clock of a process is off.
func (w *world) clockOf(name string) time.Duration {
	return time.Duration((2*w.dice("clock", name).Float64() - 1) * float64(10*time.Minute))
}

// now is the time by the process's own clock.
func (p *process) now() time.Time { return time.Now().Add(p.off) }

// asking is the key of the process that asks for an operation, in its context.
type asking struct{}

// quiesce stops the relay, as it is before the engine that it publishes into.
func (p *process) quiesce(patience time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_ = p.relay.Stop(ctx) // what it held, others find
}

// close ends the engine, or what is left of it.
func (p *process) close() {
	p.closing.Do(func() {
		p.ended.Store(true)
		go func() {
			defer p.w.shut.Add(1)
			p.quiesce(0)
			err := p.engine.Close()
			if err != nil && !p.dead.Load() && p.w.calm.Load() && !p.w.failed() && !p.busy.Load() {
				p.w.wrong(fmt.Sprintf("%s did not close: %v", p.name, err))
			}
		}()
	})
}

// kill ends a process between two of its operations. What it had sent may still
// arrive. A new process takes its place.
func (w *world) kill(p *process) {
	w.note("%s is killed", p.name)
	p.dead.Store(true)
	for _, c := range w.turn.sorted() {
		if c.p == p && w.rng.IntN(2) == 0 {
			w.turn.release(c, vanish)
		}
	}
	p.close()
	w.start(w.version())
}

// stall stops what a process asks for, for a time.
func (w *world) stall(p *process, d time.Duration) {
	w.note("%s stalls for %v", p.name, d.Round(time.Millisecond))
	p.stalled = time.Now().Add(d)
	for _, c := range w.turn.sorted() {
		if c.p == p && c.at.Before(p.stalled) {
			c.rolled, c.at = true, p.stalled
		}
	}
}

// resume ends stalls.
func (w *world) resume() {
	w.away, w.fullDisk = time.Time{}, time.Time{}
	for _, p := range w.processes {
		p.stalled = time.Time{}
	}
	for _, c := range w.turn.sorted() {
		c.at = time.Now()
	}
}

// version is what the last process serves.
func (w *world) version() int {
	if len(w.processes) == 0 {
		return 1
	}
	return int(w.processes[len(w.processes)-1].version.Load())
}

// alive are the engines that were not killed.
func (w *world) alive() (out []*process) {
	for _, p := range w.processes {
		if !p.dead.Load() && !p.busy.Load() {
			out = append(out, p)
		}
	}
	return out
}

// guest is a version of the handlers in this process.
func (p *process) guest(version int) *enginetest.Guest {
	h := p.handler(version)
	g := &enginetest.Guest{Name: fmt.Sprintf("sim %d", version), Handlers: map[string]enginetest.Handler{}}
	for _, name := range jobs {
		g.Handlers[name] = h
	}
	return g
}
