package worker

import (
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/limit"
	"github.com/jobrunner/runner/engine/manifest"
	"github.com/jobrunner/runner/engine/store"
)

// recheckEvery is how often a claim of a limited queue looks behind every gate,
// whether or not a run is known to have ended there: a limit that was raised
// while nothing ended.
const recheckEvery = time.Minute

// limitWait is how soon after the end of a run in a limited queue the next claim
// comes: others may end meanwhile.
const limitWait = time.Millisecond

// limits are what this process's claims are held to. Safe for concurrent use.
type limits struct {
	mu       sync.Mutex
	manifest *manifest.Manifest
	queues   map[string]*limit.Queue // of the manifest and of strays; nil for a queue without
	strays   map[string][]string     // jobs of other queues that one has runs of
	here     map[string]map[string]int
	checked  map[string]time.Time
}

// configure takes the limits of a manifest.
func (l *limits) configure(m *manifest.Manifest) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.manifest = m
	l.queues = make(map[string]*limit.Queue, len(m.Queues))
	l.checked = map[string]time.Time{}
	if l.here == nil {
		l.here, l.strays = map[string]map[string]int{}, map[string][]string{}
	}
}

// of is what a claim of the queue keeps to now.
func (l *limits) of(queue string) *limit.Queue {
	q, ok := l.queues[queue]
	if !ok {
		q = l.manifest.Limits(queue, l.strays[queue]...)
		l.queues[queue] = q
	}
	return q
}

// apply adds the limits to what is asked of each queue.
func (l *limits) apply(asked []store.QueueLimit) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	for i := range asked {
		a := &asked[i]
		q := l.of(a.Queue)
		if q == nil {
			continue
		}
		if q.TenantHere > 0 {
			with := *q
			with.Here = maps.Clone(l.here[a.Queue])
			q = &with
		}
		a.Limits = q
		if at, ok := l.checked[a.Queue]; !ok || now.Sub(at) >= recheckEvery {
			l.checked[a.Queue], a.Recheck = now, true
		}
	}
}

// limited reports whether runs of the queue are held to limits.
func (l *limits) limited(queue string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.of(queue) != nil
}

// stray reports whether a run was claimed without the limits of its job, as one
// can be whose job is in another queue now. The queue's claims keep to them from
// now on. asked is what the claim was asked for.
func (l *limits) stray(r *job.Run, asked []store.QueueLimit) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	j, ok := l.manifest.Jobs[r.Job]
	if !ok || !j.Limited() {
		return false
	}
	for _, a := range asked {
		if a.Queue != r.Queue || a.Limits == nil {
			continue
		}
		if _, ok := a.Limits.Jobs[r.Job]; ok {
			return false
		}
	}
	if !slices.Contains(l.strays[r.Queue], r.Job) {
		l.strays[r.Queue] = append(l.strays[r.Queue], r.Job)
		delete(l.queues, r.Queue)
	}
	return true
}

// begun and ended count the attempts of a tenant, while their guests may run:
// whether or not that is limited now, since a deploy may limit it meanwhile.
func (l *limits) begun(r *job.Run) {
	l.mu.Lock()
	defer l.mu.Unlock()
	of := l.here[r.Queue]
	if of == nil {
		of = map[string]int{}
		l.here[r.Queue] = of
	}
	of[r.Tenant]++
}

func (l *limits) ended(r *job.Run) {
	l.mu.Lock()
	defer l.mu.Unlock()
	of := l.here[r.Queue]
	if of[r.Tenant]--; of[r.Tenant] <= 0 {
		delete(of, r.Tenant) // or there would be an entry for every tenant that ever was
	}
}

// refuse ends a run that found its key held, and whose job does not wait for it.
// Its body never began; what it would have waited for is named.
func (w *Worker) refuse(a *attempt, holder string) {
	a.begin(true) // it has no slot to give back
	failure := job.Failure{
		Code:    job.CodeKeyBusy,
		Message: "run " + holder + " holds the concurrency key of this run, whose job does not wait for it",
		Fix:     `enqueue it again when that run has ended, or set when_busy = "wait" for the job`,
	}
	p := store.SettleParams{Ref: a.ref, Outcome: job.Refused, To: job.Failed, Error: &failure}
	if j := w.cfg.Deploy.Manifest().Jobs[a.run.Job]; j != nil {
		p.Retention = j.Retention
	}
	w.cfg.Logger.Debug("jobs.worker.refused", slog.String("run", a.run.ID), slog.String("holder", holder))
	a.write(verdict{params: p}, 0)
}
