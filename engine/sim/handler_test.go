package sim_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"time"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine"
	"github.com/jobrunner/runner/engine/internal/enginetest"
	"github.com/jobrunner/runner/engine/manifest"
)

// versions are how many versions of the handlers there are.
const versions = 2

// input is what every run is given. Its label says which program the handler
// walks, and is what the run is called.
type input struct {
	Label string `json:"label"`
	Lane  string `json:"lane,omitempty"` // key of a concurrency limit
	Org   string `json:"org,omitempty"`  // tenant
	Run   string `json:"run,omitempty"`  // of an ending: the run that ended
}

func encoded(label string) []byte { return input{Label: label}.encoded() }

func (in input) encoded() []byte {
	b, err := json.Marshal(in)
	if err != nil {
		panic(err)
	}
	return b
}

// deployment is what a process serves.
func (w *world) deployment(p *process, version int) engine.Deployment {
	if p == nil {
		p = &process{w: w}
	}
	return enginetest.Serve(p.guest(version), func(m *manifest.Manifest) {
		m.Digest = fmt.Sprint("test ", version)
		w.declare(m, version)
		m.Schedules = map[string]*manifest.Schedule{}
		for i, s := range []manifest.Schedule{
			{Name: "each", Cron: "* * * * *", CatchUp: "run-all", Overlap: "allow"},
			{Name: "last", Cron: "*/2 * * * *", CatchUp: "skip", Overlap: "skip"},
			{Name: "first", Cron: "* * * * *", CatchUp: "run-once", Overlap: "skip", Jitter: 20 * time.Second},
		} {
			spec, err := manifest.ParseCron(s.Cron)
			if err != nil {
				panic(err)
			}
			s.Spec, s.Zone, s.MaxCatchUp = spec, time.UTC, 1+i*3
			s.Enqueue = []manifest.ScheduledRun{{Job: "tick", Input: encoded(s.Name + " {occurrence}")}}
			m.Schedules[s.Name] = &s
		}
	})
}

// walk is one attempt of a handler.
type walk struct {
	*enginetest.Task
	p        *process
	run      string
	label    string
	out      map[string]string // by step: what it was given
	sends    map[string]int    // by job
	children map[string]int    // by job
}

// handler walks the program that a run's label says: the same in every attempt,
// whatever process it is in. Only what happens inside steps, and whether the
// handler fails, differs.
func (p *process) handler(version int) enginetest.Handler {
	return func(t *enginetest.Task) (any, error) {
		var in input
		if err := json.Unmarshal(t.Attempt.Input, &in); err != nil {
			return nil, enginetest.Terminal("SIM_INPUT", err.Error())
		}
		// No two attempts begin, go on or end at one instant: which of them came
		// first would be the runtime's to say, not the seed's.
		if in.Label == "" {
			in.Label = p.w.book.label(t.Attempt.Meta.RunID)
		}
		defer p.sound(in.Label)
		defer p.w.book.enters(p, t.Attempt.Meta.RunID)()
		defer func() { time.Sleep(instant(p.w.dice("end", in.Label, time.Now()))) }()
		a := &walk{
			Task: t, p: p, run: t.Attempt.Meta.RunID, label: in.Label, out: map[string]string{}, sends: map[string]int{}, children: map[string]int{},
		}
		rng := p.w.dice("program", in.Label)
		most := 2
		switch t.Attempt.Handler {
		case "listener", "subscriber":
			return a.listen(3, rng)
		case "saga":
			return a.saga(rng)
		case "family":
			if err := a.invoke("first", rng); err != nil {
				return nil, err
			}
		case "nest":
			most = 1
			if strings.Count(in.Label, "/") < 2 {
				if err := a.nest("inner", rng); err != nil {
					return nil, err
				}
			}
		case "parent":
			most = 5
		}
		for i := range 1 + rng.IntN(most) {
			if err := a.instruction(i, rng); err != nil {
				return nil, err
			}
		}
		// A version may go on where the one before ended.
		if version > 1 {
			if err := a.step("more", false); err != nil {
				return nil, err
			}
		}
		return a.out, nil
	}
}

// sound has a mistake of the simulation itself be none of the handler's traps.
func (p *process) sound(label string) {
	switch x := recover().(type) {
	case nil:
	case runtime.Error:
		p.w.wrong(fmt.Sprintf("the handler of %s is broken: %v", label, x))
	default:
		panic(x)
	}
}

// chance draws what differs between attempts.
func (a *walk) chance(what string) *rand.Rand {
	return a.p.w.dice(what, a.label, a.Attempt.Meta.Attempt, time.Now())
}

// instant is a time that nothing else takes.
func instant(rng *rand.Rand) time.Duration {
	return time.Duration(1 + rng.Int64N(int64(time.Millisecond)))
}

// instruction does one thing. It draws as much from rng whatever happens.
func (a *walk) instruction(i int, rng *rand.Rand) error {
	a.Work(instant(a.chance(fmt.Sprint("begin", i))))
	kind, d := rng.IntN(14), time.Duration(rng.Float64()*float64(20*time.Second))
	name := fmt.Sprint(i)
	switch kind {
	case 0, 1, 2:
		return a.step("step"+name, true)
	case 3:
		return a.step("sure"+name, false)
	case 4:
		return a.onceOnly("once" + name)
	case 5, 6:
		return a.Sleep("sleep"+name, d)
	case 7:
		return a.enqueueInside("send"+name, d)
	case 8:
		return a.enqueueOutside(name, d)
	case 9:
		a.Work(d)
		a.alive()
	case 10:
		if a.chance("limit").IntN(3) == 0 {
			return &enginetest.Fail{Failure: abi.Failure{Kind: abi.FailRateLimited, Message: "later", RetryAfter: d / 4}}
		}
	case 11:
		switch a.chance("fail").IntN(8) {
		case 0:
			return enginetest.Terminal("SIM_TERMINAL", "for good")
		case 1:
			return errors.New("unlucky")
		case 2:
			a.Work(2 * time.Minute) // longer than its timeout
		case 3:
			panic("a trap")
		case 4:
			a.Deaf(deaf) // until long after its timeout
		}
	case 12:
		text := fmt.Sprint("at ", name, " of ", a.p.w.book.body(a.run, name+" line"))
		a.p.w.book.logs(a.p, a.run, text)
		a.Calls.Log(a.Context, abi.LevelInfo, text)
		if d > 10*time.Second { // else they are not saved before the end, perhaps
			a.Work(d)
		}
	case 13:
		return a.publish("told"+name, rng)
	}
	return nil
}

// alive holds the handler of a process that was killed: it does nothing more.
func (a *walk) alive() {
	for a.p.dead.Load() {
		a.Work(time.Hour) // until its context ends, which unwinds it
	}
}

func (a *walk) give(name string, output json.RawMessage) {
	a.alive()
	a.p.w.book.saw(a.p, a.run, name, string(output))
	a.out[name] = string(output)
}

// step runs a body whose output no other body has. One that may fail sometimes does.
func (a *walk) step(name string, mayFail bool) error {
	got, err := a.Step(name, func() (any, error) {
		a.Work(time.Duration(a.chance("body"+name).Float64() * float64(3*time.Second)))
		a.alive()
		if mayFail && a.chance("unlucky"+name).IntN(5) == 0 {
			return nil, errors.New("unlucky")
		}
		return a.p.w.book.body(a.run, name), nil
	})
	if err != nil {
		return err
	}
	a.give(name, got)
	return nil
}

func (a *walk) onceOnly(name string) error {
	got, err := a.Once(name, func() (any, error) {
		a.alive()
		a.p.w.book.once(a.run, name)
		a.Work(time.Duration(a.chance("once"+name).Float64() * float64(time.Second)))
		a.alive()
		return a.p.w.book.body(a.run, name), nil
	})
	if err != nil {
		return err
	}
	a.give(name, got)
	return nil
}

// enqueueInside has a child commit with a step.
func (a *walk) enqueueInside(name string, d time.Duration) error {
	got, err := a.Step(name, func() (any, error) {
		res, err := a.Enqueue(a.child(name, d))
		if err != nil {
			return nil, err
		}
		a.Work(d / 20)
		a.alive()
		if a.chance("unlucky"+name).IntN(5) == 0 {
			return nil, errors.New("after the enqueue")
		}
		return res[0].ID, nil
	})
	if err != nil {
		return err
	}
	a.give(name, got)
	return nil
}

func (a *walk) enqueueOutside(name string, d time.Duration) error {
	params := a.child("out"+name, d)
	res, err := a.Enqueue(params)
	if err != nil {
		return err
	}
	a.give(a.sent(params.Job), json.RawMessage(`"`+res[0].ID+`"`))
	return nil
}

// sent is the name of the record of an enqueue outside steps.
func (a *walk) sent(job string) string {
	a.sends[job]++
	return fmt.Sprintf("enqueue:%s:%d", job, a.sends[job])
}

// child is a run that this one asks for; some have keys that others hold.
func (a *walk) child(name string, d time.Duration) abi.EnqueueParams {
	label := a.label + "/" + name
	p := abi.EnqueueParams{Job: "child", Input: encoded(label)}
	switch a.p.w.dice("child", label).IntN(4) {
	case 0:
		p.DelayMS = d.Milliseconds()
	case 1:
		p.Job, p.Key = "keyed", keys[a.p.w.dice("key", label).IntN(len(keys))]
	}
	return p
}
