package postgres

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

var (
	qLockTopics   = named("lock_topics")
	qPublish      = named("publish")
	qPublishTx    = named("publish_tx")
	qPublishNow   = named("publish_now")
	qFindEvent    = named("find_event")
	qSaveWaits    = named("save_waits")
	qPlaceWaits   = named("place_waits")
	qEndWaits     = named("end_waits")
	qRestWaits    = named("rest_waits")
	qPendingEvent = named("pending_event")
	qListEvents   = named("list_events")
	qPurgeEvents  = named("purge_events")
)

// Publish implements store.Events.
func (s *Store) Publish(ctx context.Context, batch []store.EventParams) (out []store.EventResult, err error) {
	if len(batch) == 0 {
		return nil, nil
	}
	if err := store.CheckEvents(batch); err != nil {
		return nil, err
	}
	if s.onlyPublishes.Load() && !publishedByRuns(batch) {
		return s.publishNow(ctx, batch)
	}
	var woken []resting
	err = s.inTx(ctx, func(tx pgx.Tx) error {
		if err := s.run(ctx, tx, lockTopics(nil, batch)); err != nil {
			return err
		}
		if out, woken, err = s.publishIn(ctx, tx, batch); err != nil {
			return err
		}
		return s.notes.in(ctx, tx, queuesOfResting(woken))
	})
	if abi.CodeOf(err) == job.CodeDatabaseDenied && !publishedByRuns(batch) {
		// The role of a program that only enqueues and publishes.
		if out, again := s.publishNow(ctx, batch); again == nil {
			s.onlyPublishes.Store(true)
			return out, nil
		}
	}
	if err != nil {
		return nil, err
	}
	s.woke(woken)
	return out, nil
}

func publishedByRuns(batch []store.EventParams) bool {
	return slices.ContainsFunc(batch, func(p store.EventParams) bool { return p.Run != "" })
}

// publishNow publishes with the rights of the schema's owner, in order and in one
// transaction.
func (s *Store) publishNow(ctx context.Context, batch []store.EventParams) (out []store.EventResult, err error) {
	var woken []resting
	err = s.inTx(ctx, func(tx pgx.Tx) error {
		if err := s.run(ctx, tx, lockTopics(nil, batch)); err != nil {
			return err
		}
		out, woken = make([]store.EventResult, len(batch)), nil
		calls := make([]call, len(batch))
		for i := range batch {
			p := &batch[i]
			calls[i] = call{
				st:   qPublishNow,
				args: []any{p.Topic, string(notNil(p.Payload)), p.Key, p.Tenant, max(ms(p.Keep), 1), p.By, idParam(p.ID)},
				scan: func(r *row) error {
					out[i].Deduped = r.bool()
					return scanPublished(&out[i], &woken)(r)
				},
			}
		}
		if err := s.runAll(ctx, tx, calls...); err != nil {
			return err
		}
		return s.notes.in(ctx, tx, queuesOfResting(woken))
	})
	if err != nil {
		return nil, err
	}
	s.woke(woken)
	return out, nil
}

// PublishTx publishes a batch with the caller's transaction: it is there when that
// commits, and who waits for it is woken then. It leaves the transaction usable
// unless it fails.
func (s *Store) PublishTx(ctx context.Context, tx pgx.Tx, batch []store.EventParams) error {
	if len(batch) == 0 {
		return nil
	}
	if err := store.CheckEvents(batch); err != nil {
		return err
	}
	var topics, payloads, keys, tenants []string
	var keeps []int64
	var by []*string
	var ids []pgtype.UUID
	for i := range batch {
		p := &batch[i]
		topics, payloads, keys, tenants = append(topics, p.Topic), append(payloads, string(p.Payload)), append(keys, p.Key), append(tenants, p.Tenant)
		var who *string // the session's role
		if p.By != "" {
			who = &p.By
		}
		keeps, by, ids = append(keeps, max(ms(p.Keep), 1)), append(by, who), append(ids, idParam(p.ID))
	}
	return s.translate(s.run(ctx, tx, call{st: qPublishTx, args: []any{topics, payloads, keys, tenants, keeps, by, ids}}), false)
}

// scanPublished reads what a publish of one event answers.
func scanPublished(res *store.EventResult, woken *[]resting) func(r *row) error {
	return func(r *row) error {
		res.Seq, res.At = r.int(), r.time()
		if r.bool() {
			res.Woken++
			*woken = append(*woken, resting{queue: r.text(), tenant: r.text(), priority: int(r.int()), due: res.At, ready: true})
		}
		return nil
	}
}

// checkEvents refuses what could not be stored as it is.

// lockTopics is the statement that locks topics and those of events. It must come
// before any row of a run is locked.
func lockTopics(topics []string, events []store.EventParams) call {
	stored := make([]string, 0, len(topics)+len(events))
	for _, t := range topics {
		stored = append(stored, enc(t))
	}
	for i := range events {
		stored = append(stored, enc(events[i].Topic))
	}
	return call{st: qLockTopics, args: []any{stored}}
}

// publishIn publishes events whose topics are locked, in order and in one round
// trip, and answers which runs they woke.
func (s *Store) publishIn(ctx context.Context, tx pgx.Tx, batch []store.EventParams) (out []store.EventResult, woken []resting, err error) {
	out = make([]store.EventResult, len(batch))
	calls := make([]call, len(batch))
	for i := range batch {
		p := &batch[i]
		calls[i] = call{
			st:   qPublish,
			args: []any{idParam(p.ID), enc(p.Topic), enc(p.Key), notNil(p.Payload), idParam(p.Run), enc(p.By), max(ms(p.Keep), 1), enc(p.Tenant)},
			scan: scanPublished(&out[i], &woken),
		}
	}
	if err := s.runAll(ctx, tx, calls...); err != nil {
		return nil, nil, err
	}
	for i := range out {
		if out[i].Seq != 0 {
			continue
		}
		out[i].Deduped = true
		err := s.run(ctx, tx, call{st: qFindEvent, args: []any{idParam(batch[i].ID)}, scan: func(r *row) error {
			out[i].Seq, out[i].At = r.int(), r.time()
			return nil
		}})
		if err != nil {
			return nil, nil, err
		}
	}
	return out, woken, nil
}

// notNil is b as a value that is not NULL.
func notNil(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

func queuesOfResting(rs []resting) []string {
	queues := make([]string, 0, len(rs))
	for _, r := range rs {
		queues = append(queues, r.queue)
	}
	return queues
}

// woke tells this process of parked runs that a commit made ready.
func (s *Store) woke(rs []resting) {
	for _, r := range rs {
		s.claims.rested(r)
	}
	s.hub.Post(slices.Values(queuesOfResting(rs)))
}

// waits are records of waits, in the arrays that their statements take.
type waits struct {
	ids                          []pgtype.UUID
	names, topics, keys, modules []string
	wakes                        []*time.Time
	sleeps                       []int64
	places                       []*int64
}

func (w *waits) add(runID, module string, p *store.StepParams) {
	w.ids, w.names = append(w.ids, idParam(runID)), append(w.names, enc(p.Name))
	w.topics, w.keys = append(w.topics, enc(p.Wait.Topic)), append(w.keys, enc(p.Wait.Key))
	w.modules = append(w.modules, enc(module))
	w.wakes, w.sleeps = append(w.wakes, timeOrNull(p.WakeAt)), append(w.sleeps, ms(p.Sleep))
	var place *int64
	if !p.Wait.FromNow {
		place = &p.Wait.After
	}
	w.places = append(w.places, place)
}

// save is the statement that writes records of running runs; place the one that
// completes what a settle wrote; end then ends those that are over.
func (w *waits) save() call {
	modules := make([]*string, len(w.modules))
	for i := range w.modules {
		if w.modules[i] != "" {
			modules[i] = &w.modules[i]
		}
	}
	return call{st: qSaveWaits, args: []any{w.ids, w.names, w.wakes, w.sleeps, w.topics, w.keys, w.places, modules}}
}

func (w *waits) place() call {
	return call{st: qPlaceWaits, args: []any{w.ids, w.names, w.topics, w.keys, w.places}}
}

func (w *waits) end(each func(i int, res store.StepResult)) call {
	return call{st: qEndWaits, args: []any{w.ids, w.names}, scan: func(r *row) error {
		i := int(r.int() - 1)
		each(i, store.StepResult{Landed: true, Status: job.StepStatus(r.text()), Place: r.int(), Output: r.bytes(), At: r.time()})
		return nil
	}}
}

// rest is the statement that leaves runs, which a settle suspended, parked or
// ready.
func (w *waits) rest(each func(i int, rest resting)) call {
	return call{st: qRestWaits, args: []any{w.ids, w.names}, scan: scanRest(each)}
}

func scanRest(each func(i int, rest resting)) func(r *row) error {
	return func(r *row) error {
		i := int(r.int() - 1)
		rest := resting{ready: r.bool(), due: r.time()}
		rest.queue, rest.tenant, rest.priority = r.text(), r.text(), int(r.int())
		each(i, rest)
		return nil
	}
}

// PendingEvent implements store.Events.
func (s *Store) PendingEvent(ctx context.Context, tenant string, p store.WaitParams) (pending bool, err error) {
	if p.FromNow {
		return false, nil
	}
	err = s.read(ctx, func(q queryer) error {
		return s.run(ctx, q, call{st: qPendingEvent, args: []any{enc(p.Topic), enc(p.Key), p.After, enc(tenant)}, scan: func(r *row) error {
			pending = r.bool()
			return nil
		}})
	})
	return pending, err
}

// ListEvents implements store.Events.
func (s *Store) ListEvents(ctx context.Context, p store.ListEventsParams) (out []job.Event, err error) {
	if p, err = p.Page(); err != nil {
		return nil, err
	}
	err = s.read(ctx, func(q queryer) error {
		out = nil
		return s.run(ctx, q, call{st: qListEvents, args: []any{enc(p.Topic), enc(p.Key), p.Before, p.Limit, enc(p.Tenant)}, scan: func(r *row) error {
			out = append(out, job.Event{
				Seq: r.int(), ID: r.uuid(), Topic: r.text(), Key: r.text(), Payload: r.bytes(), Run: r.uuid(), By: r.text(),
				PublishedAt: r.time(), ExpiresAt: r.time(), Tenant: r.text(),
			})
			return nil
		}})
	})
	return out, err
}

// PurgeEvents implements store.Events. It commits chunk by chunk.
func (s *Store) PurgeEvents(ctx context.Context, limit int) (total int, err error) {
	if limit < 0 {
		return 0, store.Invalid("purge of %d events", limit)
	}
	for left := limit; left > 0; {
		chunk := min(left, purgeChunk)
		n, err := s.count(ctx, call{st: qPurgeEvents, args: []any{chunk}})
		if err != nil {
			return total, err
		}
		total, left = total+n, left-n
		if n < chunk {
			break
		}
	}
	return total, nil
}
