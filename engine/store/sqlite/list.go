package sqlite

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

// listIndex is the index that holds the runs of a state and few others. Done
// runs are most of the table, and found by walking it from the newest.
var listIndex = map[job.State]string{
	job.Ready:     "runs_ready",
	job.Delayed:   "runs_waiting",
	job.Suspended: "runs_waiting",
	job.Running:   "runs_running",
	job.Failed:    "runs_ended",
	job.Dead:      "runs_ended",
	job.Cancelled: "runs_ended",
}

// List implements store.Admin. Newest and oldest first are by id: ids are time-ordered, and
// a page that goes on after an id needs nothing of the run it names, which may
// have been purged since.
func (s *Store) List(ctx context.Context, p store.ListParams) ([]job.Run, error) {
	limit, err := store.PageLimit(p.Limit)
	if err != nil {
		return nil, err
	}
	text, bind, none, err := listQuery(p)
	if err != nil || none {
		return nil, err
	}
	var out []job.Run
	err = s.read(ctx, func(c *conn) error {
		out = nil
		stmt, _, err := c.db.Prepare(text)
		if err != nil {
			return err
		}
		defer stmt.Close()
		q := call{c: c, s: stmt}
		for _, b := range bind {
			b(&q)
		}
		for len(out) < limit && q.step() {
			r, _, err := scanRun(&q)
			if abi.CodeOf(err) == job.CodeRowStatusUnknown {
				continue // one row of another build does not hide the others
			}
			if err != nil {
				return errors.Join(err, q.end())
			}
			out = append(out, r)
		}
		return q.end()
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// listQuery composes the statement for a filter from fixed texts; what the
// caller gave is bound. none means that no run can match.
func listQuery(p store.ListParams) (text string, bind []func(*call), none bool, err error) {
	index := "runs_id"
	var where []string
	add := func(cond string, b ...func(*call)) {
		where = append(where, cond)
		bind = append(bind, b...)
	}
	textArg := func(v string) func(*call) { return func(q *call) { q.text(v) } }
	msArg := func(at time.Time) func(*call) { return func(q *call) { q.int(at.UnixMilli()) } }
	idArg := func(u uuid) func(*call) { return func(q *call) { q.blob(u[:]) } }

	if p.State != "" {
		st, err := job.ParseState(string(p.State))
		if err != nil {
			return "", nil, false, store.NoState(p.State)
		}
		// The text itself, not a parameter: a partial index serves only a
		// condition that it can see.
		if st == job.Ready {
			where = append(where, "(state = 'ready' OR state = '"+stateBlocked+"')")
		} else {
			where = append(where, "state = '"+string(st)+"'")
		}
		if st == job.Delayed || st == job.Suspended {
			where = append(where, defines["waiting"])
		}
		if st == job.Failed || st == job.Dead || st == job.Cancelled {
			where = append(where, "finished_at IS NOT NULL AND state <> 'done'")
		}
		if i := listIndex[st]; i != "" {
			index = i
		}
	}
	if p.Parent != "" {
		parent, ok := parseUUID(p.Parent)
		if !ok {
			return "", nil, true, nil
		}
		index = "runs_parent"
		add("parent IS NOT NULL AND parent = ?", idArg(parent))
	}
	if p.Job != "" {
		add("job = ?", textArg(p.Job))
	}
	if p.Queue != "" {
		add("queue = ?", textArg(p.Queue))
	}
	if p.Tenant != nil {
		add("tenant = ?", textArg(*p.Tenant))
	}
	if p.IDPrefix != "" {
		low, high, ok := prefixRange(p.IDPrefix)
		if !ok {
			return "", nil, true, nil
		}
		index = "runs_id"
		add("id BETWEEN ? AND ?", idArg(low), idArg(high))
	}
	if p.Code != "" {
		add("error_code = ?", textArg(p.Code))
	}
	p.Since, p.Until = store.Within(p.Since), store.Within(p.Until)
	if !p.Since.IsZero() {
		add("created_at >= ?", msArg(p.Since))
	}
	if !p.Until.IsZero() {
		add("created_at < ?", msArg(p.Until))
	}
	for _, cursor := range []struct{ id, cond string }{{p.Before, "id < ?"}, {p.After, "id > ?"}} {
		if cursor.id == "" {
			continue
		}
		id, ok := parseUUID(cursor.id)
		if !ok {
			return "", nil, false, store.NoCursor(cursor.id)
		}
		add(cursor.cond, idArg(id))
	}
	order := " ORDER BY id DESC"
	if p.Oldest {
		order = " ORDER BY id"
	}
	if index == "runs_ready" {
		// Each kind of ready run from the index that has it.
		rest := strings.Join(append([]string{""}, where[1:]...), " AND ")
		text = "SELECT " + listColumns + " FROM runs INDEXED BY runs_ready WHERE state = 'ready'" + rest +
			" UNION ALL SELECT " + listColumns + " FROM runs INDEXED BY runs_gates WHERE at_gate IS NOT NULL AND state = '" + stateBlocked + "'" + rest
		return text + order, append(bind, bind...), false, nil
	}
	text = "SELECT " + listColumns + " FROM runs INDEXED BY " + index
	if len(where) > 0 {
		text += " WHERE " + strings.Join(where, " AND ")
	}
	return text + order, bind, false, nil
}

// listColumns are the {run} columns, as the statements have them.
var listColumns = defines["run"]
