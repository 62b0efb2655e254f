package postgres

import (
	"context"
	"hash/fnv"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/limit"
	"github.com/jobrunner/runner/engine/store"
)

const (
	// limitRounds bounds the rounds of one claim: each sets aside what is in its
	// way. A claim that was not through says that it is due again at once.
	limitRounds = 6
	// maxVisits bounds the openings that one claim follows. What is left is first
	// the next time.
	maxVisits = 256
	// maxPassed bounds the tenants that one claim looks at, beside those it serves.
	maxPassed = 1024
	// maxBehindTenants bounds the tenants of one gate that a claim looks at.
	maxBehindTenants = 64
	// passedWait is how soon the tenants and gates after those are looked at.
	passedWait = 50 * time.Millisecond
	// asideChunk is how many runs a claim sets aside at once behind a gate that is
	// full: some tens of milliseconds.
	asideChunk = 1000
)

var (
	qTakeTurn       = named("take_turn")
	qLimitedHead    = named("limited_head")
	qPausedNow      = named("paused_now")
	qDueOpenings    = named("due_openings")
	qNextOpening    = named("next_opening")
	qCloseOpenings  = named("close_openings")
	qReopen         = named("reopen")
	qRecheck        = named("recheck")
	qLimitedTenants = named("limited_tenants")
	qBehindTenants  = named("behind_tenants")
	qLimitedReady   = named("limited_ready")
	qLimitedBehind  = named("limited_behind")
	qAtGates        = named("at_gates")
	qRateStates     = named("rate_states")
	qSpendRates     = named("spend_rates")
	qLimitedTake    = named("limited_take")
	qSetAside       = named("set_aside")
	qSetMoreAside   = named("set_more_aside")
	qSetLaneAside   = named("set_lane_aside")
)

// behindServed remembers, per gate, the tenant that passed last. A hint.
type behindServed struct {
	mu sync.Mutex
	of map[string]string
}

func (b *behindServed) get(gate string) *string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if t, ok := b.of[gate]; ok {
		return &t
	}
	return nil
}

func (b *behindServed) set(gate, tenant string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.of == nil || len(b.of) >= 10_000 {
		b.of = map[string]string{}
	}
	b.of[gate] = tenant
}

// limited is a claim of one queue that is held to limits, or that goes on behind
// gates of limits that are gone. It lives for one try of its transaction.
type limited struct {
	s       *Store
	ctx     context.Context
	tx      pgx.Tx
	ql      store.QueueLimit
	worker  string
	c       *limit.Claim
	after   *string // the tenant that was served last, as it is stored
	last    string  // the one that this claim serves last
	now     time.Time
	nextDue time.Time
	scope   string // of the queue's rate
	opened  map[string][]int64
	gates   []string // looked behind, in the order of their openings
	passed  int
	crowded bool // there are tenants or gates that were not looked at
	alive   bool
	paused  bool
	more    bool // not through
	runs    []job.Run
	busy    map[string]string
	moved   []served
}

type served struct{ gate, tenant string }

// claimLimited is a claim of one queue under limits, in one transaction.
func (s *Store) claimLimited(ctx context.Context, worker string, ql store.QueueLimit, out *store.ClaimResult) error {
	asked := []queueClaim{{ql}}
	after := make([]*string, 1)
	promote := s.claims.begin(asked, after)
	if promote {
		call := call{st: qPromote, args: []any{[]string{enc(ql.Queue)}, beginning, maxPromote}, scan: func(r *row) error {
			s.claims.lower(r.text(), r.text(), int(r.int()), r.time())
			return nil
		}}
		if err := s.write(ctx, func(q queryer) error { return s.run(ctx, q, call) }); err != nil {
			return err
		}
	}
	var l *limited
	err := s.inTx(ctx, func(tx pgx.Tx) error {
		l = &limited{s: s, ctx: ctx, tx: tx, ql: ql, worker: worker, after: after[0], scope: "queue:" + ql.Queue, opened: map[string][]int64{}}
		return l.claim()
	})
	if err != nil {
		return err
	}
	out.Runs = append(out.Runs, l.runs...)
	out.Now, out.WorkerGone = l.now, !l.alive
	if !l.alive {
		return nil
	}
	if len(l.busy) > 0 && out.Busy == nil {
		out.Busy = map[string]string{}
	}
	maps.Copy(out.Busy, l.busy)
	if len(l.runs) > 0 {
		s.claims.mu.Lock()
		last := enc(l.last)
		s.claims.of(ql.Queue).served = &last
		s.claims.mu.Unlock()
	}
	for _, m := range l.moved {
		s.behind.set(m.gate, m.tenant)
	}
	// Read before what it promoted was: at worst too early.
	waits := l.nextDue
	s.claims.seen(asked, l.now, waits, promote)
	if due := l.due(); !due.IsZero() && (out.NextDue.IsZero() || due.Before(out.NextDue)) {
		out.NextDue = due
	}
	return nil
}

// due is when the queue is worth another claim.
func (l *limited) due() time.Time {
	if l.more {
		return l.now
	}
	due := l.nextDue
	sooner := func(t time.Time) {
		if due.IsZero() || t.Before(due) {
			due = t
		}
	}
	if l.c != nil {
		if at := l.c.Next(); at != 0 {
			sooner(time.Unix(0, at).UTC())
		}
	}
	if l.crowded {
		sooner(l.now.Add(passedWait))
	}
	return due
}

// turns are the numbers of the locks that the claim takes.
func (l *limited) turns() []int64 {
	names := []string{"queue:" + l.ql.Queue}
	if l.ql.Limits != nil {
		for name := range l.ql.Limits.Jobs {
			names = append(names, "job:"+name)
		}
	}
	out := make([]int64, len(names))
	for i, name := range names {
		h := fnv.New64a()
		h.Write([]byte("runner.limit." + l.s.cfg.Schema + "." + name))
		out[i] = int64(h.Sum64())
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func (l *limited) run(calls ...call) error { return l.s.runAll(l.ctx, l.tx, calls...) }

func (l *limited) claim() error {
	var pauses limit.Pauses
	var state int64
	queue := enc(l.ql.Queue)
	calls := []call{{st: qTakeTurn, args: []any{l.turns()}}}
	if l.ql.Recheck {
		calls = append(calls, call{st: qRecheck, args: []any{queue}})
	}
	calls = append(calls,
		call{st: qLimitedHead, args: []any{enc(l.worker), queue}, scan: func(r *row) error {
			l.alive, l.now, l.paused, l.nextDue = r.bool(), r.time(), r.bool(), r.time()
			return nil
		}},
		call{st: qPausedNow, scan: func(r *row) error {
			kind, name := r.text(), r.text()
			switch store.PauseKind(kind) {
			case store.PauseJob:
				pauses.Jobs = noted(pauses.Jobs, name)
			case store.PauseTenant:
				pauses.Tenants = noted(pauses.Tenants, name)
			}
			return nil
		}},
		call{st: qDueOpenings, args: []any{queue, maxVisits}, scan: func(r *row) error {
			n, gate := r.int(), r.text()
			if l.opened[gate] == nil {
				l.gates = append(l.gates, gate)
			}
			l.opened[gate] = append(l.opened[gate], n)
			return nil
		}},
		call{st: qRateStates, args: []any{[]string{enc(l.scope)}}, scan: func(r *row) error {
			r.next()
			state = r.int()
			return nil
		}},
	)
	if err := l.run(calls...); err != nil {
		return err
	}
	if l.paused {
		l.nextDue = time.Time{} // nothing of it is promoted
	}
	if !l.alive || l.paused || l.ql.Limit == 0 {
		return nil
	}
	visits := 0
	for _, ns := range l.opened {
		visits += len(ns)
	}
	l.crowded = visits == maxVisits
	l.c = limit.NewClaim(l.ql.Limits, pauses, l.ql.Limit, l.now.UnixNano())
	if l.c.ByQueue() {
		l.c.QueueRate(state)
	}
	for range limitRounds {
		if l.more = l.c.Left() > 0; !l.more {
			break
		}
		if err := l.round(); err != nil {
			return err
		}
		if !l.more {
			break
		}
	}
	return l.finish()
}

func noted(to map[string]bool, name string) map[string]bool {
	if to == nil {
		to = map[string]bool{}
	}
	to[name] = true
	return to
}

// share is the most runs of a tenant to pick, from behind a gate or, if that is
// "", of those that are ready.
type share struct {
	gate, tenant string
	n            int
}

// round decides on the next candidates of every tenant that may have more.
func (l *limited) round() error {
	l.more = false
	ready, behind, err := l.tenants()
	if err != nil || len(ready)+len(behind) == 0 {
		return err
	}
	all, full, err := l.pick(ready, behind)
	if err != nil || len(all) == 0 {
		return err
	}
	byTenant := map[string][]limit.Candidate{}
	for _, k := range all {
		byTenant[k.Run.Tenant] = append(byTenant[k.Run.Tenant], k)
	}
	for _, of := range byTenant {
		slices.SortFunc(of, func(a, b limit.Candidate) int { return claimOrder(*a.Run, *b.Run) })
	}
	gates, rates := l.c.Unknown(all)
	if err := l.look(gates, rates); err != nil {
		return err
	}
	order := slices.Collect(maps.Keys(byTenant))
	slices.SortFunc(order, func(a, b string) int {
		la, lb := l.after != nil && enc(a) <= *l.after, l.after != nil && enc(b) <= *l.after
		if la != lb {
			if lb {
				return -1
			}
			return 1
		}
		return slices.Compare([]byte(enc(a)), []byte(enc(b)))
	})
	v := l.c.Decide(byTenant, order)
	if len(v.Take)+len(v.Refuse) > 0 {
		last := enc(v.Served)
		l.last, l.after = v.Served, &last
	}
	if err := l.take(v); err != nil {
		return err
	}
	l.more = len(v.Aside) > 0 || full && len(v.Take)+len(v.Refuse) > 0
	return l.aside(v.Aside)
}

// tenants says how many runs of which tenants to look at, among the ready ones and
// behind the gates that may have room.
func (l *limited) tenants() (ready, behind []share, err error) {
	queue := enc(l.ql.Queue)
	var scope *string
	if l.c.RateTenants() {
		enced := enc(l.scope)
		scope = &enced
	}
	var known []string // gates to ask about
	for _, g := range l.gates {
		if _, ok := l.c.Room(g); !ok {
			known = append(known, g)
		}
	}
	if len(known) > 0 {
		var gates, rates []string
		for _, g := range known {
			if kind, _, _ := limit.ParseGate(g); kind == limit.KindRate {
				rates = append(rates, g)
			} else {
				gates = append(gates, g)
			}
		}
		if err := l.look(gates, rates); err != nil {
			return nil, nil, err
		}
	}
	tell := func(r *row, tenant string) int {
		running, state := r.int(), r.int()
		return l.c.Tenant(tenant, int(running), state)
	}
	most := min(2*l.c.Left()+16, maxPassed)
	met, allowed := 0, []share{}
	calls := []call{{
		st: qLimitedTenants, args: []any{queue, l.after, most, scope, l.c.CountTenants()},
		scan: func(r *row) error {
			met++
			tenant := r.text()
			if n := tell(r, tenant); n > 0 {
				allowed = append(allowed, share{tenant: tenant, n: n})
			} else {
				l.passed++
			}
			l.last = tenant
			return nil
		},
	}}
	var gates []string
	var afters []*string
	rooms := map[string]int{}
	for _, g := range l.gates {
		if room, _ := l.c.Room(g); room > 0 {
			gates, afters, rooms[g] = append(gates, enc(g)), append(afters, l.s.behind.get(g)), min(room, l.c.Left())
		}
	}
	if len(gates) > 0 {
		calls = append(calls, call{
			st: qBehindTenants, args: []any{queue, gates, afters, scope, l.c.CountTenants(), maxBehindTenants},
			scan: func(r *row) error {
				gate, tenant := r.text(), r.text()
				if n := tell(r, tenant); n > 0 {
					behind = append(behind, share{gate, tenant, min(n, rooms[gate])})
				}
				return nil
			},
		})
	}
	before := l.last
	if err := l.run(calls...); err != nil {
		return nil, nil, err
	}
	if met == most && len(allowed) == 0 && l.passed < maxPassed {
		// All of them may have no more: go on after them.
		at := enc(l.last)
		l.after, l.more = &at, true
	}
	l.crowded = l.crowded || l.passed >= maxPassed
	if !l.more {
		l.last = before
	}
	if left := l.c.Left(); len(allowed) > left {
		allowed = allowed[:left]
	}
	for i := range allowed {
		allowed[i].n = min(allowed[i].n, (l.c.Left()+len(allowed)-1)/len(allowed))
	}
	return allowed, behind, nil
}

// pick reads and locks candidates. full says that some share was used up, so that
// there may be more.
func (l *limited) pick(ready, behind []share) (out []limit.Candidate, full bool, err error) {
	queue := enc(l.ql.Queue)
	got := map[share]int{}
	scan := func(r *row) error {
		gate := r.text()
		run, err := r.run()
		if err != nil {
			return err
		}
		run.Input = r.bytes()
		got[share{gate: gate, tenant: run.Tenant}]++
		out = append(out, limit.Candidate{Run: &run, Behind: gate})
		return nil
	}
	column := func(of []share) (gates, tenants []string, most []int32) {
		for _, s := range of {
			gates, tenants, most = append(gates, enc(s.gate)), append(tenants, enc(s.tenant)), append(most, int32(s.n))
		}
		return gates, tenants, most
	}
	var calls []call
	if len(ready) > 0 {
		_, tenants, most := column(ready)
		calls = append(calls, call{st: qLimitedReady, args: []any{queue, tenants, most}, scan: scan})
	}
	if len(behind) > 0 {
		gates, tenants, most := column(behind)
		calls = append(calls, call{st: qLimitedBehind, args: []any{queue, gates, tenants, most}, scan: scan})
	}
	if err := l.run(calls...); err != nil {
		return nil, false, err
	}
	for _, s := range append(ready, behind...) {
		full = full || got[share{gate: s.gate, tenant: s.tenant}] >= s.n
	}
	return out, full, nil
}

// look finds out about gates: how many run there, or the state of a rate.
func (l *limited) look(gates, rates []string) error {
	var calls []call
	if len(gates) > 0 {
		stored, most := make([]string, len(gates)), make([]int32, len(gates))
		for i, g := range gates {
			stored[i], most[i] = enc(g), int32(l.c.Concurrency(g))
		}
		calls = append(calls, call{st: qAtGates, args: []any{stored, most}, scan: func(r *row) error {
			gate, n := r.text(), r.int()
			l.c.Running(gate, int(n), r.uuid())
			return nil
		}})
	}
	if len(rates) > 0 {
		scopes := make([]string, len(rates))
		for i, g := range rates {
			_, name, _ := limit.ParseGate(g)
			scopes[i] = enc("job:" + name)
		}
		calls = append(calls, call{st: qRateStates, args: []any{scopes}, scan: func(r *row) error {
			scope := r.text()
			l.c.JobRate(limit.RateGate(scope[len("job:"):]), r.int())
			return nil
		}})
	}
	if len(calls) == 0 {
		return nil
	}
	return l.run(calls...)
}

// take begins the runs of a round, and those that are refused.
func (l *limited) take(v limit.Verdicts) error {
	all := append(slices.Clone(v.Take), v.Refuse...)
	if len(all) == 0 {
		return nil
	}
	ids, gates, counted := make([]pgtype.UUID, len(all)), make([]*string, len(all)), make([]bool, len(all))
	for i, t := range all {
		ids[i], gates[i], counted[i] = idParam(t.Run.ID), encOrNull(t.Gate), l.c.CountTenants() && t.Holder == ""
	}
	begun := map[string]time.Time{}
	err := l.run(call{st: qLimitedTake, args: []any{enc(l.worker), ids, gates, counted}, scan: func(r *row) error {
		id := r.uuid()
		begun[id] = r.time()
		return nil
	}})
	if err != nil {
		return err
	}
	for _, t := range all {
		at, ok := begun[t.Run.ID]
		if !ok {
			continue // it cannot be: it was locked
		}
		r := *t.Run
		r.State, r.Worker, r.ClaimedAt, r.Blocked = job.Running, l.worker, at, ""
		r.Attempt++
		r.Claims++
		if r.StartedAt.IsZero() {
			r.StartedAt = at
		}
		l.runs = append(l.runs, r)
		if t.Behind != "" {
			l.moved = append(l.moved, served{t.Behind, enc(t.Run.Tenant)})
		}
		if t.Holder != "" {
			if l.busy == nil {
				l.busy = map[string]string{}
			}
			l.busy[t.Run.ID] = t.Holder
		}
	}
	return nil
}

// laneAside is the runs of a job and a tenant, which all pass the gate.
type laneAside struct{ gate, tenant, job string }

// aside sets runs aside behind gates that are full, and with them what else
// would find the same gates full.
func (l *limited) aside(of []limit.Verdict) error {
	if len(of) == 0 {
		return nil
	}
	ids, gates := make([]pgtype.UUID, len(of)), make([]string, len(of))
	full, lanes, timed := map[string]bool{}, map[laneAside]bool{}, map[string]int64{}
	for i, v := range of {
		ids[i], gates[i] = idParam(v.Run.ID), enc(v.Gate)
		if at := l.c.Opens(v.Gate); at != 0 {
			timed[v.Gate] = at
		}
		if v.Gate == v.Run.Gate {
			full[v.Gate] = true
		} else if kind, _, _ := limit.ParseGate(v.Gate); kind != limit.KindKey {
			lanes[laneAside{v.Gate, v.Run.Tenant, v.Run.Job}] = true
		}
	}
	queue := enc(l.ql.Queue)
	calls := []call{{st: qSetAside, args: []any{ids, gates}}}
	for gate := range full {
		calls = append(calls, call{st: qSetMoreAside, args: []any{enc(gate), queue, asideChunk}})
	}
	for k := range lanes {
		calls = append(calls, call{st: qSetLaneAside, args: []any{enc(k.gate), queue, enc(k.tenant), enc(k.job), asideChunk}})
	}
	if len(timed) > 0 {
		calls = append(calls, l.reopen(timed))
	}
	return l.run(calls...)
}

// reopen has gates be looked behind again, each at its time in ns, 0 for at once.
func (l *limited) reopen(at map[string]int64) call {
	gates, times := make([]string, 0, len(at)), make([]*int64, 0, len(at))
	for _, gate := range slices.Sorted(maps.Keys(at)) {
		gates = append(gates, enc(gate))
		if ns := at[gate]; ns > 0 {
			ms := (ns + 1e6 - 1) / 1e6
			times = append(times, &ms)
		} else {
			times = append(times, nil)
		}
	}
	return call{st: qReopen, args: []any{enc(l.ql.Queue), gates, times}}
}

// finish has the gates that were looked behind stay open while there is room for
// what waits there, and writes down what rates have spent.
func (l *limited) finish() error {
	var closed []int64
	again := map[string]int64{}
	for _, gate := range l.gates {
		room, known := l.c.Room(gate)
		if !known {
			continue // the claim was full before it came here
		}
		closed = append(closed, l.opened[gate]...)
		if opens := l.c.Opens(gate); room > 0 {
			again[gate] = 0
		} else if opens != 0 {
			again[gate] = opens
		}
	}
	var calls []call
	if len(closed) > 0 {
		calls = append(calls, call{st: qCloseOpenings, args: []any{closed}})
	}
	if len(again) > 0 {
		calls = append(calls, l.reopen(again))
	}
	if spent := l.c.Spent(); len(spent) > 0 {
		scopes, tenants, states := make([]string, len(spent)), make([]string, len(spent)), make([]int64, len(spent))
		for i, s := range spent {
			scopes[i], tenants[i], states[i] = enc(l.scope), enc(s.Tenant), s.State
			if s.Job != "" {
				scopes[i] = enc("job:" + s.Job)
			}
		}
		calls = append(calls, call{st: qSpendRates, args: []any{scopes, tenants, states}})
	}
	calls = append(calls, call{st: qNextOpening, args: []any{enc(l.ql.Queue)}, scan: func(r *row) error {
		if at := r.time(); !at.IsZero() && (l.nextDue.IsZero() || at.Before(l.nextDue)) {
			l.nextDue = at
		}
		return nil
	}})
	return l.run(calls...)
}
