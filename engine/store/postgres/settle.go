package postgres

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

var (
	qSettleDone    = named("settle_done")
	qSettle        = named("settle")
	qSettleAlike   = named("settle_done_alike")
	qSettledBefore = named("settled_before")
)

// Settle implements store.Settler: one round trip, unless an entry missed, or is
// more than the end of an attempt.
func (s *Store) Settle(ctx context.Context, batch []store.SettleParams) ([]store.SettleResult, error) {
	if len(batch) == 0 {
		return nil, nil
	}
	any, err := checkSettles(batch)
	if err != nil {
		return nil, err
	}
	out := make([]store.SettleResult, len(batch))
	if any {
		if err := s.settleMore(ctx, batch, out); err != nil {
			return nil, err
		}
	} else {
		for _, round := range settleRounds(batch, inOrder(len(batch))) {
			if err := s.settleRound(ctx, batch, round, out); err != nil {
				return nil, afterSome(err, out)
			}
		}
	}
	if err := s.settledBefore(ctx, batch, out); err != nil {
		return nil, afterSome(err, out)
	}
	return out, nil
}

// checkSettles refuses what no attempt can end as, and reports whether any entry
// is more than the end of an attempt.
func checkSettles(batch []store.SettleParams) (any bool, err error) {
	for i := range batch {
		p := &batch[i]
		if err := p.Check(); err != nil {
			return false, err
		}
		any = any || p.Step != nil && more(p.Step) || p.Invoke != nil || p.Invoked || len(p.Enqueue) > 0
	}
	return any, nil
}

// afterSome is err, which leaves open what happened if some entries landed before.
func afterSome(err error, out []store.SettleResult) error {
	if slices.ContainsFunc(out, func(r store.SettleResult) bool { return r.Landed }) {
		return errors.Join(err, store.ErrUnknown)
	}
	return err
}

func inOrder(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

// settleRounds parts some entries of a batch so that no run is in one part twice.
// Each is sorted by run, the order in which every write locks rows, so that two
// batches cannot wait for each other.
func settleRounds(batch []store.SettleParams, which []int) [][]int {
	slices.SortStableFunc(which, func(a, b int) int { return strings.Compare(batch[a].Ref.RunID, batch[b].Ref.RunID) })
	return splitRepeats(which, func(a, b int) bool { return batch[a].Ref.RunID == batch[b].Ref.RunID })
}

// splitRepeats parts sorted indexes so that no two of a part are the same.
func splitRepeats(sorted []int, same func(a, b int) bool) [][]int {
	var rounds [][]int
	nth := 0
	for n, i := range sorted {
		if nth++; n == 0 || !same(sorted[n-1], i) {
			nth = 0
		}
		for len(rounds) <= nth {
			rounds = append(rounds, nil)
		}
		rounds[nth] = append(rounds[nth], i)
	}
	return rounds
}

// settling is a round's work, in the arrays that its statements take.
type settling struct {
	s       *Store
	batch   []store.SettleParams
	out     []store.SettleResult
	done    []int // completed, and no more to it
	other   []int
	family  family
	logs    logs
	wake    []string
	resting []resting
}

// resting is a run that an attempt left to be claimed again.
type resting struct {
	queue, tenant string
	priority      int
	due           time.Time
	ready         bool // else it waits for its time
}

// rested tells the claims of this process of it.
func (c *claims) rested(r resting) {
	if r.ready {
		c.lower(r.queue, r.tenant, r.priority, r.due)
	} else {
		c.timed(r.queue, r.due)
	}
}

func (s *Store) newSettling(batch []store.SettleParams, round []int, out []store.SettleResult) *settling {
	g := &settling{s: s, batch: batch, out: out}
	for _, i := range round {
		if _, ok := parseUUID(batch[i].Ref.RunID); !ok {
			continue // no run has that id
		}
		p := &batch[i]
		g.logs.add(p.Ref, p.Log)
		if p.To.Terminal() {
			g.family.add(p.Ref.RunID, p.Parent)
		}
		if p.Outcome == job.Completed && p.Step == nil && p.Error == nil {
			g.done = append(g.done, i)
		} else {
			g.other = append(g.other, i)
		}
	}
	return g
}

func (s *Store) settleRound(ctx context.Context, batch []store.SettleParams, round []int, out []store.SettleResult) error {
	g := s.newSettling(batch, round, out)
	calls := g.calls()
	if len(calls) == 0 {
		return nil
	}
	err := s.write(ctx, func(q queryer) error {
		g.clear()
		return s.runAll(ctx, q, calls...)
	})
	if err == nil {
		g.landed()
		s.notes.later(g.wake)
	}
	return err
}

// clear forgets what an earlier try answered.
func (g *settling) clear() {
	for _, i := range append(slices.Clone(g.done), g.other...) {
		g.out[i] = store.SettleResult{}
	}
	g.wake, g.resting = nil, nil
}

// landed tells this process what the round made due.
func (g *settling) landed() {
	for _, r := range g.resting {
		g.s.claims.rested(r)
	}
	g.s.hub.Post(slices.Values(g.wake))
}

func (g *settling) calls() []call {
	var calls []call
	if len(g.done) > 0 {
		calls = append(calls, g.doneCall())
	}
	if len(g.other) > 0 {
		calls = append(calls, g.otherCall())
	}
	if f := &g.family; len(f.ended) > 0 {
		calls = slices.Insert(calls, 0, f.lock())
		calls = append(calls, f.calls(func(r resting) {
			g.resting, g.wake = append(g.resting, r), append(g.wake, r.queue)
		})...)
	}
	// While the runs are held.
	return append(g.logs.calls(), calls...)
}

// doneCall ends what is done: with less to send and to read if it is alike, which
// mostly it is.
func (g *settling) doneCall() call {
	first := &g.batch[g.done[0]]
	for _, i := range g.done {
		p := &g.batch[i]
		if p.Progress != nil || p.Ref.Worker != first.Ref.Worker || p.Retention != first.Retention || p.Module != first.Module {
			return g.mixedCall()
		}
	}
	n := len(g.done)
	ids, claims, outputs := newArray(n, 16), newArray(n, 8), newArray(n, 32)
	for _, i := range g.done {
		p := &g.batch[i]
		id, _ := parseUUID(p.Ref.RunID)
		ids.bytes(id[:])
		claims.int64(p.Ref.Claim)
		outputs.bytes(p.Output)
	}
	args := []any{enc(first.Ref.Worker), ids, claims, outputs, ms(first.Retention), encOrNull(first.Module)}
	return call{st: qSettleAlike, args: args, scan: g.isDone}
}

// isDone reads that one of those done has landed.
func (g *settling) isDone(r *row) error {
	i := g.done[r.int()-1]
	g.out[i].Landed = true
	g.freed(i)
	return nil
}

func (g *settling) mixedCall() call {
	n := len(g.done)
	ids, workers, claims := newArray(n, 16), newArray(n, 36), newArray(n, 8)
	outputs, keep, modules, progress := newArray(n, 32), newArray(n, 8), newArray(n, 8), newArray(n, 0)
	var worker, stored, module string // the last ones, which most entries repeat
	var digest *string
	for _, i := range g.done {
		p := &g.batch[i]
		id, _ := parseUUID(p.Ref.RunID)
		ids.bytes(id[:])
		if p.Ref.Worker != worker || stored == "" {
			worker, stored = p.Ref.Worker, enc(p.Ref.Worker)
		}
		workers.text(stored)
		claims.int64(p.Ref.Claim)
		outputs.bytes(p.Output)
		keep.int64(ms(p.Retention))
		if p.Module != module {
			module, digest = p.Module, encOrNull(p.Module)
		}
		modules.textOrNull(digest)
		if p.Progress != nil {
			progress.textOrNull(jsonText(*p.Progress))
		} else {
			progress.null()
		}
	}
	return call{st: qSettleDone, args: []any{ids, workers, claims, outputs, keep, modules, progress}, scan: g.isDone}
}

// freed has others be told of the place that an entry left, if it says so.
func (g *settling) freed(i int) {
	if queue := g.batch[i].Wake; queue != "" {
		g.wake = append(g.wake, queue)
	}
}

func (g *settling) otherCall() call {
	var a endings
	for _, i := range g.other {
		p := &g.batch[i]
		var output []byte
		if p.To == job.Done {
			output = p.Output
		}
		var orphans *int32
		if p.Outcome != job.Shed {
			// A shed run was never begun: nothing is known of what it does to a worker.
			orphans = new(int32)
		}
		a.add(ending{
			ref: p.Ref, outcome: p.Outcome, to: p.To, delay: p.Delay, uncounted: !p.Outcome.Counted(), orphans: orphans, reported: true,
			attemptError: p.Error, runError: p.Error, output: output, keep: p.Retention, module: p.Module, progress: p.Progress, step: p.Step,
		})
	}
	return call{st: qSettle, args: a.args(), scan: func(r *row) error {
		i := g.other[r.int()-1]
		rest := resting{due: r.time()}
		r.time()
		g.out[i] = store.SettleResult{Landed: true, RunAt: rest.due}
		g.freed(i)
		if rest.due.IsZero() {
			return nil
		}
		rest.queue, rest.tenant, rest.priority = r.text(), r.text(), int(r.int())
		rest.ready = g.batch[i].To == job.Ready
		g.resting = append(g.resting, rest)
		if r.bool() {
			g.wake = append(g.wake, rest.queue)
		}
		return nil
	}}
}

// settledBefore answers the entries that found nothing to end: landed if their
// claim's own worker ended it before, which is what a repeat after a lost answer
// finds.
func (s *Store) settledBefore(ctx context.Context, batch []store.SettleParams, out []store.SettleResult) error {
	var missed []int
	var ids []pgtype.UUID
	var workers []string
	var claims []int64
	for i := range batch {
		id, ok := parseUUID(batch[i].Ref.RunID)
		if out[i].Landed || !ok {
			continue
		}
		missed = append(missed, i)
		ids, workers, claims = append(ids, id.param()), append(workers, enc(batch[i].Ref.Worker)), append(claims, batch[i].Ref.Claim)
	}
	if len(missed) == 0 {
		return nil
	}
	return s.read(ctx, func(q queryer) error {
		return s.run(ctx, q, call{st: qSettledBefore, args: []any{ids, workers, claims}, scan: func(r *row) error {
			out[missed[r.int()-1]] = store.SettleResult{Landed: true, RunAt: r.time()}
			return nil
		}})
	})
}
