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
	// A process is stopped, or cut off from the server, between what a step did and
	// the record of it, until another has claimed the run and is at it. Then it goes on.
	overtake kind = "overtake"
	// A write of it arrives once more, when the run has been claimed again.
	haunt kind = "haunt"

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

var (
	ofProcess = []kind{kill, pause, drain, cut, stall, delay, overtake, haunt}
	ofServer  = []kind{restart, reboot, evict, lock, deny, lockout, readonly, squeeze, hurry}
	// often are those of a process that there is most to be found by.
	often = []kind{kill, kill, pause, pause, cut, cut, delay, stall, stall, overtake, overtake, overtake, overtake, haunt, haunt, haunt, haunt}
)

// ofServer reports whether the trouble is the server's.
func (k kind) ofServer() bool {
	return slices.Contains(ofServer, k) || slices.Contains([]kind{promote, full, jump}, k)
}

// action is one thing that happens.
type action struct {
	at     time.Duration // from the start
	kind   kind
	target int           // of the processes, the last of which is the test's own client
	length time.Duration // how long it lasts
	by     time.Duration // of a delay: how late
	step   int           // whose record is late; 3 is the run's end
	stops  bool          // the process, rather than its connections
	timed  bool          // the write is of an attempt whose time has run out; else of one that failed
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
	if a.kind == overtake || a.kind == haunt {
		s += fmt.Sprintf(" at %d", a.step)
	}
	if a.stops {
		s += " stopped"
	}
	if a.timed {
		s += " timed out"
	}
	return s
}

// planParams are what a schedule follows from.
type planParams struct {
	rng     *rand.Rand
	length  time.Duration
	every   time.Duration // between two troubles, about
	only    string        // kinds, separated by commas; "" is all
	promote bool
	full    bool
	jump    bool
}

// plan is the whole schedule of a seed: every kind at least once if there is time,
// and one trouble of the server's at a time, with time between them in which
// there is none. Otherwise nobody would get to work.
func plan(p planParams) []action {
	rng := p.rng
	some := func(least, most time.Duration) time.Duration {
		return least + time.Duration(rng.Float64()*float64(most-least))
	}
	server := slices.Clone(ofServer)
	if p.full {
		server = append(server, full, full)
	}
	if p.jump {
		server = append(server, jump, jump)
	}
	process, often := ofProcess, often
	if p.only != "" {
		unwanted := func(k kind) bool { return !slices.Contains(strings.Split(p.only, ","), string(k)) }
		server = slices.DeleteFunc(server, unwanted)
		process = slices.DeleteFunc(slices.Clone(process), unwanted)
		often = process
	}
	shuffled := func(kinds []kind) []kind {
		kinds = slices.Clone(kinds)
		rng.Shuffle(len(kinds), func(i, j int) { kinds[i], kinds[j] = kinds[j], kinds[i] })
		return kinds
	}
	first, firstOfServer := shuffled(process), shuffled(server)
	pick := func(first *[]kind, rest []kind) (k kind) {
		if len(*first) > 0 {
			k, *first = (*first)[0], (*first)[1:]
			return k
		}
		return rest[rng.IntN(len(rest))]
	}
	var all []action
	var calm time.Duration // no trouble of the server's before
	for at := some(p.every/5, p.every); at < p.length; at += some(p.every/5, p.every*9/5) {
		a := action{at: at, target: rng.IntN(workers)}
		switch {
		case len(server) > 0 && at >= calm && (len(firstOfServer) > 0 || rng.IntN(2) == 0):
			a.kind = pick(&firstOfServer, server)
		case len(process) > 0:
			a.kind = pick(&first, often)
		default:
			continue
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
		case overtake:
			a.step, a.stops = rng.IntN(4), rng.IntN(2) == 0
		case haunt:
			a.step, a.timed = rng.IntN(3), rng.IntN(2) == 0
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
		if a.kind.ofServer() {
			calm = at + a.length + some(2*time.Second, 2*time.Second+2*p.every)
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
		return plan(planParams{rng: rand.New(rand.NewPCG(seed, 1)), length: time.Minute, every: time.Second})
	}
	if !slices.Equal(of(7), of(7)) || slices.Equal(of(7), of(8)) {
		t.Error("a seed does not decide the schedule")
	}
	for _, k := range append(slices.Clone(ofProcess), ofServer...) {
		if !slices.ContainsFunc(of(7), func(a action) bool { return a.kind == k }) {
			t.Errorf("in a minute no %s:\n%s", k, printed(of(7)))
		}
	}
}
