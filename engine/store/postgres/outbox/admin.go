package outbox

import (
	"context"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

const (
	maxPage   = 1000
	maxReason = 4 << 10 // bytes of a reason
	maxActor  = 255     // bytes of who did it
)

// retried is the payload of a wake after which a relay looks at everything.
const retried = "retried"

// predicates say of each state what the index of that state says.
var predicates = map[store.StagedState]string{
	"":              "TRUE",
	store.Waiting:   "c.state = 'staged'",
	store.Published: "c.state = 'published'",
	store.Rejected:  "c.state = 'rejected'",
}

// ListStaged implements store.OutboxAdmin.
func (d *DB) ListStaged(ctx context.Context, p store.ListStagedParams) ([]store.Staged, error) {
	predicate, ok := predicates[p.State]
	if !ok {
		return nil, &abi.Error{
			Code: job.CodeInvalid, Message: fmt.Sprintf("%s is no state of a staged row", job.Quote(string(p.State))),
			Fix: fmt.Sprintf("name one of %s, %s and %s", store.Waiting, store.Published, store.Rejected),
		}
	}
	var before pgtype.UUID
	if p.Before != "" {
		var err error
		if before, err = parseID(p.Before); err != nil {
			return nil, &abi.Error{Code: job.CodePageInvalid, Message: fmt.Sprintf("the cursor %s is not the id of a staged row", job.Quote(p.Before)), Fix: "use the last id of the page before"}
		}
	}
	limit, err := store.PageLimit(p.Limit)
	if err != nil {
		return nil, err
	}
	var out []store.Staged
	err = d.query(ctx, false, func() { out = nil }, func(r pgx.Rows) error {
		row, _, err := scanRow(r, false)
		out = append(out, row)
		return err
	}, strings.ReplaceAll(d.text["list"], "{state}", predicate), orNull(p.Job), orNull(p.Code), before, limit)
	return out, err
}

// RetryStaged implements store.OutboxAdmin.
func (d *DB) RetryStaged(ctx context.Context, p store.RetryStagedParams) ([]string, error) {
	switch {
	case p.Limit < 0 || p.Limit > maxPage || len(p.IDs) > maxPage:
		return nil, &abi.Error{
			Code: job.CodeInvalid, Message: fmt.Sprintf("%d rows are to be staged again", max(p.Limit, len(p.IDs))), Fix: fmt.Sprintf("name at most %d, and then the others", maxPage),
		}
	case len(p.IDs) == 0 && p.Job+p.Code == "" && !p.All:
		return nil, &abi.Error{Code: job.CodeInvalid, Message: "no row is named that is to be staged again", Fix: "name rows by their ids, or ask for all"}
	case len(p.IDs) > 0 && (p.All || p.Job+p.Code != ""):
		return nil, &abi.Error{Code: job.CodeInvalid, Message: "rows are named by their ids and by a filter", Fix: "name them by one of the two"}
	}
	if p.Limit == 0 {
		p.Limit = maxPage
	}
	var ids []pgtype.UUID
	for _, id := range p.IDs {
		u, err := parseID(id)
		if err != nil {
			return nil, errNotFound(id)
		}
		ids = append(ids, u)
	}
	var again []string
	err := d.inTx(ctx, func(tx pgx.Tx) error {
		found, err := d.toRetry(ctx, tx, p, ids)
		if err != nil || len(found) == 0 {
			again = nil
			return err
		}
		rows, err := tx.Query(ctx, d.text["retry"], found, storable(p.By, maxActor), store.AuditRetention.Milliseconds())
		if err != nil {
			return err
		}
		if again, err = pgx.CollectRows(rows, pgx.RowTo[string]); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, d.text["notify"], d.listen.channel, retried)
		return err
	})
	if err != nil {
		return nil, err
	}
	return again, nil
}

// toRetry locks the rejected rows that p names.
func (d *DB) toRetry(ctx context.Context, tx pgx.Tx, p store.RetryStagedParams, ids []pgtype.UUID) ([]pgtype.UUID, error) {
	if len(p.IDs) == 0 {
		rows, err := tx.Query(ctx, d.text["find_rejected"], orNull(p.Job), orNull(p.Code), p.Limit)
		if err != nil {
			return nil, err
		}
		return pgx.CollectRows(rows, pgx.RowTo[pgtype.UUID])
	}
	rows, err := tx.Query(ctx, d.text["states"], ids)
	if err != nil {
		return nil, err
	}
	states := map[string]string{}
	var id, state string
	if _, err := pgx.ForEachRow(rows, []any{&id, &state}, func() error { states[id] = state; return nil }); err != nil {
		return nil, err
	}
	for _, id := range p.IDs {
		switch state, ok := states[id]; {
		case !ok:
			return nil, errNotFound(id)
		case state != string(store.Rejected):
			return nil, &abi.Error{
				Code:    job.CodeOutboxNotRejected,
				Message: fmt.Sprintf("row %s of the outbox is %s, and only rejected ones are staged again", id, state),
				Fix:     "list them with `runner outbox ls`",
			}
		}
	}
	return ids, nil
}

func errNotFound(id string) error {
	return &abi.Error{
		Code:    job.CodeOutboxNotFound,
		Message: fmt.Sprintf("the outbox has no row %s", job.Quote(id)),
		Fix:     "list rows with `runner outbox ls`; published ones are deleted after a while",
	}
}

// parseID reads a canonical UUID, and nothing else.
func parseID(s string) (pgtype.UUID, error) {
	u, err := uuid.Parse(s)
	if err != nil || u.String() != s {
		return pgtype.UUID{}, &abi.Error{
			Code:    job.CodeIDInvalid,
			Message: fmt.Sprintf("id %q is not a canonical UUID", strings.ToValidUTF8(s[:min(len(s), 64)], "?")),
			Fix:     "write it in lower case with hyphens, as in 01890a5d-ac96-774b-bcce-b302099a8057",
		}
	}
	return pgtype.UUID{Bytes: u, Valid: true}, nil
}

// orNull is s for a parameter where "" is NULL. What no row can hold matches
// none.
func orNull(s string) *string {
	if s == "" {
		return nil
	}
	s = storable(s, len(s))
	return &s
}

// storable is s as the server takes it: UTF-8 without NUL, cut to most bytes.
func storable(s string, most int) string {
	s = strings.ToValidUTF8(strings.ReplaceAll(s, "\x00", "�"), "�")
	if len(s) <= most {
		return s
	}
	for most > 0 && !utf8.RuneStart(s[most]) {
		most--
	}
	return s[:most]
}
