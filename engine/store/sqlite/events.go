package sqlite

import (
	"context"

	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

var (
	qInsertEvent        = named("insert_event")
	qEventByID          = named("event_by_id")
	qForgetExpired      = named("forget_expired_event")
	qWaiters            = named("waiters")
	qTenantsWaiters     = named("tenants_waiters")
	qTenantOf           = named("tenant_of")
	qReadyRun           = named("ready_run")
	qEndWaitOf          = named("end_wait_of")
	qEndWait            = named("end_wait")
	qPlaceWait          = named("place_wait")
	qParkForEvent       = named("park_for_event")
	qLastOfTopic        = named("last_of_topic")
	qEndedWait          = named("ended_wait")
	qNextOfTopic        = named("next_of_topic")
	qNextOfKey          = named("next_of_key")
	qTenantsNextOfTopic = named("tenants_next_of_topic")
	qTenantsNextOfKey   = named("tenants_next_of_key")
	qListEvents         = named("list_events")
	qListTopic          = named("list_topic")
	qPurgeEvents        = named("purge_events")
)

// Publish implements store.Events.
func (s *Store) Publish(ctx context.Context, batch []store.EventParams) ([]store.EventResult, error) {
	if len(batch) == 0 {
		return nil, nil
	}
	if err := store.CheckEvents(batch); err != nil {
		return nil, err
	}
	var out []store.EventResult
	err := s.w.do(ctx, func(tx *tx) (err error) {
		out, err = tx.publish(batch)
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// publish adds events that have been checked and wakes who waits for them.
func (t *tx) publish(batch []store.EventParams) ([]store.EventResult, error) {
	out := make([]store.EventResult, len(batch))
	for i := range batch {
		var err error
		if out[i], err = t.publishOne(&batch[i]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (t *tx) publishOne(p *store.EventParams) (store.EventResult, error) {
	id, _ := parseUUID(p.ID)
	q := t.use(qForgetExpired)
	q.blob(id[:])
	q.int(t.now)
	if err := q.exec(); err != nil {
		return store.EventResult{}, err
	}
	q = t.use(qInsertEvent)
	q.blob(id[:])
	q.text(p.Topic)
	q.text(p.Key)
	q.blob(p.Payload)
	if run, ok := parseUUID(p.Run); ok {
		q.blob(run[:])
	} else {
		q.null()
	}
	q.text(p.By)
	q.int(t.now)
	q.int(t.now + max(p.Keep.Milliseconds(), 1))
	q.text(p.Tenant)
	if err := q.exec(); err != nil {
		return store.EventResult{}, err
	}
	if t.db.Changes() == 0 {
		out := store.EventResult{Deduped: true}
		q := t.use(qEventByID)
		q.blob(id[:])
		if q.step() {
			out.Seq, out.At = q.colInt(0), q.colTime(1)
		}
		return out, q.end()
	}
	out := store.EventResult{Seq: t.db.LastInsertRowID(), At: fromMS(t.now)}
	var err error
	out.Woken, err = t.wakeWaiters(p, out.Seq)
	return out, err
}

// wakeWaiters makes the runs that are parked for an event ready, with the event
// as the output of their wait.
func (t *tx) wakeWaiters(p *store.EventParams, seq int64) (int, error) {
	type waiter struct {
		run   int64
		queue string
	}
	var waiters []waiter
	st := qWaiters
	if p.Tenant != "" {
		st = qTenantsWaiters
	}
	q := t.use(st)
	q.text(p.Topic)
	q.text(p.Key)
	q.int(t.now)
	if p.Tenant != "" {
		q.text(p.Tenant)
	}
	for q.step() {
		waiters = append(waiters, waiter{q.colInt(0), q.colText(1)})
	}
	if err := q.end(); err != nil {
		return 0, err
	}
	for _, w := range waiters {
		q := t.use(qEndWaitOf)
		q.int(w.run)
		q.blob(p.Payload)
		q.int(seq)
		q.int(t.now)
		if err := q.exec(); err != nil {
			return 0, err
		}
		if err := t.readyParked(w.run, w.queue); err != nil {
			return 0, err
		}
	}
	return len(waiters), nil
}

// readyParked makes a parked run ready.
func (t *tx) readyParked(seq int64, queue string) error {
	q := t.use(qReadyRun)
	q.int(seq)
	q.int(t.now)
	t.group.wake(queue)
	return q.exec()
}

// wait completes the record of a wait that was just written, with what it waits
// for, and ends it if its event has come or its time is over. It answers how it
// stands.
func (t *tx) wait(run int64, p *store.StepParams, out *store.StepResult) error {
	w := p.Wait
	out.Status, out.Place = job.StepWaiting, w.After
	if w.FromNow {
		q := t.use(qLastOfTopic)
		q.text(w.Topic)
		if q.step() {
			out.Place = q.colInt(0)
		}
		if err := q.end(); err != nil {
			return err
		}
	}
	q := t.use(qPlaceWait)
	q.int(run)
	q.text(p.Name)
	q.text(w.Topic)
	q.text(w.Key)
	q.int(out.Place)
	if err := q.exec(); err != nil {
		return err
	}
	until := t.wakeAt(p)
	tenant, err := t.tenantOf(run)
	if err != nil {
		return err
	}
	seq, payload, err := t.nextEvent(nextParams{wait: w, tenant: tenant, place: out.Place, until: until, now: t.now})
	switch {
	case err != nil:
		return err
	case seq > 0:
		out.Status, out.Place, out.Output = job.StepCompleted, seq, payload
	case until <= t.now:
		out.Status = job.StepTimedOut
	default:
		return nil
	}
	q = t.use(qEndWait)
	q.int(run)
	q.text(p.Name)
	q.text(string(out.Status))
	q.blob(out.Output)
	q.int(out.Place)
	return q.exec()
}

// ended answers the record of a wait that is over: writing it again, as a repeat
// after a lost answer does, must not have it wait for another event.
func (t *tx) ended(run int64, name string) (out store.StepResult, ok bool, err error) {
	q := t.use(qEndedWait)
	q.int(run)
	q.text(name)
	if ok = q.step(); ok {
		out = store.StepResult{
			Landed: true, Status: job.StepStatus(q.colText(0)), Place: q.colInt(1), Output: q.colBlob(2), At: q.colTime(3),
		}
	}
	return out, ok, q.end()
}

func (t *tx) tenantOf(run int64) (tenant string, err error) {
	q := t.use(qTenantOf)
	q.int(run)
	if q.step() {
		tenant = q.colText(0)
	}
	return tenant, q.end()
}

// nextParams ask for the first event past a place that a wait of a tenant's run
// takes, published no later than until.
type nextParams struct {
	wait              *store.WaitParams
	tenant            string // "" is a run of none
	place, until, now int64
}

// nextEvent answers 0 if there is none.
func (c *conn) nextEvent(p nextParams) (seq int64, payload []byte, err error) {
	if p.tenant == "" {
		return c.nextOf(p, qNextOfTopic, qNextOfKey)
	}
	if seq, payload, err = c.nextOf(p, qTenantsNextOfTopic, qTenantsNextOfKey, p.tenant); err != nil {
		return 0, nil, err
	}
	all, everybodys, err := c.nextOf(p, qTenantsNextOfTopic, qTenantsNextOfKey, "")
	if all > 0 && (seq == 0 || all < seq) {
		return all, everybodys, err
	}
	return seq, payload, err
}

// nextOf asks the statement for a topic or the one for a key.
func (c *conn) nextOf(p nextParams, topic, key *statement, tenant ...string) (seq int64, payload []byte, err error) {
	st := topic
	if p.wait.Key != "" {
		st = key
	}
	q := c.use(st)
	q.text(p.wait.Topic)
	q.int(p.place)
	q.int(p.until)
	q.int(p.now)
	for _, t := range tenant {
		q.text(t)
	}
	if p.wait.Key != "" {
		q.text(p.wait.Key)
	}
	if q.step() {
		seq, payload = q.colInt(0), q.colBlob(1)
	}
	return seq, payload, q.end()
}

// park has a run that was just suspended wait for an event, unless its wait is
// over: then it is ready.
func (t *tx) park(h *held, p *store.StepParams, out *store.StepResult) (ready bool, err error) {
	if out.Status != job.StepWaiting {
		return true, t.readyParked(h.seq, h.queue)
	}
	q := t.use(qParkForEvent)
	q.int(h.seq)
	q.text(p.Wait.Topic)
	q.text(p.Wait.Key)
	return false, q.exec()
}

// PendingEvent implements store.Events.
func (s *Store) PendingEvent(ctx context.Context, tenant string, p store.WaitParams) (pending bool, err error) {
	if p.FromNow {
		return false, nil
	}
	now := s.cfg.Clock().UnixMilli()
	err = s.read(ctx, func(c *conn) error {
		seq, _, err := c.nextEvent(nextParams{wait: &p, tenant: tenant, place: p.After, until: now, now: now})
		pending = seq > 0
		return err
	})
	return pending, err
}

// ListEvents implements store.Events.
func (s *Store) ListEvents(ctx context.Context, p store.ListEventsParams) (out []job.Event, err error) {
	if p, err = p.Page(); err != nil {
		return nil, err
	}
	now := s.cfg.Clock().UnixMilli()
	err = s.read(ctx, func(c *conn) error {
		out = nil
		st := qListEvents
		if p.Topic != "" {
			st = qListTopic
		}
		q := c.use(st)
		q.int(p.Before)
		q.text(p.Key)
		q.int(now)
		q.int(int64(p.Limit))
		q.text(p.Tenant)
		if p.Topic != "" {
			q.text(p.Topic)
		}
		for q.step() {
			out = append(out, job.Event{
				Seq: q.colInt(0), ID: formatUUID(q.s.ColumnRawBlob(1)), Topic: q.colText(2), Key: q.colText(3), Payload: q.colBlob(4),
				Run: formatUUID(q.s.ColumnRawBlob(5)), By: q.colText(6), PublishedAt: q.colTime(7), ExpiresAt: q.colTime(8),
				Tenant: q.colText(9),
			})
		}
		return q.end()
	})
	return out, err
}

// PurgeEvents implements store.Events. It commits chunk by chunk.
func (s *Store) PurgeEvents(ctx context.Context, limit int) (total int, err error) {
	if limit < 0 {
		return 0, store.Invalid("purge of %d events", limit)
	}
	for total < limit {
		n, chunk := 0, min(limit-total, purgeChunk)
		err := s.w.do(ctx, func(tx *tx) error {
			q := tx.use(qPurgeEvents)
			q.int(tx.now)
			q.int(int64(chunk))
			err := q.exec()
			n = int(tx.db.Changes())
			return err
		})
		if err != nil {
			return total, err
		}
		if total += n; n < chunk {
			break
		}
	}
	return total, nil
}
