package chaostest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// kind is one sort of trouble.
type kind string

const (
	kill    kind = "kill"    // SIGKILL, and a new process in its place
	pause   kind = "pause"   // SIGSTOP for longer than the lease, then SIGCONT
	drain   kind = "drain"   // SIGTERM, and a new process in its place, as a deploy does
	cut     kind = "cut"     // all connections of a process
	stall   kind = "stall"   // its bytes are held back, often for longer than the lease, and then arrive
	delay   kind = "delay"   // its bytes are late
	restart kind = "restart" // the server stops in immediate mode and comes back
)

// action is one thing that happens.
type action struct {
	at     time.Duration // from the start
	kind   kind
	target int           // of the processes, the last of which is the test's own client
	length time.Duration // how long it lasts
	by     time.Duration // of a delay: how late
}

func (a action) String() string {
	s := fmt.Sprintf("%7.2fs %-7s", a.at.Seconds(), a.kind)
	if a.kind != restart {
		s += fmt.Sprintf(" of %d", a.target)
	}
	if a.length > 0 {
		s += fmt.Sprintf(" for %v", a.length.Round(time.Millisecond))
	}
	if a.by > 0 {
		s += fmt.Sprintf(" by %v", a.by.Round(time.Millisecond))
	}
	return s
}

// plan is the whole schedule of a seed: something about every second, every kind
// at least once if there is time.
func plan(rng *rand.Rand, length time.Duration) []action {
	some := func(least, most time.Duration) time.Duration {
		return least + time.Duration(rng.Float64()*float64(most-least))
	}
	kinds := []kind{kill, pause, drain, cut, stall, delay, restart}
	rng.Shuffle(len(kinds), func(i, j int) { kinds[i], kinds[j] = kinds[j], kinds[i] })
	weighted := []kind{kill, kill, kill, pause, pause, drain, cut, cut, stall, delay, delay, restart}
	var all []action
	for at := some(200*time.Millisecond, time.Second); at < length; at += some(200*time.Millisecond, 1800*time.Millisecond) {
		a := action{at: at, kind: weighted[rng.IntN(len(weighted))], target: rng.IntN(workers)}
		if n := len(all); n < len(kinds) {
			a.kind = kinds[n]
		}
		switch a.kind {
		case pause:
			a.length = some(lease*6/5, lease*5/2)
		case stall:
			a.length, a.target = some(lease/2, lease*2), rng.IntN(workers+1)
		case cut:
			a.target = rng.IntN(workers + 1)
		case delay:
			a.length, a.by = some(time.Second, 5*time.Second), some(5*time.Millisecond, 200*time.Millisecond)
		case restart:
			a.length = some(0, 3*time.Second)
		}
		all = append(all, a)
	}
	return all
}

func printed(all []action) string {
	lines := make([]string, len(all))
	for i, a := range all {
		lines[i] = a.String()
	}
	return strings.Join(lines, "\n")
}

func TestASeedIsASchedule(t *testing.T) {
	of := func(seed uint64) []action { return plan(rand.New(rand.NewPCG(seed, 1)), time.Minute) }
	if !slices.Equal(of(7), of(7)) || slices.Equal(of(7), of(8)) {
		t.Error("a seed does not decide the schedule")
	}
	for _, k := range []kind{kill, pause, drain, cut, stall, delay, restart} {
		if !slices.ContainsFunc(of(7), func(a action) bool { return a.kind == k }) {
			t.Errorf("in a minute no %s:\n%s", k, printed(of(7)))
		}
	}
}
