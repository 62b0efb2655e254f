package sim_test

import (
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"

	"github.com/jobrunner/runner/engine"
	"github.com/jobrunner/runner/engine/internal/loop"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/manifest"
	"github.com/jobrunner/runner/engine/store"
	"github.com/jobrunner/runner/engine/store/sqlite"
)

// lease is a worker's: short, so that a simulation sees many end.
const lease = 6 * time.Second

// world is one simulation. Its driver is one goroutine, which alone draws from
// rng and lets operations through.
type world struct {
	seed      uint64
	rng       *rand.Rand
	profile   profile
	truth     store.Store // undisturbed
	outbox    *staged
	db        store.Store // what processes reach: truth, unless a bug was planted
	bug       bug
	turn      turnstile
	book      *book
	manifest  *manifest.Manifest            // of the first version
	manifests map[int64]*manifest.Manifest  // by version
	declared  map[string]*manifest.Schedule // of it

	skew atomic.Int64 // of the store's clock against the processes', a time.Duration
	calm atomic.Bool  // nothing fails any more

	processes []*process // engines that were ever started
	client    *process   // who enqueues
	operator  *process
	clients   map[*process]*engine.Client
	began     time.Time
	away      time.Time // the database is, until then
	fullDisk  time.Time // the disk is, until then
	steps     int
	instant   time.Time      // of the last operation
	atOnce    int            // operations at that instant
	asked     int            // things that clients asked for
	staged    int            // rows that applications staged
	counts    map[string]int // of what happened
	opened    atomic.Int64   // actions under way
	shut      atomic.Int64   // engines whose close has returned

	mu    sync.Mutex
	fault string // the first promise that was broken
	trail []string
	every []string // the trail, and what is not shown of it
	sum   uint64   // of every
}

// profile is how much trouble a seed makes, drawn once, so that some seeds are
// nearly quiet and others are not.
type profile struct {
	refuse, lose, late, vanish, breaking, twice, crash, slow, stall float64
	slowest                                                         time.Duration
	actions, engines                                                int
	ask, verb                                                       int // the only ones of clients and operators; 0 is any
	version                                                         int // that the first engines serve
}

// outcome is what is told of a simulation.
type outcome struct {
	fault  string
	trail  []string
	every  []string
	sum    uint64
	steps  int
	ended  map[job.State]int
	claims int
	counts map[string]int
}

// simulate runs the simulation of a seed to its end, or to the first promise
// that is broken.
func simulate(t *testing.T, seed uint64, b bug) (out outcome) {
	cryptotest.SetGlobalRandom(t, seed)
	// A collection in the midst would change the order of goroutines.
	runtime.GC()
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(1 << 30))
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, seed, b)
		// Draws of one instant are alike, so that they do not depend on who draws first.
		defer loop.Draw(func() float64 { return w.dice("draw", time.Now()).Float64() })()
		w.run()
		out = w.outcome()
	})
	return out
}

func newWorld(t *testing.T, seed uint64, b bug) *world {
	w := &world{seed: seed, rng: rand.New(rand.NewPCG(seed, 1)), bug: b, began: time.Now(), clients: map[*process]*engine.Client{}, counts: map[string]int{}, outbox: newStaged()}
	w.turn.arrived = make(chan struct{}, 1)
	w.book = newBook(w)
	w.profile = w.draw()
	if b.trouble != nil {
		b.trouble(&w.profile)
	}
	w.skew.Store(int64(w.between(0, 20*time.Minute) - 10*time.Minute))
	db, err := sqlite.Open(t.Context(), sqlite.Config{
		Path: sqlite.Memory, Create: true,
		Clock: func() time.Time { return time.Now().Add(time.Duration(w.skew.Load())) },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	w.truth, w.db = db, db
	if b.within != nil {
		w.db = b.within(db, w)
	}
	w.manifests = map[int64]*manifest.Manifest{}
	for v := 1; v <= versions; v++ {
		w.manifests[int64(v)] = w.deployment(nil, v).Manifest
	}
	w.manifest = w.manifests[1]
	w.declared = w.manifest.Schedules
	w.client, w.operator = w.outsider("client"), w.outsider("operator")
	return w
}

// draw makes the profile of a seed.
func (w *world) draw() profile {
	some := func(most float64) float64 { return w.rng.Float64() * w.rng.Float64() * most }
	return profile{
		refuse: some(0.1), lose: some(0.1), late: some(0.1), vanish: some(0.02), breaking: some(0.01), twice: some(0.1), crash: some(0.02),
		slow: some(0.8), stall: some(0.02), slowest: w.between(0, time.Second),
		actions: 15 + w.rng.IntN(40), engines: 1 + w.rng.IntN(3), version: 1 + w.rng.IntN(versions),
	}
}

// between draws a time.
func (w *world) between(least, most time.Duration) time.Duration {
	return least + time.Duration(w.rng.Float64()*float64(most-least))
}

// dice are random numbers that depend on the seed and on what they are for, and
// not on what was drawn before: many goroutines draw, in no order.
func (w *world) dice(what ...any) *rand.Rand {
	h := fnv.New64a()
	for _, x := range what {
		if at, ok := x.(time.Time); ok {
			x = at.UnixNano()
		}
		_, _ = fmt.Fprintf(h, "%v\x00", x)
	}
	return rand.New(rand.NewPCG(w.seed, h.Sum64()))
}

// now is the store's time, as the store rounds it.
func (w *world) now() time.Time {
	return time.UnixMilli(time.Now().Add(time.Duration(w.skew.Load())).UnixMilli()).UTC()
}

// wrong ends the simulation.
func (w *world) wrong(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fault == "" {
		w.fault = what
		w.trail = append(w.trail, w.stamp()+"WRONG: "+what)
	}
}

func (w *world) failed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.fault != ""
}

func (w *world) stamp() string { return fmt.Sprintf("%9.3fs  ", time.Since(w.began).Seconds()) }

// often are operations that are left out of the trail when they go well.
var often = map[string]bool{"Claim": true, "Renew": true, "Age": true, "outbox.Claim": true, "Reclaim": true}

// note adds a line to the trail.
func (w *world) note(format string, args ...any) { w.record(true, format, args...) }

// record adds a line to the sum of the trail, and to the trail if it is shown.
func (w *world) record(shown bool, format string, args ...any) {
	line := w.stamp() + fmt.Sprintf(format, args...)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fault != "" {
		return // what follows is the end of the simulation, not the fault
	}
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%x %s", w.sum, line)
	w.sum = h.Sum64()
	w.every = append(w.every, line)
	if shown {
		w.trail = append(w.trail, line)
	}
}

// drive lets operations through, one at a time, until done says so. At each turn
// everything else in the simulation has come to rest.
func (w *world) drive(until func() bool) {
	for {
		synctest.Wait()
		if until() {
			return
		}
		next, ready := w.ready()
		if ready != nil {
			w.grant(ready)
			continue
		}
		timer := time.NewTimer(time.Until(next))
		select {
		case <-w.turn.arrived:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// ready draws one of the calls whose time has come, or answers when to look again.
func (w *world) ready() (next time.Time, c *call) {
	now := time.Now()
	next = now.Add(time.Second)
	var due []*call
	for _, c := range w.turn.sorted() {
		if !c.rolled {
			w.roll(c)
		}
		switch {
		case !c.at.After(now):
			due = append(due, c)
		case c.at.Before(next):
			next = c.at
		}
	}
	if len(due) == 0 {
		return next, nil
	}
	return next, due[w.rng.IntN(len(due))]
}

// roll decides how long a call is on its way.
func (w *world) roll(c *call) {
	c.rolled = true
	c.at = time.Now()
	if w.calm.Load() {
		return
	}
	switch x := w.rng.Float64(); {
	case x < w.profile.stall:
		c.at = c.at.Add(w.between(0, 4*lease))
	case x < w.profile.stall+w.profile.slow:
		c.at = c.at.Add(w.between(0, w.profile.slowest))
	}
	if c.p.stalled.After(c.at) {
		c.at = c.p.stalled
	}
}

// standstill is how many operations at one instant are a loop that never ends.
const standstill = 20_000

// grant lets a call through to its fate.
func (w *world) grant(c *call) {
	f := w.fate(c)
	w.steps++
	if now := time.Now(); !now.Equal(w.instant) {
		w.instant, w.atOnce = now, 0
	}
	if w.atOnce++; w.atOnce > standstill {
		w.wrong(fmt.Sprintf("%d operations took no time: one brings about the next for ever", standstill))
	}
	w.tally(c, f)
	left := ""
	if c.left {
		left = " (given up)"
	}
	w.record(f != proceed || !c.reads && !often[c.op], "%s %s %s%s%s", c.p.name, c.op, c.what, fateNames[f], left)
	w.turn.release(c, f)
}

// repeatable are the operations that do nothing more when they are done again.
var repeatable = map[string]bool{
	"Enqueue": true, "EnqueueIf": true, "Settle": true, "SaveSteps": true, "SaveLogs": true, "Publish": true, "FireSchedule": true,
	"Renew": true, "Deregister": true, "LetGo": true, "Reclaim": true, "LeadSchedules": true, "outbox.Settle": true, "outbox.Release": true,
}

func (w *world) fate(c *call) fate {
	if c.p.dead.Load() {
		return unheard // it was on its way when its process died
	}
	if w.calm.Load() {
		return proceed
	}
	now := time.Now()
	switch {
	case now.Before(w.away):
		return refuse
	case now.Before(w.fullDisk) && !c.reads:
		return full
	}
	x := w.rng.Float64()
	for _, chance := range []struct {
		share float64
		fate  fate
	}{
		{w.profile.refuse, refuse}, {w.profile.lose, lose}, {w.profile.late, late}, {w.profile.vanish, vanish}, {w.profile.breaking, breaking}, {w.profile.twice, double},
	} {
		if x < chance.share {
			if chance.fate == late {
				c.slow = w.between(0, 2*lease)
			}
			if chance.fate == vanish && !c.p.mortal {
				return refuse
			}
			if chance.fate == double && !repeatable[c.op] {
				return proceed
			}
			return chance.fate
		}
		x -= chance.share
	}
	if c.p.mortal && x < w.profile.crash && !c.reads {
		after := w.rng.IntN(2) == 0
		w.kill(c.p)
		if after {
			w.count("killed after " + c.op)
			return unheard
		}
		w.count("killed before " + c.op)
		return vanish
	}
	return proceed
}

func (w *world) outcome() outcome {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := outcome{fault: w.fault, trail: w.trail, every: w.every, sum: w.sum, steps: w.steps, ended: map[job.State]int{}, claims: w.book.claims, counts: w.counts}
	for _, r := range w.book.runs {
		out.ended[r.State]++
	}
	return out
}

// last are the lines that led to the end of a simulation.
func (o *outcome) last(n int) string {
	return strings.Join(o.trail[max(0, len(o.trail)-n):], "\n")
}

// run is the simulation: trouble for some minutes, then peace until all is over.
func (w *world) run() {
	for range w.profile.engines {
		w.start(w.profile.version)
	}
	for range w.profile.actions {
		until := time.Now().Add(w.between(0, 8*time.Second))
		w.drive(func() bool { return w.failed() || !time.Now().Before(until) })
		if w.failed() {
			break
		}
		w.act()
	}
	w.peace()
	w.finish()
}

// peace lets whatever is under way come to its end.
func (w *world) peace() {
	if w.failed() {
		return
	}
	w.note("peace")
	w.calm.Store(true)
	w.resume()
	w.start(w.version())
	w.opened.Add(1)
	go w.unpause()
	deadline := time.Now().Add(30 * time.Minute)
	w.drive(func() bool {
		return w.failed() || w.opened.Load() == 0 && w.over() || time.Now().After(deadline)
	})
	if !w.failed() {
		w.book.close()
	}
}

// over reports whether every run has ended that is not of a schedule.
func (w *world) over() bool {
	for _, r := range w.book.runs {
		if r.State.Live() && r.Job != "tick" {
			return false
		}
	}
	return w.outbox.settled()
}

// unpause resumes whatever is paused, until nothing is that was under way.
func (w *world) unpause() {
	defer w.opened.Add(-1)
	for {
		paused := w.book.pausedNow()
		if len(paused) == 0 && w.opened.Load() == 1 {
			return // nobody pauses anything any more
		}
		for _, of := range paused {
			w.resumeOne(of)
		}
		time.Sleep(time.Second)
	}
}

// finish ends every process, and what is left of those that were killed.
func (w *world) finish() {
	w.calm.Store(true)
	w.away, w.fullDisk = time.Time{}, time.Time{}
	for _, p := range w.processes {
		p.close()
	}
	n := int64(len(w.processes))
	deadline := time.Now().Add(time.Hour)
	w.drive(func() bool { return w.shut.Load() == n && w.opened.Load() == 0 || time.Now().After(deadline) })
	if w.shut.Load() != n {
		w.wrong(fmt.Sprintf("%d engines did not end within an hour", n-w.shut.Load()))
	}
	end := time.Now().Add(5 * time.Minute) // calls on dead connections give up
	w.drive(func() bool { return time.Now().After(end) })
	for _, c := range w.turn.sorted() {
		w.turn.release(c, vanish)
	}
	synctest.Wait()
}

// do has an action of a client or an operator done beside all others.
func (w *world) do(name string, f func(ctx context.Context)) {
	w.note("%s", name)
	w.opened.Add(1)
	go func() {
		defer w.opened.Add(-1)
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		f(ctx)
	}()
}
