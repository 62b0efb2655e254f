package sim_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/internal/enginetest"
)

// saga books one thing after the other, and may fail for good at its end or in
// its midst: then what it booked is undone.
func (a *walk) saga(rng *rand.Rand) (any, error) {
	n := 1 + rng.IntN(4)
	fails := rng.IntN(2) == 0
	for i := range n {
		a.Work(instant(a.chance(fmt.Sprint("begin", i))))
		var err error
		switch kind, name, d := rng.IntN(10), fmt.Sprint(i), time.Duration(rng.Float64()*float64(10*time.Second)); kind {
		case 6:
			err = a.step("step"+name, true)
		case 7:
			err = a.Sleep("sleep"+name, d)
		case 8:
			err = a.enqueueInside("send"+name, d)
		case 9:
			err = a.invoke("inner"+name, rng)
		default:
			err = a.book(bookings + name)
		}
		if err != nil {
			return nil, err
		}
	}
	switch a.chance("saga").IntN(12) {
	case 0:
		panic("a trap")
	case 1:
		a.Deaf(deaf)
	case 2:
		a.Work(2 * time.Minute) // longer than its timeout
	case 3:
		return nil, errors.New("unlucky")
	}
	if fails {
		return nil, enginetest.Terminal("SIM_SAGA", "for good")
	}
	return a.out, nil
}

// book is a step that can be undone. Either sometimes fails.
func (a *walk) book(name string) error {
	got, err := a.Undoable(name, func() (any, error) {
		a.Work(time.Duration(a.chance("body"+name).Float64() * float64(2*time.Second)))
		a.alive()
		if a.chance("unlucky"+name).IntN(8) == 0 {
			return nil, errors.New("unlucky")
		}
		return a.p.w.book.body(a.run, name), nil
	}, func() error {
		a.alive()
		a.p.w.book.undoes(a.p, a.run, name)
		switch a.chance("undo" + name).IntN(12) {
		case 0:
			return errors.New("not undone yet")
		case 1:
			panic("a trap while undoing")
		case 2:
			a.Deaf(deaf)
		}
		a.Work(time.Duration(a.chance("undoing"+name).Float64() * float64(2*time.Second)))
		a.alive()
		return nil
	})
	if err != nil {
		return err
	}
	a.give(name, got)
	return nil
}

// invoke has some children run, and waits for them.
func (a *walk) invoke(name string, rng *rand.Rand) error {
	n, limit, picky := 1+rng.IntN(4), rng.IntN(3), rng.IntN(4) == 0
	deep := strings.Count(a.label, "/") >= 2
	runs := make([]abi.EnqueueParams, n)
	for i := range runs {
		runs[i] = a.child(fmt.Sprint(name, ".", i), 0)
		runs[i].DelayMS = 0
		runs[i].Abandon = rng.IntN(4) == 0
		if kind := rng.IntN(6); kind < 2 && !deep && runs[i].Key == "" {
			runs[i].Job = []string{"family", "saga"}[kind]
		}
	}
	if a.chance("before"+name).IntN(8) == 0 {
		return enginetest.Terminal("SIM_CHILD", "before or amid its children")
	}
	results, err := a.Invoke(limit, runs...)
	if err != nil {
		return err
	}
	failed := ""
	for i, r := range results {
		got := string(r.Output)
		if r.Failure != nil {
			got, failed = "failure "+r.Failure.Code, r.Failure.Code
		}
		a.give(a.invoked(runs[i].Job), json.RawMessage(got))
	}
	a.Work(instant(a.chance(name)))
	if picky && failed != "" {
		return enginetest.Terminal("SIM_CHILD", "a child ended with "+failed)
	}
	return nil
}

// nest waits for runs of its own job, of which one runs at a time.
func (a *walk) nest(name string, rng *rand.Rand) error {
	runs := make([]abi.EnqueueParams, 1+rng.IntN(2))
	for i := range runs {
		runs[i] = abi.EnqueueParams{Job: "nest", Input: encoded(fmt.Sprint(a.label, "/", name, ".", i))}
	}
	results, err := a.Invoke(rng.IntN(2), runs...)
	if err != nil {
		return err
	}
	for _, r := range results {
		got := string(r.Output)
		if r.Failure != nil {
			got = "failure " + r.Failure.Code
		}
		a.give(a.invoked("nest"), json.RawMessage(got))
	}
	return nil
}

// invoked is the name of the record of a child.
func (a *walk) invoked(job string) string {
	a.children[job]++
	return fmt.Sprintf("invoke:%s:%d", job, a.children[job])
}

// topic is of all events.
const topic = "news"

// subjects are the keys of events.
var subjects = []string{"", "x", "y"}

// publish has events of a run, in a step of its own or of another.
func (a *walk) publish(name string, rng *rand.Rand) error {
	subject := subjects[rng.IntN(len(subjects))]
	if rng.IntN(2) == 0 {
		return a.Publish(topic, subject, fmt.Sprint(a.run, " ", name, " ", a.p.w.book.body(a.run, name+"!")))
	}
	got, err := a.Step(name, func() (any, error) {
		a.Work(instant(a.chance(name)))
		a.alive()
		if err := a.Publish(topic, subject, fmt.Sprint(a.run, " ", name, " ", a.p.w.book.body(a.run, name+"!"))); err != nil {
			return nil, err
		}
		if a.chance("unlucky"+name).IntN(4) == 0 {
			return nil, errors.New("after the event")
		}
		return a.p.w.book.body(a.run, name), nil
	})
	if err != nil {
		return err
	}
	a.give(name, got)
	return nil
}

// listen waits for some events, one after the other.
func (a *walk) listen(n int, rng *rand.Rand) (any, error) {
	last, subject := int64(0), subjects[rng.IntN(len(subjects))]
	for i := range n {
		name := fmt.Sprint("wait", i)
		payload, err := a.Wait(name, topic, subject, 20*time.Second)
		var r *abi.Refusal
		if errors.As(err, &r) && r.Code == abi.CodeTimeout {
			a.give(name, nil)
			continue
		}
		if err != nil {
			return nil, err
		}
		a.give(name, payload)
		last = a.p.w.book.heard(a.p, a.run, name, string(payload), last)
		a.Work(instant(a.chance(name)) * 2000)
	}
	return a.out, nil
}
