package chaostest

import (
	"strings"
	"syscall"
	"time"
)

// troubleProcess is what happens to a process, or to its connections, for as long
// as it lasts.
func (c *chaos) troubleProcess(a action) {
	p := c.proxies[a.target]
	switch a.kind {
	case kill:
		c.workers[a.target].signal(syscall.SIGKILL)
	case drain:
		c.workers[a.target].signal(syscall.SIGTERM)
	case pause:
		c.workers[a.target].pause(a.length)
	case cut:
		p.cut()
	case stall:
		p.setStall(true)
		time.Sleep(a.length)
		p.setStall(false) // what was written then arrives now, whoever has given up waiting for it
	case delay:
		p.setDelay(a.by)
		time.Sleep(a.length)
		p.setDelay(0)
	case overtake:
		c.overtake(a)
	case haunt:
		c.haunt(a)
	}
}

// How long what follows is waited for, and how long the run that was claimed
// again is kept at it once the late write is on its way.
const (
	trapPatience = 8 * time.Second
	nextPatience = 15 * time.Second
	arrival      = 400 * time.Millisecond
)

// within reports whether c is closed in time.
func within(c <-chan struct{}, d time.Duration) bool {
	select {
	case <-c:
		return true
	default:
	}
	select {
	case <-c:
		return true
	case <-time.After(d):
		return false
	}
}

// overtake has a process's write come after another has claimed its run, and is at
// it.
func (c *chaos) overtake(a action) {
	w, p := c.workers[a.target], c.proxies[a.target]
	t := &trap{step: min(a.step, 2)}
	var end *ghost // of a run, whose output has all tokens
	t.spring = func(tokens []string) {
		switch {
		case a.step == 3:
			end = p.await(strings.Join(tokens, `","`), true)
		case a.stops:
			w.signal(syscall.SIGSTOP)
		default:
			p.setStall(true)
		}
	}
	c.effects.set(w.name, t)
	defer c.effects.unset(w.name, t)
	if !within(t.sprung, trapPatience) && !c.effects.disarm(w.name, t) {
		return
	}
	if end == nil || within(end.seen, trapPatience) {
		within(t.next, nextPatience)
	}
	switch {
	case end != nil:
		p.dismiss(end)
	case a.stops:
		w.signal(syscall.SIGCONT)
	default:
		p.setStall(false)
	}
	c.sprung(a, t)
}

// haunt has a write of a process arrive twice, the second time when the run has
// been claimed again, by the same process: either the end of an attempt that
// failed, or, once, the record of a step whose attempt has run out of time.
func (c *chaos) haunt(a action) {
	for until := time.Now().Add(trapPatience); time.Now().Before(until) && !c.hauntOnce(a); {
	}
}

// hauntOnce reports whether a write was found that is such a one.
func (c *chaos) hauntOnce(a action) bool {
	w, p := c.workers[a.target], c.proxies[a.target]
	t := &trap{step: a.step, timed: a.timed, refuses: !a.timed}
	var g *ghost
	t.spring = func(tokens []string) { g = p.await(tokens[a.step], false) }
	c.effects.set(w.name, t)
	defer c.effects.unset(w.name, t)
	if !within(t.sprung, trapPatience) && !c.effects.disarm(w.name, t) {
		c.note("haunt of nobody")
		return true
	}
	defer p.dismiss(g)
	select {
	case <-g.seen:
	case <-g.passed:
		c.note("haunt in company")
		return false
	case <-time.After(trapPatience):
		c.note("haunt of no write")
		return true
	}
	if a.timed {
		time.Sleep(tight)
	}
	others := c.others(a.target)
	for _, p := range others {
		p.setStall(true)
	}
	close(g.hangUp)
	within(t.next, lease*2/3)
	for _, p := range others {
		p.setStall(false)
	}
	within(t.next, nextPatience)
	close(g.arrive)
	c.sprung(a, t)
	return true
}

// others are the proxies of the other workers.
func (c *chaos) others(of int) (out []*proxy) {
	for i, p := range c.proxies[:workers] {
		if i != of {
			out = append(out, p)
		}
	}
	return out
}

// sprung keeps the run that was claimed again, if it was, until the late write has
// arrived.
func (c *chaos) sprung(a action, t *trap) {
	if !within(t.next, 0) {
		return
	}
	c.note(string(a.kind) + " in time")
	time.Sleep(arrival)
}
