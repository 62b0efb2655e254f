package storetest

import (
	"cmp"
	"slices"
	"time"

	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/limit"
	"github.com/jobrunner/runner/engine/store"
)

type pauseKey struct {
	kind store.PauseKind
	name string
}

// rateKey is what has a rate of its own: a job, a queue, a queue's tenant.
type rateKey struct{ job, queue, tenant string }

func (m *model) setPause(p store.PauseParams) (changed bool) {
	k := pauseKey{p.Kind, p.Name}
	if m.isPaused(p.Kind, p.Name) != p.Resume {
		return false
	}
	row := store.Pause{Kind: p.Kind, Name: p.Name, ChangedAt: m.now, By: p.By, Reason: p.Reason}
	if !p.Resume {
		row.PausedAt = m.now
	}
	m.pauses[k] = row
	return true
}

func (m *model) isPaused(kind store.PauseKind, name string) bool {
	return !m.pauses[pauseKey{kind, name}].PausedAt.IsZero()
}

func (m *model) listPauses() (out []store.Pause) {
	for _, p := range m.pauses {
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b store.Pause) int { return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name)) })
	return out
}

// passes is the gate that a run passes under limits.
func passes(r *modelRun, q *limit.Queue) string {
	switch l := q.Jobs[r.Job]; {
	case l.Concurrency == 0:
		return ""
	case !l.Keyed:
		return limit.JobGate(r.Job)
	case r.Gate == "" || r.Gate == limit.JobGate(r.Job): // from before the job had a key
		return limit.KeyGate(r.Job, "")
	}
	return r.Gate
}

// running counts what runs, by a filter.
func (m *model) running(filter func(*modelRun) bool) (n int) {
	for _, r := range m.runs {
		if r.State == job.Running && filter(r) {
			n++
		}
	}
	return n
}

func (m *model) gateFull(r *modelRun, q *limit.Queue) bool {
	gate := passes(r, q)
	return gate != "" && m.running(func(o *modelRun) bool { return o.holds == gate }) >= q.Jobs[r.Job].Concurrency
}

func (m *model) pausedRun(r *modelRun) bool {
	return m.isPaused(store.PauseQueue, r.Queue) || m.isPaused(store.PauseJob, r.Job) || m.isPaused(store.PauseTenant, r.Tenant)
}

// bound names what keeps a run that is due from being claimed under q, "" for
// nothing. If only rates do, until is when they let it start.
func (m *model) bound(r *modelRun, q *limit.Queue) (what string, until time.Time) {
	switch {
	case m.pausedRun(r):
		return "a pause", until
	case m.gateFull(r, q):
		return "gate " + passes(r, q), until
	case q.PerTenant > 0 && m.running(func(o *modelRun) bool { return o.counted && o.Queue == r.Queue && o.Tenant == r.Tenant }) >= q.PerTenant:
		return "tenant " + r.Tenant, until
	case q.TenantHere > 0 && q.Here[r.Tenant] >= q.TenantHere:
		return "tenant " + r.Tenant + " here", until
	}
	for k, rate := range ratesOf(r, q) {
		if state := m.rates[k]; rate.Available(state, m.now.UnixNano()) == 0 {
			what = "a rate"
			if at := time.Unix(0, rate.Next(state, m.now.UnixNano())); at.After(until) {
				until = at
			}
		}
	}
	return what, until
}

func ratesOf(r *modelRun, q *limit.Queue) map[rateKey]limit.Rate {
	out := map[rateKey]limit.Rate{}
	if l := q.Jobs[r.Job]; !l.Rate.None() {
		out[rateKey{job: r.Job}] = l.Rate
	}
	switch {
	case q.Rate.None():
	case q.ByTenant:
		out[rateKey{queue: r.Queue, tenant: r.Tenant}] = q.Rate
	default:
		out[rateKey{queue: r.Queue}] = q.Rate
	}
	return out
}

// claimUnder checks that a store handed out nothing that it may not under limits,
// and follows it. q.Here is added to. That nothing was left which may go is for
// leftUnder, once the store has no more.
func (m *model) claimUnder(worker string, q *limit.Queue, queue string, res store.ClaimResult) (problem string) {
	for _, g := range res.Runs {
		r := m.runs[g.ID]
		if r == nil || r.Queue != queue || !m.due(r) {
			return "run " + g.ID + " is not due there"
		}
		if _, busy := res.Busy[g.ID]; busy {
			continue
		}
		if what, _ := m.bound(r, q); what != "" {
			return "run " + g.ID + " was claimed beyond " + what
		}
		for k, rate := range ratesOf(r, q) {
			m.rates[k] = rate.Spend(m.rates[k], m.now.UnixNano(), 1)
		}
		m.begin(r, worker)
		r.holds, r.counted = passes(r, q), q.PerTenant > 0
		q.Here[r.Tenant]++
	}
	for id, holder := range res.Busy {
		r, by := m.runs[id], m.runs[holder]
		l := q.Jobs[r.Job]
		switch {
		case m.pausedRun(r):
			return "run " + id + " is paused, and was refused"
		case !l.Keyed || !l.Fail || !m.gateFull(r, q):
			return "run " + id + " was refused, and its key was free"
		case r.Claims > 0:
			return "run " + id + " was refused, and may have begun before"
		case by == nil || by.State != job.Running || by.holds != passes(r, q):
			return "run " + id + " was refused for run " + holder + ", which does not hold its key"
		}
		defer func() { // all of them find their keys full
			m.begin(r, worker)
			r.holds, r.counted = "", false
		}()
	}
	return ""
}

// leftUnder says what a claim that gave no more for now should have given, or when
// it should have said that there will be more.
func (m *model) leftUnder(q *limit.Queue, queue string, res store.ClaimResult, blocked func(id string) string) (problem string) {
	for id, r := range m.runs {
		if r.Queue != queue || !m.due(r) {
			continue
		}
		what, until := m.bound(r, q)
		l := q.Jobs[r.Job]
		switch {
		case what == "":
			return "run " + id + " was left, and nothing is in its way"
		case !until.IsZero():
			// The store's times are milliseconds.
			if at := until.Add(time.Millisecond); res.NextDue.IsZero() || res.NextDue.After(at) {
				return "run " + id + " may start at " + until.String() + ", and the claim is due again at " + res.NextDue.String()
			}
		case l.Keyed && l.Fail && r.Claims == 0 && m.gateFull(r, q) && !m.pausedRun(r) &&
			q.PerTenant == 0 && q.TenantHere == 0 && q.Rate.None() && l.Rate.None():
			// One that waits there since before the limit refused anything waits on.
			if gate := passes(r, q); blocked(id) != gate {
				return "run " + id + " was left, though its key is held and that is refused"
			}
		}
	}
	return ""
}

// outOfTurn says which run a claim passed over for a later one that is held up by just
// the same: of one tenant, job and gate, so that whatever lets one go lets the other go.
// aside says what each run was set aside for before the claim: how soon that is taken
// up again is the store's.
func (m *model) outOfTurn(queue string, res store.ClaimResult, aside map[string]string) (problem string) {
	taken := map[string]bool{}
	for _, g := range res.Runs {
		taken[g.ID] = true
	}
	for i, g := range res.Runs {
		r := m.runs[g.ID]
		if _, busy := res.Busy[g.ID]; busy || r == nil {
			continue
		}
		for _, o := range m.runs {
			if o.Queue == queue && m.due(o) && o.alike(r) && aside[o.ID] == aside[r.ID] && !taken[o.ID] && o.before(r) {
				return "run " + g.ID + " was claimed before run " + o.ID + ", which has the same in its way and goes first"
			}
		}
		for _, later := range res.Runs[i+1:] {
			o := m.runs[later.ID]
			if _, busy := res.Busy[later.ID]; !busy && o != nil && o.alike(r) && aside[o.ID] == aside[r.ID] && o.before(r) {
				return "run " + g.ID + " was answered before run " + o.ID + ", which goes first"
			}
		}
	}
	return ""
}

// alike reports whether the same limits, rates and pauses are in the way of two runs.
func (r *modelRun) alike(o *modelRun) bool {
	return r.ID != o.ID && r.Tenant == o.Tenant && r.Job == o.Job && r.Gate == o.Gate
}
