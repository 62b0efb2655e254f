package sim_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/limit"
	"github.com/jobrunner/runner/engine/store"
)

// gateIn is the limit of concurrency that a version puts a run under, and how many
// may run there at a time; "" is none.
func (b *book) gateIn(version int64, r *job.Run) (gate string, most int) {
	c := b.w.manifests[version].Jobs[r.Job].Concurrency
	switch {
	case c.Limit == 0:
		return "", 0
	case !c.Keyed:
		return r.Job, c.Limit
	}
	_, _, key := limit.ParseGate(r.Gate)
	return r.Job + " " + key, c.Limit
}

// shareIn is the share of a queue that a version counts a run towards.
func (b *book) shareIn(version int64, r *job.Run) (share string, most int) {
	if most = b.w.manifests[version].Queues[r.Queue].PerTenant; most > 0 {
		share = "tenant " + r.Tenant + " in " + r.Queue
	}
	return share, most
}

// place is what a claim that was made under limits takes up, for as long as its
// run is running under it.
type place struct{ gate, share string }

// takes notes what the runs of a claim take up, and checks that there was room for
// them by the limits of the process that claimed, whatever other versions say.
func (b *book) takes(version int64, p store.ClaimParams, res store.ClaimResult) {
	most := map[string]int{}
	for i := range res.Runs {
		r := &res.Runs[i]
		if _, busy := res.Busy[r.ID]; busy {
			continue
		}
		ref := claimOf(r)
		ref.Worker = p.Worker
		if b.strays(version, p, r) {
			b.stray[ref] = true // it is given back, and then its queue's claims know of it
			continue
		}
		var at place
		for _, x := range []struct {
			of    *string
			limit func(int64, *job.Run) (string, int)
		}{{&at.gate, b.gateIn}, {&at.share, b.shareIn}} {
			name, n := x.limit(version, r)
			*x.of = name
			if name != "" {
				most[name] = n
			}
		}
		b.places[ref] = at
	}
	count := b.taken()
	for _, name := range slices.Sorted(maps.Keys(most)) {
		if count[name] > most[name] {
			b.wrong("a claim by version %d left %d runs of %s running, of which %d may", version, count[name], name, most[name])
		}
	}
}

// strays reports whether a run is of a job that the version has in another queue,
// and the claim did not know of.
func (b *book) strays(version int64, p store.ClaimParams, r *job.Run) bool {
	j := b.w.manifests[version].Jobs[r.Job]
	if j.Queue == r.Queue || !j.Limited() {
		return false
	}
	for _, q := range p.Queues {
		if q.Queue == r.Queue && q.Limits != nil {
			_, known := q.Limits.Jobs[r.Job]
			return !known
		}
	}
	return true
}

// taken counts what is taken up of each gate and share.
func (b *book) taken() map[string]int {
	count := map[string]int{}
	for ref, at := range b.places {
		if !holds(b.runs, ref) {
			delete(b.places, ref) // for good: no claim is the run's again
			continue
		}
		count[at.gate]++
		count[at.share]++
	}
	delete(count, "")
	return count
}

// crowds checks how many run at a time: no more than any version lets.
func (b *book) crowds(op string) {
	count := b.taken()
	for ref, at := range b.places {
		r := b.runs[ref.RunID]
		for name, limit := range map[string]func(int64, *job.Run) (string, int){at.gate: b.gateIn, at.share: b.shareIn} {
			most := 0
			for v := int64(1); v <= versions; v++ {
				_, n := limit(v, &r)
				most = max(most, n)
			}
			if count[name] > most {
				b.wrong("%s: %d runs of %s run, of which %d may", op, count[name], name, most)
			}
		}
	}
}

// enters notes an attempt that is inside a handler until leave: a process may have
// a limit of its own of those of a tenant.
func (b *book) enters(p *process, run string) (leave func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r, is := b.runs[run]
	if !is {
		return func() {}
	}
	inside := p.name + " " + r.Queue + " " + r.Tenant
	b.inside[inside]++
	most, lately := b.w.manifests[p.version.Load()].Queues[r.Queue].TenantWorkers, time.Since(p.switched) < time.Minute
	if n := b.inside[inside]; most > 0 && n > most && !lately && !p.dead.Load() {
		b.wrong("%s runs %d of tenant %s in queue %s at a time, of which %d may there", p.name, n, r.Tenant, r.Queue, most)
	}
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.inside[inside]--
	}
}

func claimOf(r *job.Run) job.Ref { return job.Ref{RunID: r.ID, Worker: r.Worker, Claim: r.Claims} }

// begins checks one run of a claim against pauses, rates and the key it needs.
func (b *book) begins(res store.ClaimResult, r job.Run) {
	name := b.label(r.ID)
	if b.isPaused(&r) {
		b.wrong("a claim handed out %s, of which something is paused: %s", name, fmt.Sprint(b.pausedNow()))
	}
	if holder, busy := res.Busy[r.ID]; busy {
		h := b.runs[holder]
		if r.Job != "strict" || h.State != job.Running || h.Gate != r.Gate || holder == r.ID || b.busy[claimOf(&h)] {
			b.wrong("%s is refused for %s, which is %s and no holder of its key", name, b.label(holder), h.State)
		}
		return
	}
	b.spends("job "+r.Job, "", name)
	b.spends("queue "+r.Queue, r.Tenant, name)
}

func (b *book) isPaused(r *job.Run) bool {
	return b.pauses[pauseOf{store.PauseQueue, r.Queue}] || b.pauses[pauseOf{store.PauseJob, r.Job}] || r.Tenant != "" && b.pauses[pauseOf{store.PauseTenant, r.Tenant}]
}

// overlooked checks what a claim left that could have taken more: nothing that no
// limit holds up, whatever else is held up. Of a limit that another version has
// otherwise only a claim that looks behind every gate knows how it is now: one
// comes with each new version, and each minute.
func (b *book) overlooked(version int64, q store.QueueLimit) {
	m := b.w.manifests[version]
	if m.Queues[q.Queue].TenantWorkers > 0 {
		return // what this process runs itself is its own to know
	}
	if of := "queue " + q.Queue; m.Queues[q.Queue].Rate != nil && m.Queues[q.Queue].Rate.By != "tenant" && !b.affords(of) {
		return
	}
	count := b.taken()
	for id, r := range b.runs {
		if r.Queue != q.Queue || r.State != job.Ready || r.RunAt.After(b.w.now()) || b.isPaused(&r) || m.Jobs[r.Job].Queue != r.Queue {
			continue
		}
		gate, most := b.gateIn(version, &r)
		share, part := b.shareIn(version, &r)
		changes := b.changes(&r)
		switch {
		case gate != "" && count[gate] >= most, share != "" && count[share] >= part:
		case changes && !q.Recheck:
		case m.Jobs[r.Job].Rate != nil && !b.affords("job "+r.Job):
		case m.Queues[r.Queue].Rate != nil && m.Queues[r.Queue].Rate.By == "tenant" && !b.affords("queue "+r.Queue+" of "+r.Tenant):
		default:
			b.wrong("a claim of queue %s had room and left %s, which nothing holds up (it waits behind %q)", q.Queue, b.label(id), r.Blocked)
		}
	}
}

// changes reports whether the limits of a run's job are not the same in all versions.
func (b *book) changes(r *job.Run) bool {
	first := b.w.manifests[1].Jobs[r.Job]
	for v := int64(2); v <= versions; v++ {
		j := b.w.manifests[v].Jobs[r.Job]
		if j.Concurrency.Limit != first.Concurrency.Limit || j.Queue != first.Queue {
			return true
		}
	}
	return false
}

// refused checks that a claim which found its key held ends as refused, or is
// handed back, and no other does.
func (b *book) refused(p *store.SettleParams) {
	busy := b.busy[p.Ref]
	if b.stray[p.Ref] && p.Outcome != job.Shed {
		b.wrong("%s#%d was claimed without the limits of its job, and ended as %s", b.label(p.Ref.RunID), p.Ref.Claim, p.Outcome)
	}
	if busy && p.Outcome != job.Refused && p.Outcome != job.Shed || !busy && p.Outcome == job.Refused {
		b.wrong("%s#%d ended as %s, and found its key held: %v", b.label(p.Ref.RunID), p.Ref.Claim, p.Outcome, busy)
	}
}

// pauseOf is what can be paused.
type pauseOf struct {
	kind store.PauseKind
	name string
}

func (p pauseOf) String() string { return string(p.kind) + " " + p.name }

// setPause notes what is paused.
func (b *book) setPause(p store.PauseParams, changed bool) {
	b.refresh("SetPause")
	of := pauseOf{p.Kind, p.Name}
	if changed != (b.pauses[of] == p.Resume) {
		b.wrong("a pause of %s (resume %v) changed something: %v, and it was paused: %v", of, p.Resume, changed, b.pauses[of])
	}
	b.mu.Lock()
	b.pauses[of] = !p.Resume
	b.mu.Unlock()
}

// paused lists what is.
func (b *book) pausedNow() (out []pauseOf) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for of, is := range b.pauses {
		if is {
			out = append(out, of)
		}
	}
	slices.SortFunc(out, func(x, y pauseOf) int { return strings.Compare(x.String(), y.String()) })
	return out
}

// checkPauses compares the rows with the account.
func (b *book) checkPauses() {
	rows, err := b.w.truth.ListPauses(context.Background())
	if err != nil {
		b.wrong("the pauses cannot be read: %v", err)
	}
	var is []pauseOf
	for _, p := range rows {
		if !p.PausedAt.IsZero() {
			is = append(is, pauseOf{p.Kind, p.Name})
		}
	}
	slices.SortFunc(is, func(x, y pauseOf) int { return strings.Compare(x.String(), y.String()) })
	if want := b.pausedNow(); !slices.Equal(is, want) {
		b.wrong("%s are paused, and %s were", fmt.Sprint(is), fmt.Sprint(want))
	}
}
