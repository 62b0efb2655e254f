package sqlite

import (
	"context"
	"fmt"

	"github.com/jobrunner/runner/abi"
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
			return &abi.Error{
				Code:    job.CodeNotRemovable,
				Message: fmt.Sprintf("run %s is %s", r.ID, r.State),
				Fix:     "cancel it first: runner jobs cancel " + r.ID,
			}
		}
		if err := tx.deleteRun(seq); err != nil {
			return err
		}
		if r.State.Terminal() {
			tx.group.count(r.Queue, r.State, -1)
		}
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
