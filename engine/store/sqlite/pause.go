package sqlite

import (
	"context"

	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/limit"
	"github.com/jobrunner/runner/engine/store"
)

var (
	qPaused     = named("paused")
	qPauseOf    = named("pause_of")
	qSetPause   = named("set_pause")
	qListPauses = named("list_pauses")
	qNextLane   = named("next_lane")
	qAgeLane    = named("age_lane")
	qOldBehind  = named("old_behind")
	qAgeBlocked = named("age_blocked")
)

// paused is what a claim has to pass over.
func (t *tx) paused() (queues map[string]bool, rest limit.Pauses, err error) {
	note := func(to map[string]bool, name string) map[string]bool {
		if to == nil {
			to = map[string]bool{}
		}
		to[name] = true
		return to
	}
	q := t.use(qPaused)
	for q.step() {
		name := q.colText(1)
		switch store.PauseKind(q.colText(0)) {
		case store.PauseQueue:
			queues = note(queues, name)
		case store.PauseJob:
			rest.Jobs = note(rest.Jobs, name)
		case store.PauseTenant:
			rest.Tenants = note(rest.Tenants, name)
		}
	}
	return queues, rest, q.end()
}

// SetPause implements store.Pauser.
func (s *Store) SetPause(ctx context.Context, p store.PauseParams) (changed bool, err error) {
	if err := p.Check(); err != nil {
		return false, err
	}
	err = s.w.do(ctx, func(tx *tx) error {
		changed = false
		q := tx.use(qPauseOf)
		q.text(string(p.Kind))
		q.text(p.Name)
		paused := q.step() && q.colInt(0) != 0
		if err := q.end(); err != nil || paused != p.Resume {
			return err
		}
		changed = true
		at := tx.now
		if p.Resume {
			at = 0
		}
		q = tx.use(qSetPause)
		q.text(string(p.Kind))
		q.text(p.Name)
		q.ms(at)
		q.int(tx.now)
		q.text(p.By)
		q.text(p.Reason)
		if err := q.exec(); err != nil {
			return err
		}
		if err := tx.audit(p.Audit()); err != nil || !p.Resume {
			return err
		}
		return tx.resumed(p)
	})
	return changed, err
}

// resumed has claims look at what was paused.
func (t *tx) resumed(p store.PauseParams) error {
	switch p.Kind {
	case store.PauseQueue:
		t.group.wake(p.Name)
		return nil
	case store.PauseTenant:
		t.group.wake("")
		return nil
	}
	return t.openNow(limit.PauseGate(p.Name))
}

// ListPauses implements store.Pauser.
func (s *Store) ListPauses(ctx context.Context) (out []store.Pause, err error) {
	err = s.read(ctx, func(c *conn) error {
		out = nil
		q := c.use(qListPauses)
		for q.step() {
			out = append(out, store.Pause{
				Kind: store.PauseKind(q.colText(0)), Name: q.colText(1), PausedAt: q.colTime(2), ChangedAt: q.colTime(3),
				By: q.colText(4), Reason: q.colText(5),
			})
		}
		return q.end()
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// oldLane is the runs of a tenant and a priority, of which some have waited long.
type oldLane struct {
	tenant   string
	priority int64
}

// Age implements store.Pauser. It looks for what is old beside the writer, which
// only changes it.
func (s *Store) Age(ctx context.Context, p store.AgeParams) (aged int, err error) {
	if err := p.Check(); err != nil {
		return 0, err
	}
	if p.Limit == 0 {
		p.Limit = 1000
	}
	due := s.cfg.Clock().Add(-p.Waited).UnixMilli()
	var lanes []oldLane
	var behind []int64
	err = s.read(ctx, func(c *conn) (err error) {
		if lanes, err = c.oldLanes(p.Queue, due, p.Limit); err != nil {
			return err
		}
		behind, err = c.oldBehind(p.Queue, due, p.Limit)
		return err
	})
	if err != nil || len(lanes)+len(behind) == 0 {
		return 0, err
	}
	err = s.w.do(ctx, func(tx *tx) error {
		aged = 0
		for _, l := range lanes {
			q := tx.use(qAgeLane)
			q.text(p.Queue)
			q.text(l.tenant)
			q.int(l.priority)
			q.int(due)
			q.int(int64(p.Limit - aged))
			q.int(job.AgedPriority)
			if err := q.exec(); err != nil {
				return err
			}
			aged += int(tx.db.Changes())
		}
		for _, seq := range behind[:min(len(behind), p.Limit-aged)] {
			q := tx.use(qAgeBlocked)
			q.int(seq)
			q.int(job.AgedPriority)
			if err := q.exec(); err != nil {
				return err
			}
			aged += int(tx.db.Changes())
		}
		return nil
	})
	return aged, err
}

func (c *conn) oldLanes(queue string, due int64, most int) (out []oldLane, err error) {
	at := oldLane{priority: job.AgedPriority - 1}
	for len(out) < most {
		q := c.use(qNextLane)
		q.text(queue)
		q.text(at.tenant)
		q.int(at.priority)
		found := q.step()
		var first int64
		if found {
			at = oldLane{q.colText(0), q.colInt(1)}
			first = q.colInt(2)
		}
		if err := q.end(); err != nil || !found {
			return out, err
		}
		if first <= due && at.priority > job.AgedPriority {
			out = append(out, at)
		}
	}
	return out, nil
}

func (c *conn) oldBehind(queue string, due int64, most int) (out []int64, err error) {
	q := c.use(qOldBehind)
	q.text(queue)
	q.int(job.AgedPriority)
	q.int(due)
	q.int(int64(most))
	for q.step() {
		out = append(out, q.colInt(0))
	}
	return out, q.end()
}
