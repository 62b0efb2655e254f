package sqlite

import (
	"cmp"
	"maps"
	"slices"
	"strings"

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
	if q.step() {
		// What is open already and gave nothing waits for something else.
		if at := q.colInt(0); at > l.now && (due == 0 || at < due) {
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
		slices.SortFunc(of, claimOrder)
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

func claimOrder(a, b limit.Candidate) int {
	return cmp.Or(cmp.Compare(a.Run.Priority, b.Run.Priority), a.Run.RunAt.Compare(b.Run.RunAt), strings.Compare(a.Run.ID, b.Run.ID))
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

// ready picks ready runs of the tenants that may have more, in rotation, each
// an even share of what is left.
func (l *limited) ready(p *picks) error {
	var tenants []string
	start := l.rotate.last[l.queue]
	at, wrapped := start, !start.set
	for len(tenants) < l.c.Left() && l.passed < maxPassed {
		tenant, found, err := l.nextTenant(at)
		if err != nil {
			return err
		}
		if found && wrapped && start.set && tenant > start.tenant {
			found = false // all the way round
		}
		switch {
		case found:
			at = cursor{tenant: tenant, set: true}
			n, err := l.allowed(tenant)
			if err != nil {
				return err
			}
			if n > 0 {
				tenants = append(tenants, tenant)
			} else if l.passed++; l.passed == maxPassed {
				// The next claim goes on from here.
				l.rotate.last[l.queue] = at
			}
		case wrapped:
			return l.shares(p, tenants)
		default:
			wrapped, at = true, cursor{}
		}
	}
	return l.shares(p, tenants)
}

func (l *limited) nextTenant(after cursor) (tenant string, found bool, err error) {
	q := l.use(qReadyFirstTenant)
	if after.set {
		q = l.use(qReadyNextTenant)
	}
	q.text(l.queue)
	if after.set {
		q.text(after.tenant)
	}
	if found = q.step(); found {
		tenant = q.colText(0)
	}
	return tenant, found, q.end()
}

func (l *limited) shares(p *picks, tenants []string) error {
	if len(tenants) == 0 {
		return nil
	}
	share := (l.c.Left() + len(tenants) - 1) / len(tenants)
	for _, tenant := range tenants {
		n, _ := l.c.Known(tenant)
		if _, err := l.tx.more(p, l.queue, tenant, min(share, n), 0); err != nil {
			return err
		}
	}
	return nil
}

// allowed is how many more runs a tenant may have.
func (l *limited) allowed(tenant string) (int, error) {
	if n, ok := l.c.Known(tenant); ok {
		return n, nil
	}
	running, state := int64(0), int64(0)
	if l.c.CountTenants() {
		q := l.use(qRunningOfTenant)
		q.text(l.queue)
		q.text(tenant)
		if q.step() {
			running = q.colInt(0)
		}
		if err := q.end(); err != nil {
			return 0, err
		}
	}
	if l.c.RateTenants() {
		var err error
		if state, err = l.rateState(l.rates, tenant); err != nil {
			return 0, err
		}
	}
	return l.c.Tenant(tenant, int(running), state), nil
}

// behind picks runs from behind a gate that has room, of each tenant in rotation.
func (l *limited) behind(p *picks, of map[string]string, gate string) error {
	room, known := l.c.Room(gate)
	if !known {
		if err := l.lookAt(gate); err != nil {
			return err
		}
		room, _ = l.c.Room(gate)
	}
	room = min(room, l.c.Left())
	if room <= 0 {
		return nil
	}
	last := l.rotate.behind[gate]
	at, wrapped := last, !last.set
	for met := 0; met < room && l.passed < maxPassed; {
		q := l.use(qBehindOfFirst)
		if at.set {
			q = l.use(qBehindOfNext)
		}
		q.text(gate)
		q.text(l.queue)
		if at.set {
			q.text(at.tenant)
		}
		found := q.step()
		tenant := ""
		if found {
			tenant = q.colText(0)
		}
		if err := q.end(); err != nil {
			return err
		}
		if found && wrapped && last.set && tenant > last.tenant {
			found = false
		}
		if !found {
			if wrapped {
				return nil
			}
			wrapped, at = true, cursor{}
			continue
		}
		at = cursor{tenant: tenant, set: true}
		n, err := l.allowed(tenant)
		if err != nil {
			return err
		}
		if n <= 0 {
			l.passed++
			continue
		}
		met++
		q = l.use(qBehindOfTenant)
		q.text(gate)
		q.text(l.queue)
		q.text(tenant)
		q.int(int64(min(room, n)))
		for q.step() {
			if err := p.add(&q); err != nil {
				q.end()
				return err
			}
			of[p.runs[len(p.runs)-1].ID] = gate
		}
		if err := q.end(); err != nil {
			return err
		}
	}
	return nil
}

// look finds out about the gates that candidates pass.
func (l *limited) look(of []limit.Candidate) error {
	gates, rates := l.c.Unknown(of)
	for _, g := range append(gates, rates...) {
		if err := l.lookAt(g); err != nil {
			return err
		}
	}
	return nil
}

func (l *limited) lookAt(gate string) error {
	if kind, jobName, _ := limit.ParseGate(gate); kind == limit.KindRate {
		state, err := l.rateState("job:"+jobName, "")
		if err == nil {
			l.c.JobRate(gate, state)
		}
		return err
	}
	q := l.use(qRunningAtGate)
	q.text(gate)
	q.int(int64(l.c.Concurrency(gate)))
	if q.step() {
		l.c.Running(gate, int(q.colInt(0)), formatUUID(q.s.ColumnRawBlob(1)))
	}
	return q.end()
}

func (t *tx) rateState(scope, tenant string) (state int64, err error) {
	q := t.use(qRateState)
	q.text(scope)
	q.text(tenant)
	if q.step() {
		state = q.colInt(0)
	}
	return state, q.end()
}

// take begins a run under the gate of its verdict.
func (l *limited) take(v limit.Verdict, seq int64) error {
	q := l.use(qClaimLimited)
	q.int(seq)
	q.text(l.worker)
	q.int(l.now)
	q.textOrNull(v.Gate)
	q.bool(l.counted && v.Holder == "")
	if err := q.exec(); err != nil {
		return err
	}
	if v.Behind != "" {
		l.rotate.served(v.Behind, v.Run.Tenant)
	}
	r := *v.Run
	r.State, r.Worker, r.ClaimedAt, r.Blocked = job.Running, l.worker, fromMS(l.now), ""
	r.Attempt++
	r.Claims++
	if r.StartedAt.IsZero() {
		r.StartedAt = r.ClaimedAt
	}
	l.runs = append(l.runs, r)
	return nil
}

// lane is the runs of a job and a tenant, which all pass the gate.
type lane struct{ gate, tenant, job string }

// aside sets runs aside behind gates that are full, and with them what else
// would find the same gates full.
func (l *limited) aside(of []limit.Verdict, seqs map[string]int64) error {
	full := map[string]bool{}
	lanes := map[lane]bool{}
	for _, v := range of {
		q := l.use(qSetAside)
		q.int(seqs[v.Run.ID])
		q.text(v.Gate)
		if err := q.exec(); err != nil {
			return err
		}
		if at := l.c.Opens(v.Gate); at != 0 {
			if err := l.open(l.queue, v.Gate, (at+1e6-1)/1e6); err != nil {
				return err
			}
		}
		if v.Gate == v.Run.Gate {
			full[v.Gate] = true
		} else if kind, _, _ := limit.ParseGate(v.Gate); kind != limit.KindKey {
			lanes[lane{v.Gate, v.Run.Tenant, v.Run.Job}] = true
		}
	}
	for k := range lanes {
		q := l.use(qSetLaneAside)
		q.text(k.gate)
		q.text(l.queue)
		q.text(k.tenant)
		q.text(k.job)
		q.int(asideChunk)
		if err := q.exec(); err != nil {
			return err
		}
	}
	for gate := range full {
		q := l.use(qSetMoreAside)
		q.text(gate)
		q.text(l.queue)
		q.int(asideChunk)
		if err := q.exec(); err != nil {
			return err
		}
	}
	return nil
}

// finish has the gates that were looked behind stay open while there is room for
// what waits there, and writes down what rates have spent.
func (l *limited) finish() error {
	for _, gate := range l.gates {
		room, known := l.c.Room(gate)
		if !known {
			continue // the claim was full before it came here
		}
		opens := l.c.Opens(gate)
		if room > 0 {
			opens = l.now * 1e6
		}
		if err := l.reopen(gate, opens); err != nil {
			return err
		}
	}
	for _, s := range l.c.Spent() {
		scope := l.rates
		if s.Job != "" {
			scope = "job:" + s.Job
		}
		q := l.use(qSetRate)
		q.text(scope)
		q.text(s.Tenant)
		q.int(s.State)
		if err := q.exec(); err != nil {
			return err
		}
	}
	return nil
}

// reopen decides on a gate that was looked behind: opens is when it may be worth
// it again, in ns, 0 when a run there has ended.
func (l *limited) reopen(gate string, opens int64) error {
	waits := opens != 0
	if waits {
		var err error
		if waits, err = l.waits(gate, l.queue); err != nil {
			return err
		}
	}
	if waits {
		return l.open(l.queue, gate, (opens+1e6-1)/1e6)
	}
	q := l.use(qCloseGate)
	q.text(l.queue)
	q.text(gate)
	return q.exec()
}

func (t *tx) waits(gate, queue string) (bool, error) {
	q := t.use(qBehindIn)
	q.text(gate)
	q.text(queue)
	found := q.step()
	return found, q.end()
}

// openNow has claims of every queue look behind a gate, if something waits there.
func (t *tx) openNow(gate string) error {
	for queue := ""; ; {
		q := t.use(qQueueBehind)
		q.text(gate)
		q.text(queue)
		found := q.step()
		if found {
			queue = q.colText(0)
		}
		if err := q.end(); err != nil || !found {
			return err
		}
		t.group.wake(queue)
		if err := t.open(queue, gate, t.now); err != nil {
			return err
		}
	}
}

func (t *tx) open(queue, gate string, at int64) error {
	q := t.use(qOpenGate)
	q.text(queue)
	q.text(gate)
	q.int(at)
	return q.exec()
}

// leave takes a run, that ended or was handed back, from the gate it was at. If
// others wait behind it, claims look there.
func (t *tx) leave(seq int64, gate string, held bool) error {
	if gate == "" {
		return nil
	}
	q := t.use(qLeaveGate)
	q.int(seq)
	if err := q.exec(); err != nil {
		return err
	}
	if !held {
		return nil
	}
	return t.openNow(gate)
}

// leaveAny takes a run from the gate that it holds or waits behind, if there is one.
func (t *tx) leaveAny(seq int64) error {
	q := t.use(qAtGate)
	q.int(seq)
	gate, held := "", false
	if q.step() {
		gate, held = q.colText(0), q.colInt(1) != 0
	}
	if err := q.end(); err != nil {
		return err
	}
	return t.leave(seq, gate, held)
}
