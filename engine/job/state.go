package job

import "fmt"

// State is where a run stands. Its text is the same in every database, API and
// listing.
type State string

const (
	Ready     State = "ready"
	Delayed   State = "delayed"
	Running   State = "running"
	Suspended State = "suspended"
	Done      State = "done"
	Failed    State = "failed"
	Dead      State = "dead"
	Cancelled State = "cancelled"
)

// States are all states in the order in which people list them.
var States = []State{Ready, Delayed, Running, Suspended, Done, Failed, Dead, Cancelled}

// ParseState returns the State that s spells. A text from another build is an
// error, never a guess: treating an unknown state as a known one re-runs work.
func ParseState(s string) (State, error) {
	for _, st := range States {
		if string(st) == s {
			return st, nil
		}
	}
	return "", fmt.Errorf("unknown run state %s", Quote(s))
}

// Live reports whether a run in s still holds its idempotency key.
func (s State) Live() bool {
	return s == Ready || s == Delayed || s == Running || s == Suspended
}

// Terminal reports whether a run in s has ended.
func (s State) Terminal() bool { return !s.Live() }

// Requeueable reports whether an operator may run it again.
func (s State) Requeueable() bool { return s.Terminal() }

// Promotable reports whether an operator may make it due now. A suspended run
// is not: waking a sleeper early breaks its step's promise.
func (s State) Promotable() bool { return s == Ready || s == Delayed }

// Removable reports whether an operator may delete it.
func (s State) Removable() bool { return s != Running }
