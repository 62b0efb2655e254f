package sqlite

import (
	"context"

	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

var (
	qSaveLog  = named("save_log")
	qLogSizes = named("log_sizes")
	qTrimLog  = named("trim_log")
	qListLog  = named("list_log")
)

// SaveLogs implements store.Logs.
func (s *Store) SaveLogs(ctx context.Context, batch []store.LogParams) error {
	if len(batch) == 0 {
		return nil
	}
	return s.w.do(ctx, func(tx *tx) error {
		for i := range batch {
			h, ok, err := tx.hold(batch[i].Ref)
			if err != nil {
				return err
			}
			if !ok {
				continue
			}
			if err := tx.saveLog(&h, batch[i].Ref.Claim, batch[i].Lines); err != nil {
				return err
			}
		}
		return nil
	})
}

// saveLog keeps lines of a run that is held.
func (t *tx) saveLog(h *held, claim int64, lines []job.LogLine) error {
	if len(lines) == 0 {
		return nil
	}
	data, size := store.EncodeLog(lines)
	q := t.use(qSaveLog)
	q.int(h.seq)
	q.int(claim)
	q.int(lines[0].Seq)
	q.int(lines[len(lines)-1].Seq)
	q.int(h.attempt)
	q.int(int64(size))
	q.text(string(data))
	if err := q.exec(); err != nil {
		return err
	}
	return t.trimLog(h.seq)
}

// trimLog deletes the rows that are not needed for the last lines of a run.
func (t *tx) trimLog(run int64) error {
	q := t.use(qLogSizes)
	q.int(run)
	var lines, bytes, claim, line int64
	found := false
	for q.step() {
		if found = lines >= job.MaxLogLines || bytes >= job.MaxLogBytes; found {
			claim, line = q.colInt(0), q.colInt(1)
			break
		}
		lines += q.colInt(2) - q.colInt(1) + 1
		bytes += q.colInt(3)
	}
	if err := q.end(); err != nil || !found {
		return err
	}
	q = t.use(qTrimLog)
	q.int(run)
	q.int(claim)
	q.int(line)
	return q.exec()
}

// ListLogs implements store.Logs.
func (s *Store) ListLogs(ctx context.Context, p store.ListLogsParams) (store.ListLogsResult, error) {
	id, ok := parseUUID(p.Run)
	if !ok {
		return store.ListLogsResult{}, nil
	}
	var chunks []store.LogChunk
	err := s.read(ctx, func(c *conn) error {
		chunks = nil
		q := c.use(qListLog)
		q.blob(id[:])
		for q.step() {
			chunks = append(chunks, store.LogChunk{
				Claim: q.colInt(0), Attempt: int(q.colInt(1)), Earlier: q.colInt(2), Data: []byte(q.colText(3)),
			})
		}
		return q.end()
	})
	if err != nil {
		return store.ListLogsResult{}, err
	}
	return store.KeptLog(chunks, p.After)
}
