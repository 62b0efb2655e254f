package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine"
	"github.com/jobrunner/runner/engine/internal/enginetest"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/manifest"
	"github.com/jobrunner/runner/engine/store"
)

var (
	chaosSeed  = flag.Uint64("chaos.seed", 0, "run the random schedule of this seed only")
	chaosSeeds = flag.Int("chaos.seeds", 12, "how many random schedules to run")
)

// TestWhateverHappensEveryRunEndsOnceAndReplaysWhatItRecorded runs random
// schedules: workers that are cut off (as a killed process or a dead network
// is), that stall for longer than their lease and come back, that drain and
// restart; a store that refuses operations and loses answers; operators that
// cancel and retry. It then checks what no schedule may break.
func TestWhateverHappensEveryRunEndsOnceAndReplaysWhatItRecorded(t *testing.T) {
	seeds := []uint64{*chaosSeed}
	if *chaosSeed == 0 {
		seeds = make([]uint64, *chaosSeeds)
		for i := range seeds {
			seeds[i] = rand.Uint64()
		}
	}
	for _, seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newChaos(t, seed)
				c.run()
				c.check()
				if t.Failed() {
					t.Logf("again with: go test ./engine -run Whatever -chaos.seed=%d", seed)
				}
			})
		})
	}
}

// chaos is one schedule.
type chaos struct {
	*testing.T
	db    *enginetest.Store // undisturbed
	calm  *engine.Client
	fault *enginetest.Sometimes

	mu       sync.Mutex // guards all below; handlers of many attempts write
	rng      *rand.Rand
	next     int
	recorded map[string]string // "run step": the output that a handler was given back
	once     map[string]int    // "run step": bodies of once steps
	touched  map[string]bool   // runs that an operator cancelled or retried
	engines  []*disturbed
	runs     []string
}

// disturbed is an engine whose view of the database may be cut or stalled.
type disturbed struct {
	*engine.Engine
	mu    sync.Mutex
	cut   bool
	stall time.Time // renewals, claims and registrations hang until then
}

func newChaos(t *testing.T, seed uint64) *chaos {
	c := &chaos{
		T: t, rng: rand.New(rand.NewPCG(seed, 1)), db: &enginetest.Store{Store: enginetest.Memory(t)},
		recorded: map[string]string{}, once: map[string]int{}, touched: map[string]bool{},
	}
	c.fault = &enginetest.Sometimes{Rand: c.float, Refuse: 0.03, Lose: 0.03, Break: 0.005, Delay: 20 * time.Millisecond}
	var err error
	c.calm, err = engine.NewClient(engine.ClientConfig{Store: c.db, Manifest: c.serve().Manifest})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *chaos) float() float64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rng.Float64()
}

func (c *chaos) intn(n int) int { return int(c.float() * float64(n)) }

// serve is the deployment of every engine.
func (c *chaos) serve() engine.Deployment {
	return enginetest.Serve(&enginetest.Guest{Name: "chaos", Handlers: map[string]enginetest.Handler{
		"parent": c.parent, "child": func(t *enginetest.Task) (any, error) { t.Work(c.some(time.Second)); return "child", nil },
	}}, func(m *manifest.Manifest) {
		m.Queues["default"] = manifest.Queue{Name: "default", Workers: 5}
		m.Jobs["parent"].Retry.Attempts = 12
		m.Jobs["child"].Retry.Attempts = 12
		m.Jobs["parent"].Timeout = 2 * time.Minute
	})
}

// some is a random time up to most.
func (c *chaos) some(most time.Duration) time.Duration {
	return time.Duration(c.float() * float64(most))
}

// parent walks one path for ever: two steps, a sleep, a child from inside a
// step and one from outside, a step that must not run twice.
func (c *chaos) parent(t *enginetest.Task) (any, error) {
	var out []string
	for _, name := range []string{"a", "b"} {
		if err := c.step(t, name, &out); err != nil {
			return nil, err
		}
	}
	if err := t.Sleep("nap", time.Duration(t.Attempt.Seed%40)*time.Second); err != nil {
		return nil, err
	}
	inside, err := t.Step("send", func() (any, error) {
		res, err := t.Enqueue(abi.EnqueueParams{Job: "child", Input: json.RawMessage(`1`)})
		if err != nil {
			return nil, err
		}
		t.Work(c.some(100 * time.Millisecond))
		if c.float() < 0.2 {
			return nil, errors.New("after the enqueue")
		}
		return res[0].ID, nil
	})
	if err != nil {
		return nil, err
	}
	c.saw(t, "send", string(inside))
	res, err := t.Enqueue(abi.EnqueueParams{Job: "child", Input: json.RawMessage(`2`)})
	if err != nil {
		return nil, err
	}
	c.saw(t, "enqueue", res[0].ID)
	if _, err := t.Once("charge", func() (any, error) {
		c.mu.Lock()
		c.once[t.Attempt.Meta.RunID]++
		c.mu.Unlock()
		t.Work(c.some(100 * time.Millisecond))
		return nil, nil
	}); err != nil {
		return nil, err
	}
	return append(out, string(inside), res[0].ID), nil
}

// step runs a body whose output no other body has.
func (c *chaos) step(t *enginetest.Task, name string, out *[]string) error {
	got, err := t.Step(name, func() (any, error) {
		t.Work(c.some(3 * time.Second))
		if c.float() < 0.15 {
			return nil, errors.New("unlucky")
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.next++
		return c.next, nil
	})
	if err != nil {
		return err
	}
	c.saw(t, name, string(got))
	*out = append(*out, string(got))
	return nil
}

// saw checks that a run is given back one and the same output of a step, by
// whatever attempt asks for it.
func (c *chaos) saw(t *enginetest.Task, name, output string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := t.Attempt.Meta.RunID + " " + name
	if before, ok := c.recorded[k]; ok && before != output {
		c.Errorf("%s was %s and is %s (attempt %d)", k, before, output, t.Attempt.Meta.Attempt)
	}
	c.recorded[k] = output
}

// start adds an engine.
func (c *chaos) start() {
	d := &disturbed{}
	view := &enginetest.Store{Store: c.db, Between: func(ctx context.Context, op string, call func() error) error {
		d.mu.Lock()
		cut, stall := d.cut, time.Until(d.stall)
		d.mu.Unlock()
		switch {
		case cut:
			<-ctx.Done()
			return ctx.Err()
		case stall > 0 && (op == "Renew" || op == "Claim" || op == "Register"):
			time.Sleep(stall)
		}
		return c.fault.Between(ctx, op, call)
	}}
	e, err := engine.New(engine.Config{Store: view, Deployment: c.serve(), Lease: 10 * time.Second})
	if err != nil {
		c.Fatal(err)
	}
	d.Engine = e
	for e.Start(c.Context()) != nil {
		time.Sleep(time.Second) // refused or lost: as an operator would
	}
	c.engines = append(c.engines, d)
}

// run is the schedule: five minutes of trouble, then peace until all is over.
func (c *chaos) run() {
	for range 3 {
		c.start()
	}
	for range 40 {
		for range 3 {
			res, err := c.calm.Enqueue(c.Context(), engine.Request{Job: "parent"})
			if err != nil {
				c.Fatal(err)
			}
			c.runs = append(c.runs, res.ID)
		}
		time.Sleep(c.some(10 * time.Second))
		c.trouble()
	}
	c.fault.Calm()
	c.start()
	for _, d := range c.engines[:len(c.engines)-1] {
		if d.isCut() || c.intn(2) == 0 {
			if err := d.Close(); err != nil && !d.isCut() {
				c.Error(err)
			}
		}
	}
	deadline := time.Now().Add(3 * time.Hour)
	for !c.over() && time.Now().Before(deadline) {
		time.Sleep(10 * time.Second)
	}
	for _, d := range c.engines {
		if err := d.Close(); err != nil && !d.isCut() {
			c.Error(err)
		}
	}
	time.Sleep(5 * time.Minute) // calls on dead connections give up
}

func (d *disturbed) isCut() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.cut
}

// trouble is one thing that happens.
func (c *chaos) trouble() {
	d := c.engines[c.intn(len(c.engines))]
	id := c.runs[c.intn(len(c.runs))]
	switch c.intn(8) {
	case 0: // killed, or behind a dead network: it is not heard of again
		d.mu.Lock()
		d.cut = true
		d.mu.Unlock()
		c.start()
	case 1, 2: // paused, for up to three leases
		d.mu.Lock()
		d.stall = time.Now().Add(c.some(30 * time.Second))
		d.mu.Unlock()
	case 3: // redeployed
		ctx, cancel := context.WithTimeout(c.Context(), c.some(10*time.Second))
		err := d.Drain(ctx)
		cancel()
		if err == nil {
			for !d.isCut() && d.Start(c.Context()) != nil {
				time.Sleep(time.Second)
			}
		}
	case 4:
		d.Stop()
		c.start()
	case 5:
		if _, err := c.calm.Cancel(c.Context(), id, "chaos"); err == nil {
			c.touch(id)
		}
	case 6:
		if _, err := c.calm.Retry(c.Context(), store.RequeueParams{ID: id}); err == nil {
			c.touch(id)
		}
	}
}

func (c *chaos) touch(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.touched[id] = true
}

// buried are the codes under which a run may honestly die here: its workers
// were killed, or an attempt of a once step was.
var buried = map[string]bool{
	job.CodeWorkerLost: true, job.CodeMaxAttempts: true, job.CodeStepOutcomeUnknown: true, "": true,
	job.CodeTimeout: true, job.CodeDatabaseFull: true,
}
