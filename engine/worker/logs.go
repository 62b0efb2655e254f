package worker

import (
	"context"
	"log/slog"

	"github.com/jobrunner/runner/engine/store"
)

// maxSavedLogs bounds the bytes of lines that one heartbeat has saved. The rest
// goes with the next, or with the settle.
const maxSavedLogs = 1 << 20

// saveLogs has the lines of attempts that go on saved, with every heartbeat and
// apart from the renewal, which waits for none of it. One save is under way at a
// time. A failure loses nothing: the lines go with the next one.
func (w *Worker) saveLogs(s *session) {
	batch := w.unsavedLogs(s)
	if len(batch) == 0 || !s.saving.CompareAndSwap(false, true) {
		return
	}
	go func() {
		defer s.saving.Store(false)
		ctx, cancel := context.WithTimeout(s.ctx, w.cfg.Lease)
		defer cancel()
		if err := w.cfg.Store.SaveLogs(ctx, batch); err != nil {
			w.cfg.Logger.Debug("jobs.logs.save-failed", slog.String("worker", s.id), slog.Any("error", err))
			return
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		for i := range batch {
			if a := s.held[batch[i].Ref]; a != nil {
				a.memory.Load().LogSaved(batch[i].Lines[len(batch[i].Lines)-1].Seq)
			}
		}
	}()
}

// unsavedLogs are the lines of attempts that have not begun to settle.
func (w *Worker) unsavedLogs(s *session) (batch []store.LogParams) {
	w.mu.Lock()
	defer w.mu.Unlock()
	size := 0
	for ref, a := range s.held {
		m := a.memory.Load()
		if m == nil || a.settling || size > maxSavedLogs {
			continue
		}
		lines := m.UnsavedLog()
		if len(lines) == 0 {
			continue
		}
		for i := range lines {
			size += lines[i].Size()
		}
		batch = append(batch, store.LogParams{Ref: ref, Lines: lines})
	}
	return batch
}
