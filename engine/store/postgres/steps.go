package postgres

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

var (
	qListSteps = named("list_steps")
	qUnwindsOf = named("unwinds_of")
	qSaveSteps = named("save_steps")
	qSaveNew   = named("save_new_steps")
	qHold      = named("hold")
)

// ListSteps implements store.Steps.
func (s *Store) ListSteps(ctx context.Context, runID string) (out []job.Step, err error) {
	id, ok := parseUUID(runID)
	if !ok {
		return nil, nil
	}
	err = s.read(ctx, func(q queryer) error {
		out = nil
		return s.run(ctx, q, call{st: qListSteps, args: []any{id.param()}, scan: func(r *row) error {
			st := job.Step{Name: r.text(), Seq: int(r.int()), Kind: job.StepKind(r.text())}
			text := r.text()
			if st.Status, err = job.ParseStepStatus(text); err != nil {
				return errRowStatus("status of step "+st.Name, text, runID)
			}
			st.Attempts = int(r.int())
			st.WakeAt, st.StartedAt, st.FinishedAt = r.time(), r.time(), r.time()
			st.Error = r.failure()
			st.Output = r.bytes()
			st.Topic, st.EventKey, st.Place, st.Child = r.text(), r.text(), r.int(), r.uuid()
			out = append(out, st)
			return nil
		}})
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// Unwinds implements store.Steps.
func (s *Store) Unwinds(ctx context.Context, runIDs []string) (map[string]job.Unwind, error) {
	out := map[string]job.Unwind{}
	err := s.read(ctx, func(q queryer) error {
		clear(out)
		return s.run(ctx, q, call{st: qUnwindsOf, args: []any{uuidParams(runIDs)}, scan: func(r *row) error {
			id := r.uuid()
			u, err := job.ParseUnwind(r.bytes())
			out[id] = u
			return err
		}})
	})
	return out, err
}

// more reports whether the record is more than a row of steps.
func more(p *store.StepParams) bool {
	return len(p.Enqueue) > 0 || p.OutputEnqueued || len(p.Publish) > 0 || p.Wait != nil
}

// SaveSteps implements store.Steps: one statement, unless a step enqueues or
// publishes something, waits, or is in the batch twice.
func (s *Store) SaveSteps(ctx context.Context, batch []store.StepParams) ([]store.StepResult, error) {
	if len(batch) == 0 {
		return nil, nil
	}
	any, err := checkSteps(batch)
	if err != nil {
		return nil, err
	}
	out := make([]store.StepResult, len(batch))
	rounds := stepRounds(batch)
	if !any && len(rounds) == 1 {
		if err := s.saveOne(ctx, batch, rounds[0], out, nil); err != nil {
			return nil, err
		}
		return out, nil
	}
	var entered []*entries
	var woken []resting
	try := 0
	err = s.inTx(ctx, func(tx pgx.Tx) (err error) {
		try++
		clear(out)
		entered, woken, err = s.saveMore(ctx, tx, batch, rounds, out, enqueueModeOf(try))
		if err != nil {
			return err
		}
		return s.notes.in(ctx, tx, append(queuesOf(entered), queuesOfResting(woken)...))
	})
	if err != nil {
		return nil, err
	}
	for _, b := range entered {
		s.entered(b)
	}
	s.woke(woken)
	return out, nil
}

// checkSteps refuses what cannot be recorded, and reports whether any entry is more
// than a row of steps.
func checkSteps(batch []store.StepParams) (any bool, err error) {
	for i := range batch {
		if err := batch[i].Check(); err != nil {
			return false, err
		}
		any = any || more(&batch[i])
	}
	return any, nil
}

// stepRounds parts a batch so that no record is in one part twice, each in the
// order of its runs: see settleRounds. Within a run the batch's order stays,
// over all parts.
func stepRounds(batch []store.StepParams) [][]int {
	all := inOrder(len(batch))
	slices.SortStableFunc(all, func(a, b int) int { return strings.Compare(batch[a].Ref.RunID, batch[b].Ref.RunID) })
	var rounds [][]int
	nth := 0
	seen := map[string]bool{}  // of this run, in this round
	same := func(n int) bool { // as the entry before: of one run
		return n > 0 && n < len(all) && batch[all[n-1]].Ref.RunID == batch[all[n]].Ref.RunID
	}
	for n, i := range all {
		switch {
		case !same(n):
			nth = 0
			clear(seen)
		case seen[batch[i].Name]:
			nth++
			clear(seen)
		}
		if same(n) || same(n+1) {
			seen[batch[i].Name] = true
		}
		for len(rounds) <= nth {
			rounds = append(rounds, nil)
		}
		rounds[nth] = append(rounds[nth], i)
	}
	return rounds
}

// saveOne saves the only round of a batch that is nothing more, by the shorter
// statement what it can, and settles with it what g has, if it is not nil.
func (s *Store) saveOne(ctx context.Context, batch []store.StepParams, round []int, out []store.StepResult, g *settling) error {
	var fresh, others []int
	for from := 0; from < len(round); {
		// A run's records are reached in their order: all of them go one way.
		to, all := from, true
		for ; to < len(round) && batch[round[to]].Ref.RunID == batch[round[from]].Ref.RunID; to++ {
			p := &batch[round[to]]
			all = all && isNew(p) && p.Ref.Worker == batch[round[0]].Ref.Worker
		}
		if all {
			fresh = append(fresh, round[from:to]...)
		} else {
			others = append(others, round[from:to]...)
		}
		from = to
	}
	save := func(fresh, others []int) error {
		return s.write(ctx, func(q queryer) error {
			clear(out)
			var calls []call
			for _, c := range []call{saveNewCall(batch, fresh, out), saveCall(batch, others, out)} {
				if c.st != nil {
					calls = append(calls, c)
				}
			}
			if g != nil {
				g.clear()
				calls = append(calls, g.calls()...)
			}
			if len(calls) == 0 {
				return nil
			}
			return s.runAll(ctx, q, calls...)
		})
	}
	err := save(fresh, others)
	if len(fresh) > 0 && sqlState(err) == "23505" { // unique_violation: not new after all
		err = save(nil, round)
	}
	return err
}

// isNew reports whether p is a record for save_new_steps.
func isNew(p *store.StepParams) bool {
	return p.New && p.Kind == job.KindStep && p.Status == job.StepCompleted && p.Attempts == 0 && p.Error == nil && p.WakeAt.IsZero()
}

// saveNewCall is the statement for new records of one worker; none if there are
// none.
func saveNewCall(batch []store.StepParams, round []int, out []store.StepResult) call {
	if len(round) == 0 {
		return call{}
	}
	n := len(round)
	which := make([]int, 0, n)
	ids, claims, names := newArray(n, 16), newArray(n, 8), newArray(n, 16)
	elapsed, outputs, modules := newArray(n, 8), newArray(n, 64), newArray(n, 16)
	for _, i := range round {
		p := &batch[i]
		id, ok := parseUUID(p.Ref.RunID)
		if !ok {
			continue // no run has that id
		}
		which = append(which, i)
		ids.bytes(id[:])
		claims.int64(p.Ref.Claim)
		names.text(enc(p.Name))
		elapsed.int64(ms(p.Elapsed))
		outputs.bytes(p.Output)
		modules.textOrNull(encOrNull(p.Module))
	}
	if len(which) == 0 {
		return call{}
	}
	args := []any{enc(batch[which[0]].Ref.Worker), ids, claims, names, elapsed, outputs, modules}
	return call{st: qSaveNew, args: args, scan: saved(which, out)}
}

// saved reads which records landed, and when.
func saved(which []int, out []store.StepResult) func(r *row) error {
	return func(r *row) error {
		i := which[r.int()-1]
		out[i].Landed, out[i].At = true, r.time()
		return nil
	}
}

func (s *Store) saveRound(ctx context.Context, q queryer, batch []store.StepParams, round []int, out []store.StepResult) error {
	c := saveCall(batch, round, out)
	if c.st == nil {
		return nil
	}
	return s.run(ctx, q, c)
}

// saveCall is the statement for any records; none if there are none.
func saveCall(batch []store.StepParams, round []int, out []store.StepResult) call {
	var (
		which                           []int
		ids                             []pgtype.UUID
		workers, names, kinds, statuses []string
		claims, elapsed                 []int64
		attempts                        []int32
		sleeps                          []*int64
		wakes                           []*time.Time
		failures, modules               []*string
		outputs                         [][]byte
	)
	for _, i := range round {
		p := &batch[i]
		id, ok := parseUUID(p.Ref.RunID)
		if !ok || p.Wait != nil {
			continue // no run has that id, or saveWaits is for it
		}
		which, ids = append(which, i), append(ids, id.param())
		workers, claims = append(workers, enc(p.Ref.Worker)), append(claims, p.Ref.Claim)
		names, kinds, statuses = append(names, enc(p.Name)), append(kinds, enc(string(p.Kind))), append(statuses, string(p.Status))
		attempts = append(attempts, int32(p.Attempts))
		sleeps, wakes = append(sleeps, sleepOf(p)), append(wakes, timeOrNull(p.WakeAt))
		elapsed = append(elapsed, ms(p.Elapsed))
		failures, modules = append(failures, failureText(p.Error)), append(modules, encOrNull(p.Module))
		outputs = append(outputs, p.Output)
	}
	if len(which) == 0 {
		return call{}
	}
	args := []any{ids, workers, claims, names, kinds, statuses, attempts, sleeps, wakes, elapsed, failures, outputs, modules}
	return call{st: qSaveSteps, args: args, scan: saved(which, out)}
}

// hold says which refs are held, and has their rows stay as they are until the
// transaction ends. It locks them in the order of their runs.
func (s *Store) hold(ctx context.Context, q queryer, refs []job.Ref) ([]bool, error) {
	order := inOrder(len(refs))
	slices.SortFunc(order, func(a, b int) int { return strings.Compare(refs[a].RunID, refs[b].RunID) })
	held := make([]bool, len(refs))
	ids, workers, claims := make([]pgtype.UUID, len(refs)), make([]string, len(refs)), make([]int64, len(refs))
	for k, i := range order {
		ids[k], workers[k], claims[k] = idParam(refs[i].RunID), enc(refs[i].Worker), refs[i].Claim
	}
	err := s.run(ctx, q, call{st: qHold, args: []any{ids, workers, claims}, scan: func(r *row) error {
		held[order[r.int()-1]] = true
		return nil
	}})
	return held, err
}

// saveMore saves the rounds of a batch in a transaction, inserting first what the
// steps that are held enqueue. It returns what went in, and which runs were woken
// by what they publish.
func (s *Store) saveMore(ctx context.Context, tx pgx.Tx, batch []store.StepParams, rounds [][]int, out []store.StepResult, mode enqueueMode) (entered []*entries, woken []resting, err error) {
	refs := make([]job.Ref, len(batch))
	var topics []string
	var events []store.EventParams
	for i := range batch {
		refs[i] = batch[i].Ref
		events = append(events, batch[i].Publish...)
		if w := batch[i].Wait; w != nil {
			topics = append(topics, w.Topic)
		}
	}
	if len(topics)+len(events) > 0 {
		if err := s.run(ctx, tx, lockTopics(topics, events)); err != nil {
			return nil, nil, err
		}
	}
	held, err := s.hold(ctx, tx, refs)
	if err != nil {
		return nil, nil, err
	}
	events = nil
	mine := slices.Clone(batch)
	for i := range mine {
		st := &mine[i]
		if held[i] {
			events = append(events, st.Publish...)
		}
		if !held[i] || len(st.Enqueue) == 0 && !st.OutputEnqueued {
			continue
		}
		b, output, err := s.enqueueOf(ctx, tx, st, mode)
		if err != nil {
			return nil, nil, err
		}
		out[i].Enqueued = b.results
		if st.OutputEnqueued {
			out[i].Output = output
		}
		st.Output = output
		entered = append(entered, b)
	}
	for _, round := range rounds {
		if err := s.saveRound(ctx, tx, mine, round, out); err != nil {
			return nil, nil, err
		}
		if err := s.saveWaits(ctx, tx, mine, round, held, out); err != nil {
			return nil, nil, err
		}
	}
	if len(events) > 0 {
		if _, woken, err = s.publishIn(ctx, tx, events); err != nil {
			return nil, nil, err
		}
	}
	return entered, woken, nil
}

// saveWaits writes the records of waits of a round, whose topics are locked, and
// ends those that are over.
func (s *Store) saveWaits(ctx context.Context, tx pgx.Tx, batch []store.StepParams, round []int, held []bool, out []store.StepResult) error {
	var which []int
	var w waits
	for _, i := range round {
		if p := &batch[i]; held[i] && p.Wait != nil {
			which = append(which, i)
			w.add(p.Ref.RunID, p.Module, p)
		}
	}
	if which == nil {
		return nil
	}
	return s.runAll(ctx, tx, w.save(), w.end(func(i int, res store.StepResult) { out[which[i]] = res }))
}

// queuesOf are the queues that got work by what went in.
func queuesOf(entered []*entries) (queues []string) {
	for _, b := range entered {
		queues = append(queues, b.queues(b.all())...)
	}
	return queues
}
