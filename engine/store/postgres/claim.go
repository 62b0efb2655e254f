package postgres

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

// maxPromote bounds the runs whose time came that one claim moves to ready: a
// tenth of a second's worth of writing. More than that coming due at once are
// promoted by the claims that follow, in the order of their times.
const maxPromote = 5000

// claimRounds bounds the statements of one claim. The second is needed when
// tenants had fewer runs than their share, or when runs had come due.
const claimRounds = 4

var (
	qClaim      = named("claim")
	qClaimLanes = named("claim_lanes")
	qFindLanes  = named("find_lanes")
	qPromote    = named("promote")
)

// Claim implements store.Claimer. It is one statement, unless tenants had less
// than their share of the limit: then what they left is claimed by another.
func (s *Store) Claim(ctx context.Context, p store.ClaimParams) (store.ClaimResult, error) {
	if len(p.Queues) == 0 {
		return store.ClaimResult{}, &abi.Error{Code: job.CodeClaimQueuesEmpty, Message: "a claim without queues", Fix: "name the queues this worker serves"}
	}
	var left []queueClaim
	var held []store.QueueLimit // to limits
	for _, q := range p.Queues {
		switch {
		case q.Limit < 0:
			return store.ClaimResult{}, store.Invalid("the claim limit of queue %s is %d; 0 takes none", q.Queue, q.Limit)
		case q.Limits.Empty():
			left = append(left, queueClaim{q})
		default:
			held = append(held, q)
		}
	}
	var out store.ClaimResult
	if len(left) > 0 {
		guarded, err := s.claimPlain(ctx, p.Worker, left, &out)
		if err != nil || out.WorkerGone {
			return out, err
		}
		if guarded {
			for _, q := range left {
				held = append(held, q.QueueLimit)
			}
		}
	}
	for _, q := range held {
		if err := s.claimLimited(ctx, p.Worker, q, &out); err != nil {
			if len(out.Runs) > 0 {
				// What was claimed is the caller's; the error will be met again.
				return out, nil
			}
			return store.ClaimResult{}, err
		}
		if out.WorkerGone {
			out.WorkerGone = len(out.Runs) == 0
			return out, nil
		}
	}
	return out, nil
}

// claimPlain claims of queues that have no limits. guarded says that something is
// paused that only a claim under limits passes over, or that runs of theirs wait
// behind gates.
func (s *Store) claimPlain(ctx context.Context, worker string, left []queueClaim, out *store.ClaimResult) (guarded bool, err error) {
	skip := map[string]map[string]bool{}
	for range claimRounds {
		got, more, guard, err := s.claimRound(ctx, worker, left, skip)
		if err != nil {
			if len(out.Runs) > 0 {
				// What was claimed is the caller's; the error will be met again.
				return false, nil
			}
			return false, err
		}
		guarded = guard
		if out.Runs == nil {
			out.Runs = got.Runs
		} else {
			out.Runs = append(out.Runs, got.Runs...)
		}
		out.WorkerGone = got.WorkerGone && len(out.Runs) == 0
		out.Now, out.NextDue = got.Now, got.NextDue
		if !more || got.WorkerGone {
			break
		}
	}
	return guarded, nil
}

// queueClaim is what a claim still wants of one queue.
type queueClaim struct {
	store.QueueLimit
}

// claimRound is one statement, after a promotion if one may be due. It reduces
// the limits by what it got, and says whether more is to be had. skip are the
// tenants, by queue, that an earlier round found empty; it adds to them.
func (s *Store) claimRound(ctx context.Context, worker string, left []queueClaim, skip map[string]map[string]bool) (out store.ClaimResult, more, guarded bool, err error) {
	n := len(left)
	queues, limits, after := make([]string, n), make([]int32, n), make([]*string, n)
	room := 0 // for the runs of a claim that gets all it asks for
	for i, q := range left {
		queues[i], limits[i] = enc(q.Queue), int32(min(q.Limit, 1<<30))
		room = min(room+q.Limit, 1000)
	}
	promote := s.claims.begin(left, after)
	floor, lanes := s.claims.slow(left)
	from := beginning
	if !floor.IsZero() {
		from = pgtype.Timestamptz{Time: floor, Valid: true}
	}
	promotion := call{st: qPromote, args: []any{queues, from, maxPromote}, scan: func(r *row) error {
		s.claims.lower(r.text(), r.text(), int(r.int()), r.time())
		return nil
	}}
	if promote && lanes {
		// Where the promoted stand has to be known before the claim.
		if err := s.write(ctx, func(q queryer) error { return s.run(ctx, q, promotion) }); err != nil {
			return out, false, false, err
		}
	}
	args := []any{enc(worker), queues, limits, after, from}
	st := qClaim
	var a laneArgs
	if lanes {
		a = s.claims.plan(left, skip)
		st = qClaimLanes
		args = append(args, a.args()...)
	}
	var rows claimRows
	err = s.write(ctx, func(q queryer) error {
		rows = claimRows{worker: worker, all: make([]job.Run, 0, room), shares: make([]int, 0, room)}
		var calls []call
		if promote && !lanes {
			calls = append(calls, promotion)
		}
		calls = append(calls, call{st: st, args: args, scan: rows.scan})
		return s.runAll(ctx, q, calls...)
	})
	if err != nil {
		return out, false, false, err
	}
	rows.sort()
	out = store.ClaimResult{Now: rows.now, NextDue: rows.nextDue, WorkerGone: !rows.alive}
	for i := range left {
		q := &left[i]
		byTenant := rows.runs[q.Queue]
		order := rotated(byTenant, after[i])
		before := len(out.Runs)
		out.Runs = deal(out.Runs, byTenant, order)
		q.Limit -= len(out.Runs) - before
		s.claims.served(q.Queue, order, byTenant)
		more = more || q.Limit > 0 && (rows.full(q.Queue) || a.rest)
	}
	if !rows.alive {
		return out, false, false, nil
	}
	if lanes && rows.guarded {
		// What is paused was passed over, or all was: that lanes gave less than their
		// share does not say that nothing is left in them.
		s.claims.mu.Lock()
		s.claims.raise(&rows)
		s.claims.mu.Unlock()
	} else if lanes {
		s.claims.byLanes(left, &a, &rows, skip)
	} else if over, slow := s.claims.wasSlow(left, rows.took, len(out.Runs)); slow {
		if err := s.findLanes(ctx, left, over); err != nil {
			// The claim stands; the next one is exact again.
			s.cfg.Logger.Warn("looking for lanes of ready runs failed", "database", s.target, "error", err)
		}
	}
	s.claims.seen(left, rows.now, rows.nextDue, promote)
	if !promote && !rows.nextDue.IsZero() && !rows.nextDue.After(rows.now) {
		more = true // something came due that this process had not heard of
	}
	for i := range out.Runs {
		out.Runs[i].Aged = false
	}
	return out, more, rows.guarded, nil
}

// beginning is before every instant.
var beginning = pgtype.Timestamptz{InfinityModifier: pgtype.NegativeInfinity, Valid: true}

// claimRows collects the rows of a claim.
type claimRows struct {
	worker       string // that claims
	alive        bool
	guarded      bool
	now, nextDue time.Time
	took         time.Duration // in the server, without the commit
	all          []job.Run     // as they come
	shares       []int         // of the tenant of each
	runs         map[string]map[string][]job.Run
	fullOf       map[string]map[string]bool // queues' tenants that had all of their share
}

// full reports whether a tenant of the queue had all of its share.
func (c *claimRows) full(queue string) bool { return len(c.fullOf[queue]) > 0 }

// claimFacts are the columns of the claim itself, which the rows of runs leave out.
const claimFacts = 5

func (c *claimRows) scan(r *row) error {
	if r.vals[0] != nil {
		c.alive, c.now, c.guarded, c.nextDue = r.bool(), r.time(), r.bool(), r.time()
		c.took = time.Duration(r.int()) * time.Microsecond
		c.begun()
		return nil
	}
	r.i = claimFacts
	run := job.Run{State: job.Running, Worker: c.worker}
	r.identity(&run)
	r.counts(&run)
	run.RunAt, run.CreatedAt, run.StartedAt = r.time(), r.time(), r.time()
	r.history(&run)
	run.Steps = int(r.int())
	run.Gate = r.text()
	r.aged(&run) // until it is handed out, for the order
	c.shares = append(c.shares, int(r.int()))
	run.Input = r.bytes()
	c.all = append(c.all, run)
	return nil
}

// begun dates the runs, of which the row of the claim comes last.
func (c *claimRows) begun() {
	for i := range c.all {
		r := &c.all[i]
		if r.ClaimedAt = c.now; r.StartedAt.IsZero() {
			r.StartedAt = c.now
		}
	}
}

// sort fills runs: each tenant's in their order. Mostly they come that way, and
// then nothing is copied.
func (c *claimRows) sort() {
	c.runs, c.fullOf = map[string]map[string][]job.Run{}, map[string]map[string]bool{}
	for i := 0; i < len(c.all); {
		queue, tenant, from := c.all[i].Queue, c.all[i].Tenant, i
		for i < len(c.all) && c.all[i].Queue == queue && c.all[i].Tenant == tenant {
			i++
		}
		if c.runs[queue] == nil {
			c.runs[queue], c.fullOf[queue] = map[string][]job.Run{}, map[string]bool{}
		}
		runs := c.all[from:i:i]
		if have := c.runs[queue][tenant]; have != nil {
			runs = append(have, runs...)
		}
		c.runs[queue][tenant] = runs
		if len(runs) == c.shares[from] {
			c.fullOf[queue][tenant] = true
		}
	}
	for _, byTenant := range c.runs {
		for _, runs := range byTenant {
			if !slices.IsSortedFunc(runs, claimOrder) {
				slices.SortFunc(runs, claimOrder)
			}
		}
	}
}

// claimOrder is job.ClaimOrder of what is sorted here by value.
func claimOrder(a, b job.Run) int { return job.ClaimOrder(&a, &b) }

// rotated are the tenants in the order of the rotation: those after the one
// served last, then the others.
func rotated(byTenant map[string][]job.Run, after *string) []string {
	out := make([]string, 0, len(byTenant))
	for t := range byTenant {
		out = append(out, t)
	}
	late := func(t string) bool { return after != nil && enc(t) <= *after }
	slices.SortFunc(out, func(a, b string) int {
		if la, lb := late(a), late(b); la != lb {
			if lb {
				return -1
			}
			return 1
		}
		return strings.Compare(enc(a), enc(b))
	})
	return out
}

// deal appends each tenant's runs in their order, one of each tenant at a time.
func deal(out []job.Run, byTenant map[string][]job.Run, order []string) []job.Run {
	if len(out) == 0 && len(order) == 1 {
		return byTenant[order[0]]
	}
	total := 0
	for _, runs := range byTenant {
		total += len(runs)
	}
	out = slices.Grow(out, total)
	for n := 0; total > 0; n++ {
		for _, t := range order {
			if runs := byTenant[t]; n < len(runs) {
				out = append(out, runs[n])
				total--
			}
		}
	}
	return out
}
