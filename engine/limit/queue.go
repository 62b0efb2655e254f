package limit

import (
	"math"
	"strings"
	"time"
)

// Unlimited is the room of what has no limit.
const Unlimited = math.MaxInt32

// Queue is what a claim of one queue keeps to. The zero value limits nothing.
type Queue struct {
	Jobs      map[string]Job // by name; a job that is not in it has no limit
	PerTenant int            // runs at a time of one tenant, over the fleet; 0 is no limit
	Rate      Rate           // of starts; zero is none
	ByTenant  bool           // Rate is each tenant's, not the queue's
	// TenantHere bounds the runs at a time of one tenant in the asking process,
	// which runs those in Here; 0 is no limit.
	TenantHere int
	Here       map[string]int
}

// Job is a job's own limits, over the fleet.
type Job struct {
	Concurrency int // runs at a time; 0 is no limit
	Keyed       bool
	Fail        bool // a run that finds its key held fails instead of waiting
	Rate        Rate
}

// Empty reports whether q limits nothing. A nil q does not.
func (q *Queue) Empty() bool {
	return q == nil || len(q.Jobs) == 0 && q.PerTenant == 0 && q.Rate.None() && q.TenantHere == 0
}

// Kind is the first part of a gate's name.
type Kind string

// The kinds of gates.
const (
	KindJob   Kind = "job"
	KindKey   Kind = "job-key"
	KindRate  Kind = "rate"
	KindPause Kind = "pause"
)

var escape = strings.NewReplacer("%", "%25", ":", "%3A")
var unescape = strings.NewReplacer("%25", "%", "%3A", ":")

// JobGate is the gate of a job's concurrency.
func JobGate(job string) string { return string(KindJob) + ":" + job }

// KeyGate is the gate of a job's concurrency for one key. A colon in the job's
// name cannot make it another job's.
func KeyGate(job, key string) string { return string(KindKey) + ":" + escape.Replace(job) + ":" + key }

// RateGate is where runs of a job wait for its rate.
func RateGate(job string) string { return string(KindRate) + ":" + job }

// PauseGate is where runs of a paused job wait.
func PauseGate(job string) string { return string(KindPause) + ":" + job }

// ParseGate takes a gate's name apart; another build's kind is answered as it is.
func ParseGate(gate string) (kind Kind, job, key string) {
	k, rest, _ := strings.Cut(gate, ":")
	if kind = Kind(k); kind == KindKey {
		job, key, _ = strings.Cut(rest, ":")
		return kind, unescape.Replace(job), key
	}
	return kind, rest, ""
}

// gate is the one that a run of the job passes, "" for none. own is what its
// enqueuer rendered. A run that was enqueued before its job had a key has none:
// those share a gate, so that no run of a keyed job ever runs beside its limit.
func (q *Queue) gate(job, own string) (string, Job) {
	l := q.Jobs[job]
	switch {
	case l.Concurrency == 0:
		return "", l
	case !l.Keyed:
		return JobGate(job), l
	}
	if kind, of, _ := ParseGate(own); kind == KindKey && of == job {
		return own, l
	}
	return KeyGate(job, ""), l
}

// Rate is a number of starts in a time. They are spaced evenly over it, and what
// a quiet spell saves up is Limit at most: over any span t there are no more than
// Limit + Limit·t/Per starts. The zero Rate is none.
//
// While a rate is being changed, versions share its state: there are no more starts
// than the greater allows if Per is one, else than both together do.
type Rate struct {
	Limit int
	Per   time.Duration
}

// None reports whether r limits nothing.
func (r Rate) None() bool { return r.Limit <= 0 || r.Per <= 0 }

// interval is the time between two starts, in nanoseconds, rounded so that there
// is never one too many.
func (r Rate) interval() int64 {
	return max((int64(r.Per)+int64(r.Limit)-1)/int64(r.Limit), 1)
}

// A Rate's state is one number, kept by the database: the instant, in Unix
// nanoseconds, at which all that was started will have been paid for. A new
// rate's is 0. It needs no clock to be kept: nothing is lost or given away by a
// restart.

// Available is how many may start at now, in Unix nanoseconds.
func (r Rate) Available(state, now int64) int {
	if r.None() {
		return Unlimited
	}
	t := r.interval()
	// A clock that was set back costs one window at most.
	state = min(max(state, now), now+t*int64(r.Limit))
	return int((now + t*int64(r.Limit) - state) / t)
}

// Spend is the state after n more starts.
func (r Rate) Spend(state, now int64, n int) int64 {
	t := r.interval()
	return min(max(state, now), now+t*int64(r.Limit)) + t*int64(n)
}

// Next is when the next may start, given that none may at now.
func (r Rate) Next(state, now int64) int64 {
	t := r.interval()
	state = min(max(state, now), now+t*int64(r.Limit))
	return max(state+t-t*int64(r.Limit), now)
}
