package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

var qDeleteRun = named("delete_run")

// Delete implements store.Admin.
func (s *Store) Delete(ctx context.Context, p store.DeleteParams) (out job.Run, err error) {
	id, ok := parseUUID(p.ID)
	if !ok {
		return out, store.NotFound(p.ID)
	}
	var woken []resting
	err = s.inTx(ctx, func(tx pgx.Tx) error {
		woken = nil
		for range cancelTries {
			if out, err = s.get(ctx, tx, p.ID); err != nil {
				return err
			}
			was := out.State
			if !out.State.Removable() {
				return store.NotRemovable(&out)
			}
			if out.State.Live() {
				// Who waits for it hears of it, and who it waits for ends with it.
				c := cancelled{s: s, tx: tx, resting: true}
				if err := c.family(ctx, store.CancelParams{ID: p.ID, Reason: store.Deleted().Message, NoCompensate: true}); err != nil {
					return err
				}
				if woken = c.woken; !c.did {
					continue // it ended meanwhile, or a claim was first
				}
				if err := s.notes.in(ctx, tx, queuesOfResting(woken)); err != nil {
					return err
				}
			}
			gone := ""
			err := s.run(ctx, tx, call{st: qDeleteRun, args: []any{id.param(), waitingStates}, scan: func(r *row) error {
				gone = r.text()
				return nil
			}})
			if err != nil {
				return err
			}
			if gone != "" {
				// It may have changed since it was read.
				if out.State = seenState(gone); was.Live() {
					out.State = was
				}
				return s.audit(ctx, tx, store.AuditEntry{
					By: p.By, Verb: store.AuditDelete, Kind: store.AuditRun, Subject: out.ID, Detail: out.Job + ", " + string(out.State),
				})
			}
			// It moved while the statement waited for it: look again.
		}
		return &abi.Error{Code: job.CodeDatabaseBusy, Message: fmt.Sprintf("run %s changes too fast to be deleted", p.ID), Fix: "try again"}
	})
	if err != nil {
		return job.Run{}, err
	}
	s.woke(woken)
	return out, nil
}
