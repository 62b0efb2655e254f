package sqlite

import (
	"context"
	"slices"
	"strings"

	"github.com/jobrunner/runner/engine/store"
)

var (
	qLeadSchedule    = named("lead_schedule")
	qReleaseSchedule = named("release_schedules")
	qLiveOccurrences = named("live_occurrences")
	qMayFire         = named("may_fire")
	qFiredSchedule   = named("fired_schedule")
	qSkippedSchedule = named("skipped_schedule")
	qListSchedules   = named("list_schedules")
	qFindSchedule    = named("find_schedule")
	qPauseSchedule   = named("pause_schedule")
	qResumeSchedule  = named("resume_schedule")
	qForgetSchedule  = named("forget_schedule")
)

// LeadSchedules implements store.Schedules.
func (s *Store) LeadSchedules(ctx context.Context, p store.LeadParams) (store.LeadResult, error) {
	if err := p.Check(); err != nil {
		return store.LeadResult{}, err
	}
	var out store.LeadResult
	err := s.w.do(ctx, func(tx *tx) error {
		out = store.LeadResult{}
		for _, sc := range p.Schedules {
			q := tx.use(qLeadSchedule)
			q.text(sc.Name)
			q.text(sc.Spec)
			q.int(tx.now)
			q.text(p.Holder)
			q.int(tx.now + p.Lease.Milliseconds())
			q.bool(p.Alone)
			for q.step() {
				out.Now = fromMS(tx.now)
				out.Led = append(out.Led, scanSchedule(&q))
			}
			if err := q.end(); err != nil {
				return err
			}
		}
		slices.SortFunc(out.Led, func(a, b store.Schedule) int { return strings.Compare(a.Name, b.Name) })
		return nil
	})
	if err != nil {
		return store.LeadResult{}, err
	}
	return out, nil
}

// ReleaseSchedules implements store.Schedules.
func (s *Store) ReleaseSchedules(ctx context.Context, holder string) error {
	if holder == "" {
		return nil
	}
	return s.w.do(ctx, func(tx *tx) error {
		q := tx.use(qReleaseSchedule)
		q.text(holder)
		return q.exec()
	})
}

// FireSchedule implements store.Schedules.
func (s *Store) FireSchedule(ctx context.Context, p store.FireParams) (store.FireResult, error) {
	if err := p.Check(); err != nil {
		return store.FireResult{}, err
	}
	if err := store.CheckIDs(p.Runs); err != nil {
		return store.FireResult{}, err
	}
	var out store.FireResult
	err := s.w.do(ctx, func(tx *tx) (err error) {
		out, err = tx.fire(&p)
		return err
	})
	if err != nil {
		return store.FireResult{}, err
	}
	return out, nil
}

func (t *tx) fire(p *store.FireParams) (out store.FireResult, err error) {
	if toMS(p.Occurrence) > t.now {
		return out, nil
	}
	may := t.use(qMayFire)
	may.text(p.Name)
	may.text(p.Holder)
	may.int(toMS(p.From))
	out.Moved = may.step()
	if err := may.end(); err != nil || !out.Moved {
		return out, err
	}
	if p.SkipIfLive {
		if out.SkippedFor, err = t.liveOccurrence(p); err != nil {
			return out, err
		}
	}
	st := qFiredSchedule
	if out.SkippedFor != "" {
		st = qSkippedSchedule
	}
	q := t.use(st)
	q.text(p.Name)
	q.int(toMS(p.To))
	q.int(int64(p.Missed))
	q.int(toMS(p.Occurrence))
	if out.SkippedFor != "" {
		id, _ := parseUUID(out.SkippedFor)
		q.blob(id[:])
		return out, q.exec()
	}
	q.int(t.now)
	if err := q.exec(); err != nil {
		return out, err
	}
	out.Runs, err = t.enqueue(p.Runs)
	return out, err
}

// liveOccurrence is a live run of another occurrence, or "".
func (t *tx) liveOccurrence(p *store.FireParams) (id string, err error) {
	low, high := store.OccurrenceKeys(p.Name)
	jobs, tenants := p.Targets()
	for i := range jobs {
		q := t.use(qLiveOccurrences)
		q.text(jobs[i])
		q.text(tenants[i])
		q.text(low)
		q.text(high)
		for id == "" && q.step() {
			if store.IsOccurrenceKey(p.Name, q.colText(1)) {
				id = formatUUID(q.s.ColumnRawBlob(0))
			}
		}
		if err := q.end(); err != nil || id != "" {
			return id, err
		}
	}
	return "", nil
}

// ListSchedules implements store.Schedules.
func (s *Store) ListSchedules(ctx context.Context) ([]store.Schedule, error) {
	var out []store.Schedule
	err := s.read(ctx, func(c *conn) error {
		out = nil
		q := c.use(qListSchedules)
		for q.step() {
			out = append(out, scanSchedule(&q))
		}
		return q.end()
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// PauseSchedule implements store.Schedules.
func (s *Store) PauseSchedule(ctx context.Context, p store.ScheduleParams) (store.Schedule, error) {
	return s.changeSchedule(ctx, p, store.AuditPause, func(tx *tx) error {
		q := tx.use(qPauseSchedule)
		q.text(p.Name)
		q.int(tx.now)
		q.text(p.By)
		return q.exec()
	})
}

// ResumeSchedule implements store.Schedules.
func (s *Store) ResumeSchedule(ctx context.Context, p store.ScheduleParams) (store.Schedule, error) {
	return s.changeSchedule(ctx, p, store.AuditResume, func(tx *tx) error {
		q := tx.use(qResumeSchedule)
		q.text(p.Name)
		return q.exec()
	})
}

// changeSchedule answers a schedule as change left it, and has the audit tell of
// it if that was another way.
func (s *Store) changeSchedule(ctx context.Context, p store.ScheduleParams, verb store.AuditVerb, change func(tx *tx) error) (out store.Schedule, err error) {
	err = s.w.do(ctx, func(tx *tx) error {
		if err := change(tx); err != nil {
			return err
		}
		if tx.db.Changes() == 1 {
			if err := tx.audit(store.AuditEntry{By: p.By, Verb: verb, Kind: store.AuditSchedule, Subject: p.Name}); err != nil {
				return err
			}
		}
		var found bool
		if out, found, err = tx.schedule(p.Name); err == nil && !found {
			err = store.ErrScheduleNotFound(p.Name)
		}
		return err
	})
	if err != nil {
		return store.Schedule{}, err
	}
	return out, nil
}

// ForgetSchedule implements store.Schedules.
func (s *Store) ForgetSchedule(ctx context.Context, p store.ScheduleParams) error {
	return s.w.do(ctx, func(tx *tx) error {
		q := tx.use(qForgetSchedule)
		q.text(p.Name)
		q.int(tx.now)
		if err := q.exec(); err != nil {
			return err
		}
		if tx.db.Changes() == 1 {
			return tx.audit(store.AuditEntry{By: p.By, Verb: store.AuditForget, Kind: store.AuditSchedule, Subject: p.Name})
		}
		sc, found, err := tx.schedule(p.Name)
		switch {
		case err != nil:
			return err
		case found:
			return store.ErrScheduleLed(p.Name, sc.Holder)
		}
		return store.ErrScheduleNotFound(p.Name)
	})
}

func (t *tx) schedule(name string) (out store.Schedule, found bool, err error) {
	q := t.use(qFindSchedule)
	q.text(name)
	if found = q.step(); found {
		out = scanSchedule(&q)
	}
	return out, found, q.end()
}

// scanSchedule reads the {schedule} columns of the current row.
func scanSchedule(q *call) store.Schedule {
	return store.Schedule{
		Name: q.colText(0), Spec: q.colText(1), Watermark: q.colTime(2),
		FiredOccurrence: q.colTime(3), FiredAt: q.colTime(4), Fires: q.colInt(5),
		SkippedOccurrence: q.colTime(6), SkippedFor: formatUUID(q.s.ColumnRawBlob(7)), Skips: q.colInt(8),
		Missed: q.colInt(9), PausedAt: q.colTime(10), PausedBy: q.colText(11), Holder: q.colText(12), LeasedUntil: q.colTime(13),
	}
}
