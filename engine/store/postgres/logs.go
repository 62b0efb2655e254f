package postgres

import (
	"context"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

var (
	qSaveLogs = named("save_logs")
	qTrimLogs = named("trim_logs")
	qListLogs = named("list_logs")
)

// SaveLogs implements store.Logs, in one round trip.
func (s *Store) SaveLogs(ctx context.Context, batch []store.LogParams) error {
	var l logs
	for i := range batch {
		l.add(batch[i].Ref, batch[i].Lines)
	}
	calls := l.calls()
	if len(calls) == 0 {
		return nil
	}
	return s.write(ctx, func(q queryer) error { return s.runAll(ctx, q, calls...) })
}

// logs are lines to be kept, while their runs are held.
type logs struct {
	rows []logRow
	at   map[logKey]int // in rows: a statement takes no row twice
}

type logKey struct {
	ref   job.Ref
	first int64
}

type logRow struct {
	ref         job.Ref
	id          uuid
	first, last int64
	size        int
	data        string
}

func (l *logs) add(ref job.Ref, lines []job.LogLine) {
	if len(lines) == 0 {
		return
	}
	id, ok := parseUUID(ref.RunID)
	if !ok {
		return
	}
	data, size := store.EncodeLog(lines)
	row := logRow{ref: ref, id: id, first: lines[0].Seq, last: lines[len(lines)-1].Seq, size: size, data: string(data)}
	key := logKey{ref, row.first}
	if i, again := l.at[key]; again {
		l.rows[i] = row
		return
	}
	if l.at == nil {
		l.at = map[logKey]int{}
	}
	l.at[key] = len(l.rows)
	l.rows = append(l.rows, row)
}

// calls are what keeps them, before the statement that ends their attempts.
func (l *logs) calls() []call {
	if len(l.rows) == 0 {
		return nil
	}
	slices.SortFunc(l.rows, func(a, b logRow) int { return strings.Compare(a.ref.RunID, b.ref.RunID) })
	var (
		ids                 []pgtype.UUID
		workers, data       []string
		claims, first, last []int64
		sizes               []int32
	)
	for _, r := range l.rows {
		ids, workers, claims = append(ids, r.id.param()), append(workers, enc(r.ref.Worker)), append(claims, r.ref.Claim)
		first, last, sizes, data = append(first, r.first), append(last, r.last), append(sizes, int32(r.size)), append(data, r.data)
	}
	return []call{
		{st: qSaveLogs, args: []any{ids, workers, claims, first, last, sizes, data}},
		{st: qTrimLogs, args: []any{ids, job.MaxLogLines, job.MaxLogBytes}},
	}
}

// ListLogs implements store.Logs.
func (s *Store) ListLogs(ctx context.Context, p store.ListLogsParams) (store.ListLogsResult, error) {
	id, ok := parseUUID(p.Run)
	if !ok {
		return store.ListLogsResult{}, nil
	}
	var chunks []store.LogChunk
	err := s.read(ctx, func(q queryer) error {
		chunks = nil
		return s.run(ctx, q, call{st: qListLogs, args: []any{id.param()}, scan: func(r *row) error {
			chunks = append(chunks, store.LogChunk{
				Claim: r.int(), Attempt: int(r.int()), Earlier: r.int(), Data: slices.Clone(r.next()),
			})
			return nil
		}})
	})
	if err != nil {
		return store.ListLogsResult{}, err
	}
	return store.KeptLog(chunks, p.After)
}
