package chaostest

import (
	"strings"
	"sync"
)

// trap waits until a process asks for the token of a step, which is the moment
// before the step is recorded. It holds one run: whichever comes by first of those
// that are alone in their tenant, and so are claimed again as soon as they are due.
type trap struct {
	step    int
	timed   bool // only a run whose attempts have a tight deadline
	refuses bool // the token is not given: the attempt ends, to be tried again
	holds   bool // nothing is answered, which spring decides
	// spring has the trouble begin, before the answer, which is the last of tokens.
	spring func(tokens []string)

	sprung chan struct{} // closed when a run is in it
	next   chan struct{} // closed when a later attempt of the run has an effect
	free   chan struct{} // closed to have that attempt go on

	// Guarded by effects.mu.
	run       string
	attempt   int
	overtaken sync.Once
}

// set sets a trap for a process. It is to be taken away again.
func (e *effects) set(process string, t *trap) {
	t.sprung, t.next, t.free = make(chan struct{}), make(chan struct{}), make(chan struct{})
	e.mu.Lock()
	defer e.mu.Unlock()
	e.traps[process] = t
}

// unset takes a trap away. Whoever waits goes on.
func (e *effects) unset(process string, t *trap) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.traps[process] == t {
		delete(e.traps, process)
	}
	close(t.free)
}

// disarm has no run come into a trap any more, and reports whether one is in it,
// which has been waited for then.
func (e *effects) disarm(process string, t *trap) (sprung bool) {
	e.mu.Lock()
	if sprung = t.run != ""; !sprung {
		delete(e.traps, process)
	}
	e.mu.Unlock()
	if sprung {
		<-t.sprung
	}
	return sprung
}

// trapped returns the trap that an effect of a process springs; nil if none.
func (e *effects) trapped(process string, in effect) *trap {
	e.mu.Lock()
	defer e.mu.Unlock()
	t := e.traps[process]
	if t == nil || t.run != "" || t.step != in.Step || !strings.HasPrefix(in.Tenant, alone) || t.timed && !in.Timed {
		return nil
	}
	t.run, t.attempt = in.Run, in.Attempt
	return t
}

// close has the trouble begin.
func (t *trap) close(tokens []string) {
	t.spring(tokens)
	close(t.sprung)
}

// overtakes are the traps with an earlier attempt of the run in them.
func (e *effects) overtakes(in effect) (all []*trap) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, t := range e.traps {
		if t.run == in.Run && t.attempt < in.Attempt {
			t.overtaken.Do(func() { close(t.next) })
			all = append(all, t)
		}
	}
	return all
}
