package postgres

import (
	"context"
	"strconv"
	"strings"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

// List implements store.Admin. Newest and oldest first are by id: ids are time-ordered, and
// a page that goes on after an id needs nothing of the run it names, which may
// have been purged since.
func (s *Store) List(ctx context.Context, p store.ListParams) ([]job.Run, error) {
	limit, err := store.PageLimit(p.Limit)
	if err != nil {
		return nil, err
	}
	l, none, err := listing(p)
	if err != nil || none {
		return nil, err
	}
	text := s.cfg.dialect().fill(l.text(limit))
	var out []job.Run
	err = s.read(ctx, func(q queryer) error {
		out = nil
		rows, err := q.Query(ctx, text, l.args...)
		if err != nil {
			return err
		}
		return scanAll(rows, func(r *row) error {
			run, err := r.run()
			if abi.CodeOf(err) == job.CodeRowStatusUnknown {
				return nil // one row of another build does not hide the others
			}
			out = append(out, run)
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// list is a listing's statement on its way.
type list struct {
	state job.State
	order string   // "" or " DESC"
	where []string // conditions, in which {t} is the table
	args  []any
}

// add adds a condition in which each $ is the next of args.
func (l *list) add(cond string, args ...any) {
	for _, a := range args {
		l.args = append(l.args, a)
		cond = strings.Replace(cond, "$", "\x00"+strconv.Itoa(len(l.args)), 1)
	}
	l.where = append(l.where, strings.ReplaceAll(cond, "\x00", "$"))
}

// listing composes the conditions of a filter from fixed texts; what the caller
// gave is bound. none means that no run can match.
func listing(p store.ListParams) (l list, none bool, err error) {
	if !p.Oldest {
		l.order = " DESC"
	}
	if p.State != "" {
		if l.state, err = job.ParseState(string(p.State)); err != nil {
			return l, false, store.NoState(p.State)
		}
	}
	if p.Parent != "" {
		parent, ok := parseUUID(p.Parent)
		if !ok {
			return l, true, nil
		}
		l.add("{t}.parent = $", parent.param())
	}
	if p.Job != "" {
		l.add("{t}.job = $", enc(p.Job))
	}
	if p.Queue != "" {
		l.add("{t}.queue = $", enc(p.Queue))
	}
	if p.Tenant != nil {
		l.add("{t}.tenant = $", enc(*p.Tenant))
	}
	if p.IDPrefix != "" {
		low, high, ok := prefixRange(p.IDPrefix)
		if !ok {
			return l, true, nil
		}
		l.add("{t}.id BETWEEN $ AND $", low.param(), high.param())
	}
	if p.Code != "" {
		// The stored text begins with it, see jsonText.
		l.add("starts_with({t}.error, $)", strings.TrimSuffix(*failureText(&job.Failure{Code: p.Code}), "}"))
	}
	p.Since, p.Until = store.Within(p.Since), store.Within(p.Until)
	if !p.Since.IsZero() {
		l.add("{t}.created_at >= $", p.Since)
	}
	if !p.Until.IsZero() {
		l.add("{t}.created_at < $", p.Until)
	}
	for _, cursor := range []struct{ id, cond string }{{p.Before, "{t}.id < $"}, {p.After, "{t}.id > $"}} {
		if cursor.id == "" {
			continue
		}
		id, ok := parseUUID(cursor.id)
		if !ok {
			return l, false, store.NoCursor(cursor.id)
		}
		l.add(cursor.cond, id.param())
	}
	return l, false, nil
}

// text is the statement: a page of each table that may hold such runs, and the
// first of those.
func (l *list) text(limit int) string {
	n := strconv.Itoa(limit)
	part := func(projection, table, t, state string) string {
		where := make([]string, 0, len(l.where)+1)
		for _, w := range l.where {
			where = append(where, strings.ReplaceAll(w, "{t}", t))
		}
		if state != "" {
			where = append(where, state)
		}
		text := "(SELECT " + defines[projection] + " FROM {schema}." + table + " " + t
		if len(where) > 0 {
			text += " WHERE " + strings.Join(where, " AND ")
		}
		return text + " ORDER BY " + t + ".id" + l.order + " LIMIT " + n + ")"
	}
	// The state is written out: a partial index serves only a condition that the
	// planner can see.
	is := func(t string) string {
		if l.state == "" {
			return ""
		}
		if l.state == job.Ready {
			return t + ".state IN ('ready', '" + stateBlocked + "')"
		}
		return t + ".state = '" + string(l.state) + "'"
	}
	var parts []string
	if l.state == "" || l.state.Live() && l.state != job.Running {
		parts = append(parts, part("waiting_run", "waiting", "w", is("w")))
	}
	if l.state == "" || l.state == job.Running {
		parts = append(parts, part("running_run", "running", "r", ""))
	}
	if l.state == "" || l.state.Terminal() {
		parts = append(parts, part("finished_run", "finished", "f", is("f")))
	}
	if len(parts) == 1 {
		return parts[0]
	}
	return strings.Join(parts, " UNION ALL ") + " ORDER BY id" + l.order + " LIMIT " + n
}
