package postgres

import (
	"context"
	"hash/fnv"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

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
		slices.SortFunc(of, func(a, b limit.Candidate) int { return job.ClaimOrder(a.Run, b.Run) })
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
