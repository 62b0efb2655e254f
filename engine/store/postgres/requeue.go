package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

var (
	qLockFinished    = named("lock_finished")
	qTakeKey         = named("take_key")
	qNoteFirst       = named("note_first")
	qRequeueRun      = named("requeue_run")
	qDeleteStepsFrom = named("delete_steps_from")
	qLeftToUndo      = named("left_to_undo")
	qResumeUnwind    = named("resume_unwind")
)

// Requeue implements store.Admin.
func (s *Store) Requeue(ctx context.Context, p store.RequeueParams) (out job.Run, err error) {
	if err := p.Check(); err != nil {
		return out, err
	}
	err = s.inTx(ctx, func(tx pgx.Tx) error {
		if err := s.lockFinished(ctx, tx, p.ID); err != nil {
			return err
		}
		r, err := s.get(ctx, tx, p.ID)
		if err != nil {
			return err
		}
		resumed, err := s.resume(ctx, tx, &r, p)
		if err != nil {
			return err
		}
		if err := s.retakeKey(ctx, tx, r); err != nil {
			return err
		}
		if err := s.run(ctx, tx, call{st: qNoteFirst, args: []any{idParam(r.ID)}}); err != nil {
			return err
		}
		if p.FromStep != "" {
			if err := s.rewind(ctx, tx, r, p.FromStep); err != nil {
				return err
			}
		}
		var failure *string
		if resumed != nil {
			failure = failureText(&resumed.Failure)
			if err := s.run(ctx, tx, call{st: qResumeUnwind, args: []any{idParam(r.ID), resumed.Output}}); err != nil {
				return err
			}
		}
		requeue := call{st: qRequeueRun, args: []any{idParam(r.ID), p.Attempts, resumed != nil, failure, p.Latest}}
		if err := s.run(ctx, tx, requeue); err != nil {
			return err
		}
		if out, err = s.get(ctx, tx, r.ID); err != nil {
			return err
		}
		e := store.AuditEntry{By: p.By, Verb: store.AuditRetry, Kind: store.AuditRun, Subject: out.ID, Detail: p.Detail()}
		if err := s.audit(ctx, tx, e); err != nil {
			return err
		}
		return s.notes.in(ctx, tx, []string{out.Queue})
	})
	if err != nil {
		return job.Run{}, err
	}
	s.readied([]job.Run{out})
	return out, nil
}

// Restart implements store.Admin.
func (s *Store) Restart(ctx context.Context, p store.RestartParams) (store.EnqueueResult, error) {
	b, err := newEntries([]store.EnqueueParams{p.Run})
	if err != nil {
		return store.EnqueueResult{}, err
	}
	try := 0
	err = s.inTx(ctx, func(tx pgx.Tx) error {
		try++
		b.clear(b.all())
		if err := s.enqueueIn(ctx, tx, b, b.all(), enqueueModeOf(try)); err != nil || b.results[0].Deduped {
			return err
		}
		for _, e := range p.Audit() {
			if err := s.audit(ctx, tx, e); err != nil {
				return err
			}
		}
		return s.notes.in(ctx, tx, b.queues(b.all()))
	})
	if err != nil {
		return store.EnqueueResult{}, err
	}
	s.entered(b)
	return b.results[0], nil
}

// resume answers how a run goes on being undone, or nil.
func (s *Store) resume(ctx context.Context, tx pgx.Tx, r *job.Run, p store.RequeueParams) (*store.Resumed, error) {
	undo, _, err := s.toUndo(ctx, tx, r)
	if err != nil {
		return nil, err
	}
	if undo.Unwind != nil {
		err := s.run(ctx, tx, call{st: qLeftToUndo, args: []any{idParam(r.ID)}, scan: func(r *row) error {
			undo.Left = r.bool()
			return nil
		}})
		if err != nil {
			return nil, err
		}
	}
	return p.Resume(r, undo)
}

// lockFinished keeps a finished run from being purged or requeued by another.
func (s *Store) lockFinished(ctx context.Context, q queryer, id string) error {
	u, ok := parseUUID(id)
	if !ok {
		return store.NotFound(id)
	}
	return s.run(ctx, q, call{st: qLockFinished, args: []any{u.param()}})
}

// retakeKey takes a run's key again, unless another live run holds it.
func (s *Store) retakeKey(ctx context.Context, tx pgx.Tx, r job.Run) error {
	if r.Key == "" {
		return nil
	}
	holder := ""
	err := s.run(ctx, tx, call{st: qFindLive, args: liveArgs(r.Job, r.Tenant, r.Key), scan: func(r *row) error {
		holder = r.uuid()
		return nil
	}})
	if err != nil {
		return err
	}
	if holder == "" {
		if r.Key == r.ID {
			return nil
		}
		tag, err := tx.Exec(ctx, s.text[qTakeKey.index], enc(r.Job), enc(r.Tenant), enc(r.Key), idParam(r.ID), idParam(r.Key))
		if err != nil || tag.RowsAffected() == 1 {
			return err
		}
		return fmt.Errorf("another run took its key: %w", errAgain)
	}
	return store.KeyHeld(&r, holder)
}

// rewind deletes a step's record and those after it.
func (s *Store) rewind(ctx context.Context, tx pgx.Tx, r job.Run, step string) error {
	tag, err := tx.Exec(ctx, s.text[qDeleteStepsFrom.index], idParam(r.ID), enc(step))
	if err != nil || tag.RowsAffected() > 0 {
		return err
	}
	return store.NoStep(&r, step)
}
