package sqlite

import (
	"context"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

// maxPromote bounds the runs whose time came that one claim moves to ready: a
// tenth of a second's worth of writing. More than that coming due at once are
// promoted by the claims that follow, in the order of their times.
const maxPromote = 10_000

var (
	qWorkerAlive        = named("worker_alive")
	qNextDue            = named("next_due")
	qAnyDue             = named("any_due")
	qPromote            = named("promote")
	qFirstOfNextTenant  = named("first_of_next_tenant")
	qFirstOfFirstTenant = named("first_of_first_tenant")
	qMoreOfTenant       = named("more_of_tenant")
	qClaimRun           = named("claim_run")
)

// rotation remembers, per queue, the tenant that was served last. It is only a
// place to go on from: losing it, as a restart does, costs one rotation.
type rotation struct {
	last   map[string]cursor
	behind map[string]cursor // the same of what waits behind a gate
}

type cursor struct {
	tenant string
	set    bool // false: begin with the first tenant, which may be ""
}

func newRotation() *rotation {
	return &rotation{last: map[string]cursor{}, behind: map[string]cursor{}}
}

// maxBehind bounds the gates whose rotation is remembered.
const maxBehind = 10_000

// served notes which tenant's run passed a gate.
func (r *rotation) served(gate, tenant string) {
	if len(r.behind) >= maxBehind {
		clear(r.behind)
	}
	r.behind[gate] = cursor{tenant: tenant, set: true}
}

// Claim implements store.Claimer.
func (s *Store) Claim(ctx context.Context, p store.ClaimParams) (store.ClaimResult, error) {
	if len(p.Queues) == 0 {
		return store.ClaimResult{}, &abi.Error{Code: job.CodeClaimQueuesEmpty, Message: "a claim without queues", Fix: "name the queues this worker serves"}
	}
	for _, q := range p.Queues {
		if q.Limit < 0 {
			return store.ClaimResult{}, store.Invalid("the claim limit of queue %s is %d; 0 takes none", q.Queue, q.Limit)
		}
	}
	var out store.ClaimResult
	// A claim that a power cut takes back was held by a worker that it took too:
	// the database and its workers are on one machine. Steps and settles under the
	// claim are synced, and with them the claim, which is before them in the log.
	err := s.w.doLazy(ctx, func(tx *tx) (err error) {
		out, err = tx.claim(p)
		return err
	})
	if err != nil {
		return store.ClaimResult{}, err
	}
	return out, nil
}

func (t *tx) claim(p store.ClaimParams) (store.ClaimResult, error) {
	out := store.ClaimResult{Now: fromMS(t.now)}
	alive, err := t.alive(p.Worker)
	if err != nil || !alive {
		out.WorkerGone = !alive
		return out, err
	}
	pausedQueues, pauses, err := t.paused()
	if err != nil {
		return out, err
	}
	var nextDue int64
	for _, ql := range p.Queues {
		if pausedQueues[ql.Queue] {
			continue
		}
		due := false
		again := int64(0)
		if ql.Limit > 0 {
			if due, err = t.promote(ql.Queue); err != nil {
				return out, err
			}
			opened, err := t.exists(qAnyOpening, ql.Queue)
			if err != nil {
				return out, err
			}
			if !ql.Limits.Empty() || pauses.Any() || opened {
				again, err = t.claimLimited(&out, p.Worker, ql, pauses)
			} else {
				out.Runs, err = t.claimQueue(out.Runs, p.Worker, ql)
			}
			if err != nil {
				return out, err
			}
		}
		next, err := t.nextDue(ql.Queue, due)
		if err != nil {
			return out, err
		}
		for _, next := range []int64{next, again} {
			if next != 0 && (nextDue == 0 || next < nextDue) {
				nextDue = next
			}
		}
	}
	out.NextDue = fromMS(nextDue)
	return out, nil
}

// alive reports whether the worker has a lease that has not lapsed.
func (t *tx) alive(worker string) (bool, error) {
	q := t.use(qWorkerAlive)
	q.text(worker)
	q.int(t.now)
	found := q.step()
	return found, q.end()
}

func (t *tx) exists(st *statement, arg string) (bool, error) {
	q := t.use(st)
	q.text(arg)
	found := q.step()
	return found, q.end()
}

// promote makes the queue's due runs ready and reports whether some are left.
func (t *tx) promote(queue string) (more bool, err error) {
	q := t.use(qAnyDue)
	q.text(queue)
	q.int(t.now)
	due := q.step()
	if err := q.end(); err != nil || !due {
		return false, err
	}
	q = t.use(qPromote)
	q.text(queue)
	q.int(t.now)
	q.int(maxPromote)
	if err := q.exec(); err != nil {
		return false, err
	}
	t.group.wake(queue) // other workers may have room for what this claim leaves
	return t.db.Changes() == maxPromote, nil
}

func (t *tx) nextDue(queue string, dueNow bool) (int64, error) {
	if dueNow {
		return t.now, nil
	}
	q := t.use(qNextDue)
	q.text(queue)
	q.int(t.now)
	var next int64
	if q.step() {
		next = q.colInt(0)
	}
	return next, q.end()
}

// claimQueue takes up to ql.Limit ready runs of one queue and appends them to
// runs. It first takes the head of each tenant in rotation, then deals out what
// is left of the limit evenly over the tenants it met.
func (t *tx) claimQueue(runs []job.Run, worker string, ql store.QueueLimit) ([]job.Run, error) {
	from := len(runs)
	picked := picks{runs: runs}
	tenants, err := t.heads(&picked, ql)
	if err != nil {
		return runs, err
	}
	if len(tenants) < ql.Limit {
		if err := t.deal(&picked, ql, tenants); err != nil {
			return runs, err
		}
	}
	for i, seq := range picked.seqs {
		q := t.use(qClaimRun)
		q.int(seq)
		q.text(worker)
		q.int(t.now)
		if err := q.exec(); err != nil {
			return runs, err
		}
		picked.runs[from+i].Begin(worker, fromMS(t.now))
	}
	if n := len(picked.seqs); n > 0 {
		// The next claim goes on after the tenant that got the last share.
		last := tenants[len(tenants)-1]
		if extra := n % len(tenants); extra > 0 {
			last = tenants[extra-1]
		}
		t.rotate.last[ql.Queue] = cursor{tenant: last, set: true}
	}
	return picked.runs, nil
}

// picks are runs chosen but not yet claimed.
type picks struct {
	runs []job.Run
	seqs []int64
}

func (p *picks) add(q *call) error {
	r, seq, err := scanRun(q)
	if err != nil {
		return err
	}
	r.Input = q.colBlob(runColumns)
	p.runs = append(p.runs, r)
	p.seqs = append(p.seqs, seq)
	return nil
}

// heads picks the first run of each tenant in rotation, up to the limit, and
// returns the tenants in that order.
func (t *tx) heads(p *picks, ql store.QueueLimit) ([]string, error) {
	var tenants []string
	start := t.rotate.last[ql.Queue]
	at, wrapped := start, !start.set
	for len(tenants) < ql.Limit {
		q := t.use(qFirstOfFirstTenant)
		if at.set {
			q = t.use(qFirstOfNextTenant)
		}
		q.text(ql.Queue)
		if at.set {
			q.text(at.tenant)
		}
		found := q.step()
		var tenant string
		if found {
			tenant = q.colText(4)
			if wrapped && start.set && tenant > start.tenant {
				found = false // all the way round
			} else if err := p.add(&q); err != nil {
				q.end()
				return nil, err
			}
		}
		if err := q.end(); err != nil {
			return nil, err
		}
		switch {
		case found:
			tenants = append(tenants, tenant)
			at = cursor{tenant: tenant, set: true}
		case wrapped:
			return tenants, nil
		default:
			wrapped, at = true, cursor{}
		}
	}
	return tenants, nil
}

// deal picks more runs of the tenants whose heads were picked until the limit
// is reached or they have no more.
func (t *tx) deal(p *picks, ql store.QueueLimit, tenants []string) error {
	taken := make([]int, len(tenants))
	var open []int // indexes of tenants that may have more
	for i := range tenants {
		taken[i] = 1
		open = append(open, i)
	}
	for len(p.seqs) < ql.Limit && len(open) > 0 {
		left := ql.Limit - len(p.seqs)
		var still []int
		for n, i := range open {
			share := (left + len(open) - n - 1) / (len(open) - n)
			if share == 0 {
				continue
			}
			got, err := t.more(p, ql.Queue, tenants[i], share, taken[i])
			if err != nil {
				return err
			}
			taken[i] += got
			left -= got
			if got == share {
				still = append(still, i)
			}
		}
		open = still
	}
	return nil
}

func (t *tx) more(p *picks, queue, tenant string, limit, offset int) (got int, err error) {
	q := t.use(qMoreOfTenant)
	q.text(queue)
	q.text(tenant)
	q.int(int64(limit))
	q.int(int64(offset))
	for q.step() {
		if err := p.add(&q); err != nil {
			q.end()
			return got, err
		}
		got++
	}
	return got, q.end()
}
