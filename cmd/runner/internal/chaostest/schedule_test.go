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
	kill  kind = "kill"  // SIGKILL, and a new process in its place
	pause kind = "pause" // SIGSTOP for longer than the lease, then SIGCONT
	drain kind = "drain" // SIGTERM, and a new process in its place, as a deploy does
	cut   kind = "cut"   // all connections of a process
	stall kind = "stall" // its bytes are held back, often for longer than the lease, and then arrive
	delay kind = "delay" // its bytes are late

	// What follows happens to the server, and so to all.
	restart  kind = "restart"  // it stops in immediate mode, which is a crash, and comes back
	reboot   kind = "reboot"   // it stops in fast mode, as an administrator does it
	evict    kind = "evict"    // every session is ended
	lock     kind = "lock"     // somebody locks the table of running runs
	deny     kind = "deny"     // the role of the workers lacks the privilege to record anything
	lockout  kind = "lockout"  // the role of the workers may not log in
	readonly kind = "readonly" // it takes no writes, as one that became a replica
	squeeze  kind = "squeeze"  // the role of the workers has five connections among all
	hurry    kind = "hurry"    // it ends statements, and transactions that wait, after milliseconds

	// Only where flags say so.
	promote kind = "promote" // it crashes for good, and its streaming replica takes over
	full    kind = "full"    // its disk is full
	jump    kind = "jump"    // its clock goes forward, or back
)

var kinds = []kind{kill, pause, drain, cut, stall, delay, restart, reboot, evict, lock, deny, lockout, readonly, squeeze, hurry}

// ofServer reports whether the trouble is the server's.
func (k kind) ofServer() bool {
	switch k {
	case restart, reboot, evict, lock, deny, lockout, readonly, squeeze, hurry, promote, full, jump:
		return true
	}
	return false
}

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
	if !a.kind.ofServer() {
		s += fmt.Sprintf(" of %d", a.target)
	}
	if a.length > 0 {
		s += fmt.Sprintf(" for %v", a.length.Round(time.Millisecond))
	}
	if a.by != 0 {
		s += fmt.Sprintf(" by %v", a.by.Round(time.Millisecond))
	}
	return s
}

// planParams are what a schedule follows from.
type planParams struct {
	rng     *rand.Rand
	length  time.Duration
	promote bool
	full    bool
	jump    bool
}

// plan is the whole schedule of a seed: something about every second, every kind
// at least once if there is time.
func plan(p planParams) []action {
	rng, length := p.rng, p.length
	some := func(least, most time.Duration) time.Duration {
		return least + time.Duration(rng.Float64()*float64(most-least))
	}
	kinds := slices.Clone(kinds)
	if p.full {
		kinds = append(kinds, full, full)
	}
	if p.jump {
		kinds = append(kinds, jump, jump)
	}
	rng.Shuffle(len(kinds), func(i, j int) { kinds[i], kinds[j] = kinds[j], kinds[i] })
	weighted := append(slices.Clone(kinds), kill, kill, pause, pause, cut, cut, delay, stall, stall, stall)
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
			// Mostly of a worker, for longer than its lease: what it wrote arrives late.
			a.length = some(lease*6/5, lease*3)
			if rng.IntN(4) == 0 {
				a.length, a.target = some(lease/2, lease*2), workers
			}
		case cut:
			a.target = rng.IntN(workers + 1)
		case jump:
			a.by = some(-2*time.Minute, 2*time.Minute)
		case delay:
			a.length, a.by = some(time.Second, 5*time.Second), some(5*time.Millisecond, 200*time.Millisecond)
		case restart, reboot:
			a.length = some(0, 3*time.Second)
		case lock, deny, lockout, readonly, squeeze, hurry, full:
			a.length = some(200*time.Millisecond, lease*3/2)
		}
		all = append(all, a)
	}
	if p.promote && len(all) > 0 {
		a := &all[len(all)/2]
		*a = action{at: a.at, kind: promote}
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
	of := func(seed uint64) []action {
		return plan(planParams{rng: rand.New(rand.NewPCG(seed, 1)), length: time.Minute})
	}
	if !slices.Equal(of(7), of(7)) || slices.Equal(of(7), of(8)) {
		t.Error("a seed does not decide the schedule")
	}
	for _, k := range kinds {
		if !slices.ContainsFunc(of(7), func(a action) bool { return a.kind == k }) {
			t.Errorf("in a minute no %s:\n%s", k, printed(of(7)))
		}
	}
}
