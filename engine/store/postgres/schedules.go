package postgres

import (
	"context"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/jobrunner/runner/engine/store"
)

var (
	qLeadSchedules    = named("lead_schedules")
	qReleaseSchedules = named("release_schedules")
	qFireSchedule     = named("fire_schedule")
	qListSchedules    = named("list_schedules")
	qFindSchedule     = named("find_schedule")
	qPauseSchedule    = named("pause_schedule")
	qResumeSchedule   = named("resume_schedule")
	qForgetSchedule   = named("forget_schedule")
)

// LeadSchedules implements store.Schedules.
func (s *Store) LeadSchedules(ctx context.Context, p store.LeadParams) (out store.LeadResult, err error) {
	if err := p.Check(); err != nil {
		return out, err
	}
	names, specs := make([]string, len(p.Schedules)), make([]string, len(p.Schedules))
	for i, sc := range p.Schedules {
		names[i], specs[i] = enc(sc.Name), enc(sc.Spec)
	}
	args := []any{enc(p.Holder), ms(p.Lease), p.Alone, names, specs}
	err = s.write(ctx, func(q queryer) error {
		out = store.LeadResult{}
		return s.run(ctx, q, call{st: qLeadSchedules, args: args, scan: func(r *row) error {
			out.Now = r.time()
			out.Led = append(out.Led, r.schedule())
			return nil
		}})
	})
	if err != nil {
		return store.LeadResult{}, err
	}
	slices.SortFunc(out.Led, func(a, b store.Schedule) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// ReleaseSchedules implements store.Schedules.
func (s *Store) ReleaseSchedules(ctx context.Context, holder string) error {
	if holder == "" {
		return nil
	}
	return s.write(ctx, func(q queryer) error {
		return s.run(ctx, q, call{st: qReleaseSchedules, args: []any{enc(holder)}})
	})
}

// FireSchedule implements store.Schedules. The move of the watermark comes
// first: whoever does not make it inserts nothing.
func (s *Store) FireSchedule(ctx context.Context, p store.FireParams) (out store.FireResult, err error) {
	if err := p.Check(); err != nil {
		return out, err
	}
	b, err := newEntries(p.Runs)
	if err != nil {
		return out, err
	}
	move := call{st: qFireSchedule, args: fireArgs(&p), scan: func(r *row) error {
		out.Moved, out.SkippedFor = true, r.uuid()
		return nil
	}}
	try := 0
	err = s.inTx(ctx, func(tx pgx.Tx) error {
		try++
		out = store.FireResult{}
		if err := s.run(ctx, tx, move); err != nil || !out.Moved || out.SkippedFor != "" || len(p.Runs) == 0 {
			return err
		}
		b.clear(b.all())
		if err := s.enqueueIn(ctx, tx, b, b.all(), enqueueModeOf(try)); err != nil {
			return err
		}
		return s.notes.in(ctx, tx, b.queues(b.all()))
	})
	if err != nil {
		return store.FireResult{}, err
	}
	if out.Moved && out.SkippedFor == "" && len(p.Runs) > 0 {
		out.Runs = b.results
		s.entered(b)
	}
	return out, nil
}

// fireArgs are the arguments of the statement fire_schedule.
func fireArgs(p *store.FireParams) []any {
	jobs, tenants := []string{}, []string{}
	if p.SkipIfLive {
		jobs, tenants = p.Targets()
		for i := range jobs {
			jobs[i], tenants[i] = enc(jobs[i]), enc(tenants[i])
		}
	}
	name := enc(p.Name)
	low, high := store.OccurrenceKeys(name)
	return []any{
		name, enc(p.Holder), timeOrNull(p.From), timeOrNull(p.To), timeOrNull(p.Occurrence), int64(p.Missed),
		jobs, tenants, low, high, int32(utf8.RuneCountInString(name) + 2),
	}
}

// ListSchedules implements store.Schedules.
func (s *Store) ListSchedules(ctx context.Context) (out []store.Schedule, err error) {
	err = s.read(ctx, func(q queryer) error {
		out = nil
		return s.run(ctx, q, call{st: qListSchedules, scan: func(r *row) error {
			out = append(out, r.schedule())
			return nil
		}})
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// PauseSchedule implements store.Schedules.
func (s *Store) PauseSchedule(ctx context.Context, p store.ScheduleParams) (store.Schedule, error) {
	return s.changeSchedule(ctx, p, store.AuditPause, call{st: qPauseSchedule, args: []any{enc(p.Name), enc(p.By)}})
}

// ResumeSchedule implements store.Schedules.
func (s *Store) ResumeSchedule(ctx context.Context, p store.ScheduleParams) (store.Schedule, error) {
	return s.changeSchedule(ctx, p, store.AuditResume, call{st: qResumeSchedule, args: []any{enc(p.Name)}})
}

// changeSchedule answers a schedule as change left it, and has the audit tell of
// it if that was another way: if change answered a row.
func (s *Store) changeSchedule(ctx context.Context, p store.ScheduleParams, verb store.AuditVerb, change call) (out store.Schedule, err error) {
	err = s.inTx(ctx, func(tx pgx.Tx) error {
		changed := false
		change.scan = func(*row) error {
			changed = true
			return nil
		}
		if err := s.run(ctx, tx, change); err != nil {
			return err
		}
		if changed {
			if err := s.audit(ctx, tx, store.AuditEntry{By: p.By, Verb: verb, Kind: store.AuditSchedule, Subject: p.Name}); err != nil {
				return err
			}
		}
		var found bool
		if out, found, err = s.schedule(ctx, tx, p.Name); err == nil && !found {
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
	return s.inTx(ctx, func(tx pgx.Tx) error {
		gone := false
		err := s.run(ctx, tx, call{st: qForgetSchedule, args: []any{enc(p.Name)}, scan: func(*row) error {
			gone = true
			return nil
		}})
		if err != nil {
			return err
		}
		if gone {
			return s.audit(ctx, tx, store.AuditEntry{By: p.By, Verb: store.AuditForget, Kind: store.AuditSchedule, Subject: p.Name})
		}
		sc, found, err := s.schedule(ctx, tx, p.Name)
		switch {
		case err != nil:
			return err
		case found:
			return store.ErrScheduleLed(p.Name, sc.Holder)
		}
		return store.ErrScheduleNotFound(p.Name)
	})
}

func (s *Store) schedule(ctx context.Context, q queryer, name string) (out store.Schedule, found bool, err error) {
	err = s.run(ctx, q, call{st: qFindSchedule, args: []any{enc(name)}, scan: func(r *row) error {
		out, found = r.schedule(), true
		return nil
	}})
	return out, found, err
}

// schedule reads the columns of a schedule.
func (r *row) schedule() store.Schedule {
	return store.Schedule{
		Name: r.text(), Spec: r.text(), Watermark: r.time(),
		FiredOccurrence: r.time(), FiredAt: r.time(), Fires: r.int(),
		SkippedOccurrence: r.time(), SkippedFor: r.uuid(), Skips: r.int(),
		Missed: r.int(), PausedAt: r.time(), PausedBy: r.text(), Holder: r.text(), LeasedUntil: r.time(),
	}
}
