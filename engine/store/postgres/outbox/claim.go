package outbox

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/jobrunner/runner/engine/store"
)

// Claim implements store.OutboxRelay.
func (d *DB) Claim(ctx context.Context, p store.StagedClaimParams) ([]store.Staged, error) {
	if err := store.CheckLease(p.Lease); err != nil {
		return nil, err
	}
	if p.Limit < 0 || p.Relay == "" {
		return nil, errInvalid("a claim needs the id of a relay, and a limit that is not negative")
	}
	if p.Limit == 0 {
		return nil, nil
	}
	look := d.floor.begin()
	var rows []store.Staged
	var last int64
	err := d.query(ctx, true, func() { rows, last = nil, 0 }, func(r pgx.Rows) error {
		row, seq, err := scanRow(r, true)
		rows, last = append(rows, row), max(last, seq)
		return err
	}, d.text["claim"], p.Relay, p.Limit, p.Lease.Milliseconds(), look.after, store.MaxStagedBytes)
	if err != nil {
		d.floor.fail()
		return nil, err
	}
	d.floor.found(look, len(rows), last)
	return rows, nil
}

// scanRow reads a row as {row} projects it, with the input behind it if asked.
func scanRow(r pgx.Rows, input bool) (s store.Staged, seq int64, err error) {
	var state, conflict, topic string
	var runAt, settledAt *time.Time
	var delay, age, keep int64
	to := []any{
		&seq, &s.ID, &state, &s.Job, &topic, &keep, &s.Key, &s.Tenant, &runAt, &delay,
		&s.Priority, &s.MaxAttempts, &conflict, &s.EnqueuedBy, &s.Traceparent,
		&s.StagedAt, &age, &s.Relay, &s.Claim, &settledAt, &s.RunID, &s.Code, &s.Reason,
	}
	if input {
		to = append(to, &s.Input)
	}
	if err := r.Scan(to...); err != nil {
		return s, seq, err
	}
	s.State, s.OnConflict = store.StagedState(state), store.OnConflict(conflict)
	s.Delay, s.Age = time.Duration(delay)*time.Millisecond, time.Duration(age)*time.Millisecond
	s.StagedAt = s.StagedAt.UTC()
	if runAt != nil {
		s.RunAt = runAt.UTC()
	}
	if settledAt != nil {
		s.SettledAt = settledAt.UTC()
	}
	if topic != "" {
		// An event's columns are those of the run that it might have been.
		s.Event = &store.PublishParams{
			Topic: topic, Key: s.Key, Tenant: s.Tenant, Payload: s.Input, ID: s.ID, Keep: time.Duration(keep) * time.Millisecond, By: s.EnqueuedBy,
		}
		s.StageParams = store.StageParams{ID: s.ID}
	}
	return s, seq, nil
}

// refs are the columns of fencing tokens.
type refs struct {
	ids    []pgtype.UUID
	relays []string
	claims []int64
}

func (c *refs) add(r store.StagedRef) error {
	id, err := parseID(r.ID)
	c.ids, c.relays, c.claims = append(c.ids, id), append(c.relays, r.Relay), append(c.claims, r.Claim)
	return err
}

// SettleStaged implements store.OutboxRelay.
func (d *DB) SettleStaged(ctx context.Context, batch []store.StagedSettleParams) ([]bool, error) {
	if len(batch) == 0 {
		return nil, nil
	}
	var c refs
	runs := make([]pgtype.UUID, len(batch))
	codes, reasons := make([]*string, len(batch)), make([]*string, len(batch))
	for i := range batch {
		p := &batch[i]
		err := c.add(p.Ref)
		if err == nil && p.Code == "" && p.RunID != "" {
			runs[i], err = parseID(p.RunID)
		}
		if err != nil {
			return nil, err
		}
		if p.Code != "" {
			code, reason := storable(p.Code, 100), storable(p.Reason, maxReason)
			codes[i], reasons[i] = &code, &reason
		}
	}
	landed := make([]bool, len(batch))
	err := d.query(ctx, true, func() { clear(landed) }, func(r pgx.Rows) error {
		var ord int64
		err := r.Scan(&ord)
		if err == nil {
			landed[ord-1] = true
		}
		return err
	}, d.text["settle"], c.ids, c.relays, c.claims, runs, codes, reasons)
	if err != nil {
		return nil, err
	}
	d.floor.settled(len(batch))
	return landed, nil
}

// Release implements store.OutboxRelay.
func (d *DB) Release(ctx context.Context, batch []store.StagedRef) error {
	if len(batch) == 0 {
		return nil
	}
	var c refs
	for _, r := range batch {
		if err := c.add(r); err != nil {
			return err
		}
	}
	d.floor.fail()
	return d.query(ctx, true, func() {}, func(pgx.Rows) error { return nil }, d.text["release"], c.ids, c.relays, c.claims)
}

// Purge implements store.OutboxRelay.
func (d *DB) Purge(ctx context.Context, keep time.Duration, limit int) (int, error) {
	if keep < 0 || limit < 0 {
		return 0, errInvalid("a purge keeps rows for no time or longer, and has no negative limit")
	}
	n := 0
	err := d.query(ctx, true, func() { n = 0 }, func(pgx.Rows) error { n++; return nil }, d.text["purge"], keep.Milliseconds(), limit)
	if err != nil {
		return 0, err
	}
	return n, nil
}

// OutboxStats implements store.OutboxRelay.
func (d *DB) OutboxStats(ctx context.Context) (store.OutboxStats, error) {
	var s store.OutboxStats
	var oldest int64
	err := d.query(ctx, false, func() {}, func(r pgx.Rows) error { return r.Scan(&s.Waiting, &s.Rejected, &oldest) },
		d.text["stats"], store.MaxStagedCount)
	s.Oldest = time.Duration(oldest) * time.Millisecond
	return s, err
}
