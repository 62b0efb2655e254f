package sqlite

import (
	"maps"
	"slices"

	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/limit"
	"github.com/jobrunner/runner/engine/store"
)

const (
	// limitRounds bounds the rounds of one claim: each sets aside what is in its
	// way. A claim that was not through says that it is due again at once.
	limitRounds = 6
	// maxVisits bounds the gates that one claim looks behind. Those that may have
	// room and were not looked behind are first the next time.
	maxVisits = 256
	// maxPassed bounds the tenants that one claim passes over.
	maxPassed = 1024
	// passedWait is how soon, in ms, the tenants and gates after those are looked at.
	passedWait = 50
	// asideChunk is how many runs a claim sets aside at once behind a gate that is
	// full: some milliseconds.
	asideChunk = 1000
)

var (
	qDueOpenings      = named("due_openings")
	qAnyOpening       = named("any_opening")
	qNextOpening      = named("next_opening")
	qOpenGate         = named("open_gate")
	qCloseGate        = named("close_gate")
	qQueueBehind      = named("queue_behind")
	qNextGate         = named("next_gate")
	qBehindIn         = named("behind_in")
	qBehindOfFirst    = named("behind_of_first_tenant")
	qBehindOfNext     = named("behind_of_next_tenant")
	qBehindOfTenant   = named("behind_of_tenant")
	qReadyFirstTenant = named("ready_first_tenant")
	qReadyNextTenant  = named("ready_next_tenant")
	qRunningAtGate    = named("running_at_gate")
	qRunningOfTenant  = named("running_of_tenant")
	qRateState        = named("rate_state")
	qSetRate          = named("set_rate")
	qSetAside         = named("set_aside")
	qSetMoreAside     = named("set_more_aside")
	qSetLaneAside     = named("set_lane_aside")
	qClaimLimited     = named("claim_limited")
	qAtGate           = named("at_gate")
	qLeaveGate        = named("leave_gate")
)

// limited is a claim of one queue that is held to limits, or that goes on behind
// gates of limits that are gone.
type limited struct {
	*tx
	c       *limit.Claim
	queue   string
	worker  string
	rates   string // scope of the queue's rate
	counted bool
	passed  int
	gates   []string // looked behind
	runs    []job.Run
	busy    map[string]string
	more    bool // not through
}

// claimLimited is claimQueue under limits. due is when, in ms, more of what it
// was not allowed to take may be; 0 says that only an end of a run can tell.
func (t *tx) claimLimited(out *store.ClaimResult, worker string, ql store.QueueLimit, pauses limit.Pauses) (due int64, err error) {
	l := &limited{
		tx: t, c: limit.NewClaim(ql.Limits, pauses, ql.Limit, t.now*1e6), queue: ql.Queue, worker: worker, rates: "queue:" + ql.Queue,
	}
	l.counted = l.c.CountTenants()
	if l.c.ByQueue() {
		state, err := t.rateState(l.rates, "")
		if err != nil {
			return 0, err
		}
		l.c.QueueRate(state)
	}
	if ql.Recheck {
		if err := l.recheck(); err != nil {
			return 0, err
		}
	}
	if err := l.visits(); err != nil {
		return 0, err
	}
	for range limitRounds {
		if l.c.Left() <= 0 {
			l.more = false
			break
		}
		if err := l.round(); err != nil {
			return 0, err
		}
		if !l.more {
			break
		}
	}
	if err := l.finish(); err != nil {
		return 0, err
	}
	out.Runs = append(out.Runs, l.runs...)
	if len(l.busy) > 0 && out.Busy == nil {
		out.Busy = map[string]string{}
	}
	maps.Copy(out.Busy, l.busy)
	return l.due()
}

// due is when the queue is worth another claim.
func (l *limited) due() (int64, error) {
	if l.more {
		return l.now, nil
	}
	due := (l.c.Next() + 1e6 - 1) / 1e6
	if (l.passed >= maxPassed || len(l.gates) == maxVisits) && (due == 0 || due > l.now+passedWait) {
		due = l.now + passedWait
	}
	q := l.use(qNextOpening)
	q.text(l.queue)
	q.int(l.now)
	if q.step() {
		if at := q.colInt(0); at != 0 && (due == 0 || at < due) {
			due = at
		}
	}
	return due, q.end()
}

// recheck opens every gate that runs of the queue wait behind.
func (l *limited) recheck() error {
	for gate := ""; ; {
		q := l.use(qNextGate)
		q.text(gate)
		found := q.step()
		if found {
			gate = q.colText(0)
		}
		if err := q.end(); err != nil || !found {
			return err
		}
		waits, err := l.waits(gate, l.queue)
		if err != nil {
			return err
		}
		if waits {
			if err := l.open(l.queue, gate, l.now); err != nil {
				return err
			}
		}
	}
}

// visits notes the gates to look behind.
func (l *limited) visits() error {
	q := l.use(qDueOpenings)
	q.text(l.queue)
	q.int(l.now)
	q.int(maxVisits)
	for q.step() {
		l.gates = append(l.gates, q.colText(0))
	}
	return q.end()
}

// round decides on the next candidates of every tenant that may have more.
func (l *limited) round() error {
	l.more = false
	picked := picks{}
	behind := map[string]string{} // by id
	if err := l.ready(&picked); err != nil {
		return err
	}
	for _, g := range l.gates {
		if err := l.behind(&picked, behind, g); err != nil {
			return err
		}
	}
	if len(picked.runs) == 0 {
		return nil
	}
	seqs := map[string]int64{}
	byTenant := map[string][]limit.Candidate{}
	var all []limit.Candidate
	for i := range picked.runs {
		r := &picked.runs[i]
		seqs[r.ID] = picked.seqs[i]
		k := limit.Candidate{Run: r, Behind: behind[r.ID]}
		all = append(all, k)
		byTenant[r.Tenant] = append(byTenant[r.Tenant], k)
	}
	for _, of := range byTenant {
		slices.SortFunc(of, func(a, b limit.Candidate) int { return job.ClaimOrder(a.Run, b.Run) })
	}
	if err := l.look(all); err != nil {
		return err
	}
	v := l.c.Decide(byTenant, l.rotated(slices.Sorted(maps.Keys(byTenant))))
	if v.Served != "" || len(v.Take) > 0 {
		l.rotate.last[l.queue] = cursor{tenant: v.Served, set: true}
	}
	for _, t := range v.Take {
		if err := l.take(t, seqs[t.Run.ID]); err != nil {
			return err
		}
	}
	for _, t := range v.Refuse {
		if l.busy == nil {
			l.busy = map[string]string{}
		}
		l.busy[t.Run.ID] = t.Holder
		if err := l.take(t, seqs[t.Run.ID]); err != nil {
			return err
		}
	}
	l.more = len(v.Take)+len(v.Refuse)+len(v.Aside) > 0
	return l.aside(v.Aside, seqs)
}

// rotated begins with the tenant after the one served last.
func (l *limited) rotated(tenants []string) []string {
	last := l.rotate.last[l.queue]
	if !last.set {
		return tenants
	}
	i, found := slices.BinarySearch(tenants, last.tenant)
	if found {
		i++
	}
	return append(slices.Clone(tenants[i:]), tenants[:i]...)
}
