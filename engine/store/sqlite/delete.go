package sqlite

import (
	"context"

	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

// Delete implements store.Admin.
func (s *Store) Delete(ctx context.Context, p store.DeleteParams) (job.Run, error) {
	var out job.Run
	err := s.w.do(ctx, func(tx *tx) error {
		r, seq, err := tx.get(p.ID)
		if err != nil {
			return err
		}
		if !r.State.Removable() {
			return store.NotRemovable(&r)
		}
		ended := r.State
		if r.State.Live() {
			// Who waits for it hears of it, and who it waits for ends with it.
			ended = job.Cancelled
			if err := tx.cancelRun(seq, r.Queue, 0, store.Deleted()); err != nil {
				return err
			}
			if err := tx.endChildren(seq, r.ID, true); err != nil {
				return err
			}
			if r.Parent != "" {
				if err := tx.tellParent(r.ID); err != nil {
					return err
				}
			}
		}
		if err := tx.deleteRun(seq); err != nil {
			return err
		}
		tx.group.count(r.Queue, ended, -1)
		out = r
		return tx.audit(store.AuditEntry{By: p.By, Verb: store.AuditDelete, Kind: store.AuditRun, Subject: r.ID, Detail: r.Job + ", " + string(r.State)})
	})
	if err != nil {
		return job.Run{}, err
	}
	return out, nil
}

// deleteRun removes a run with all that hangs on it.
func (t *tx) deleteRun(seq int64) error {
	for _, st := range qDeleteRun {
		q := t.use(st)
		q.int(seq)
		if err := q.exec(); err != nil {
			return err
		}
	}
	return nil
}
