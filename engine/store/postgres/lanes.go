package postgres

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/jobrunner/runner/engine/job"
)

// A claim reads the index of ready runs from its low end, where the entries of
// runs that were claimed before lie until a vacuum may take them. While a
// transaction anywhere in the database is held open, none may, and a claim would
// step over every run claimed since it began: 0.1 ms for a thousand.
//
// So when exact claims become slow, a process goes on from where its own claims
// left off, in each lane (a queue's tenant and priority) that it knows, and
// claims exactly only now and then: as often as keeps that to a twentieth of
// the time. Exact claims find what the others cannot see: lanes that another
// process began, and runs that were committed long after they were stamped. Such
// runs wait for the next exact claim, lanesMax at most; nothing is lost, and a
// run that this process enqueues is seen at once.

const (
	// lanesMargin is how long a run may take from its stamp to its commit
	// without waiting for an exact claim.
	lanesMargin = 250 * time.Millisecond
	// lanesMax bounds the time between exact claims.
	lanesMax = 5 * time.Second
	// lanesShare is how many times as long as an exact claim took longer than
	// it should the next one is put off.
	lanesShare = 20
	// lanesKnown bounds the lanes that are remembered of a queue.
	lanesKnown = 4096
	// What an exact claim may take in the server, at most: so much, and so much
	// more per run.
	claimBase   = 10 * time.Millisecond
	claimPerRun = 50 * time.Microsecond
)

// lane is a queue's runs of one tenant, as it is stored, and one priority.
type lane struct {
	tenant   string
	priority int16
}

// floor is a place in a lane before which nothing is left to be claimed, but for
// what only an exact claim finds.
type floor struct {
	at time.Time
	id uuid
}

func (f floor) before(o floor) bool {
	return cmp.Or(f.at.Compare(o.at), slices.Compare(f.id[:], o.id[:])) < 0
}

// lanes is what a process knows of one queue while exact claims are slow. Guarded
// by claims.mu.
type lanes struct {
	floors map[lane]floor
	busy   map[string]bool // tenants that had all of their last share
}

// slow reports whether exact claims are put off, and from when on the times of
// what waits for one are to be read: zero for all.
func (c *claims) slow(asked []queueClaim) (from time.Time, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Now().After(c.exactAgain) {
		return from, false
	}
	for i, q := range asked {
		h := c.of(q.Queue)
		if h.lanes == nil {
			return time.Time{}, false
		}
		if i == 0 || h.promoted.Before(from) {
			from = h.promoted
		}
	}
	return from, true
}

// byLane reports whether claims may be going by lanes.
func (c *claims) byLane() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.exactAgain.IsZero()
}

// wasSlow notes what an exact claim of n runs took. If that was too long it has
// what becomes ready from now on be noted, and returns how long it was over the
// limit; lanesFound is to follow.
func (c *claims) wasSlow(asked []queueClaim, took time.Duration, n int) (over time.Duration, slow bool) {
	limit := claimBase + time.Duration(n)*claimPerRun
	if c.limit != 0 {
		limit = c.limit
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if took <= limit {
		if !c.exactAgain.IsZero() {
			c.exactAgain = time.Time{}
			for _, h := range c.queues {
				h.lanes = nil
			}
		}
		return 0, false
	}
	for _, q := range asked {
		c.of(q.Queue).lanes = &lanes{floors: map[lane]floor{}, busy: map[string]bool{}}
	}
	if c.exactAgain.IsZero() {
		c.exactAgain = time.Now() // past, but claims are going to be by lanes
	}
	return took - limit, true
}

// findLanes learns where each lane of some queues stands, after an exact claim
// that took too long by over. It walks the same entries as that claim.
func (s *Store) findLanes(ctx context.Context, asked []queueClaim, over time.Duration) error {
	queues := make([]string, len(asked))
	for i, q := range asked {
		queues[i] = enc(q.Queue)
	}
	began := time.Now()
	err := s.read(ctx, func(q queryer) error {
		return s.run(ctx, q, call{st: qFindLanes, args: []any{queues, lanesKnown}, scan: func(r *row) error {
			s.claims.lower(r.text(), r.text(), int(r.int()), r.time())
			return nil
		}})
	})
	if err != nil {
		return err
	}
	c := s.claims
	c.mu.Lock()
	defer c.mu.Unlock()
	c.exactAgain = time.Now().Add(min(lanesShare*(over+time.Since(began)), lanesMax))
	return nil
}

// raise moves the floors of the lanes that a claim took runs from, with mu held.
func (c *claims) raise(rows *claimRows) {
	for queue, byTenant := range rows.runs {
		h := c.of(queue)
		if h.lanes == nil {
			continue
		}
		for tenant, runs := range byTenant {
			stored := enc(tenant)
			h.lanes.busy[stored] = rows.fullOf[queue][tenant]
			for i := range runs {
				h.lanes.raise(stored, &runs[i], rows.now)
			}
		}
	}
}

func (l *lanes) raise(tenant string, r *job.Run, now time.Time) {
	k := lane{tenant, int16(r.Rank())}
	id, _ := parseUUID(r.ID)
	to := floor{r.RunAt, id}
	if top := (floor{at: now.Add(-lanesMargin)}); top.before(to) {
		to = top
	}
	have, ok := l.floors[k]
	if !ok && len(l.floors) >= lanesKnown {
		return
	}
	if !ok || have.before(to) {
		l.floors[k] = to
	}
}

// lower has a lane be read from a run that became ready in it, if its queue is
// claimed by lanes.
func (c *claims) lower(queue, tenant string, priority int, at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := c.queues[queue]
	if h == nil || h.lanes == nil {
		return
	}
	k := lane{enc(tenant), int16(priority)}
	// One place before: a run of that very instant is to be found.
	to := floor{at: at.Add(-time.Millisecond)}
	if have, ok := h.lanes.floors[k]; !ok || to.before(have) {
		h.lanes.floors[k] = to
	}
	h.lanes.busy[k.tenant] = true
}

// forgetLanes has the next claim of a queue be exact: what the ones before found
// empty was paused. Other processes find out with their own next exact claim.
func (c *claims) forgetLanes(queue string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if h := c.queues[queue]; h != nil {
		h.lanes = nil
	}
}

// lowered is lower for runs that this process made ready just now.
func (c *claims) lowered(queue, tenant string, priority int) {
	c.mu.Lock()
	now := c.now
	if !c.still {
		now = now.Add(time.Since(c.at))
	}
	c.mu.Unlock()
	c.lower(queue, tenant, priority, now.Add(-lanesMargin))
}

// laneArgs are the arrays of claim_lanes.
type laneArgs struct {
	queues, tenants []string
	priorities      []int16
	ats             []time.Time
	ids             []pgtype.UUID
	shares, places  []int32
	rest            bool // there are lanes that are not asked
}

func (a *laneArgs) args() []any {
	return []any{a.queues, a.tenants, a.priorities, a.ats, a.ids, a.shares, a.places}
}

// probed bounds the tenants of a queue that one statement looks at.
const probed = 256

// plan says which lanes to look at, of tenants that had runs the last time before
// those that had not, each in rotation. skip are tenants that this claim found
// empty.
func (c *claims) plan(asked []queueClaim, skip map[string]map[string]bool) (a laneArgs) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, q := range asked {
		h := c.of(q.Queue)
		if q.Limit == 0 || h.lanes == nil {
			continue
		}
		byTenant := map[string][]lane{}
		for k := range h.lanes.floors {
			if !skip[q.Queue][k.tenant] {
				byTenant[k.tenant] = append(byTenant[k.tenant], k)
			}
		}
		var order, idle []string
		for t := range byTenant {
			if h.lanes.busy[t] {
				order = append(order, t)
			} else {
				idle = append(idle, t)
			}
		}
		rotate(order, h.served)
		rotate(idle, h.served)
		if order = append(order, idle...); len(order) > probed {
			order, a.rest = order[:probed], true
		}
		// Few tenants may each fill the limit; of many, each twice its part.
		share := q.Limit
		if n := len(order); n > 4 {
			share = (2*q.Limit + n - 1) / n
		}
		stored := enc(q.Queue)
		for place, t := range order {
			for _, k := range byTenant[t] {
				f := h.lanes.floors[k]
				a.queues, a.tenants, a.priorities = append(a.queues, stored), append(a.tenants, t), append(a.priorities, k.priority)
				a.ats, a.ids = append(a.ats, f.at), append(a.ids, f.id.param())
				a.shares, a.places = append(a.shares, int32(share)), append(a.places, int32(place))
			}
		}
	}
	return a
}

// rotate sorts tenants and begins with the one after after.
func rotate(tenants []string, after *string) {
	slices.SortFunc(tenants, func(a, b string) int {
		if after != nil && (a <= *after) != (b <= *after) {
			if b <= *after {
				return -1
			}
			return 1
		}
		return cmp.Compare(a, b)
	})
}

// byLanes notes what a claim by lanes left behind. In the queues whose limit was
// not reached, the tenants that had less than their share are empty up to a
// moment ago; it adds them to skip.
func (c *claims) byLanes(left []queueClaim, a *laneArgs, rows *claimRows, skip map[string]map[string]bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.raise(rows)
	for _, q := range left {
		h := c.of(q.Queue)
		if q.Limit == 0 || h.lanes == nil {
			continue
		}
		stored := enc(q.Queue)
		for i, tenant := range a.tenants {
			if a.queues[i] != stored || rows.fullOf[q.Queue][dec([]byte(tenant))] {
				continue
			}
			if skip[q.Queue] == nil {
				skip[q.Queue] = map[string]bool{}
			}
			skip[q.Queue][tenant] = true
			h.lanes.busy[tenant] = false
			k := lane{tenant, a.priorities[i]}
			top := floor{at: rows.now.Add(-lanesMargin)}
			// Not if it was moved meanwhile.
			if have, ok := h.lanes.floors[k]; ok && have == (floor{a.ats[i], uuid(a.ids[i].Bytes)}) && have.before(top) {
				h.lanes.floors[k] = top
			}
		}
	}
}
