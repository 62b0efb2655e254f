package outbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/puddle/v2"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/internal/sqltext"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

// retryable reports whether the server rolled a transaction back for reasons
// that may be gone when it is tried again.
func retryable(err error) bool {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code == "40001" || pg.Code == "40P01" // serialization failure, deadlock
	}
	return pgconn.SafeToRetry(err) // the connection was gone before anything was sent
}

// where names a database in the messages of errors.
type where struct {
	schema string
	target string
}

// translate turns an error of the driver into one with a code. sent says that a
// write was under way whose outcome a lost connection leaves open: then the
// error is store.ErrUnknown too. Errors that have a code already pass.
func (w where) translate(err error, sent bool) error {
	if err == nil || abi.CodeOf(err) != "" {
		return err
	}
	if errors.Is(err, puddle.ErrClosedPool) {
		return &abi.Error{Code: job.CodeDatabaseUnavailable, Message: "the outbox is closed"}
	}
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		e := w.fromServer(pg)
		// A statement that failed has done nothing. A session that was ended may
		// have committed first.
		if sent && pg.Severity != "ERROR" && pg.SeverityUnlocalized != "ERROR" {
			return errors.Join(e, store.ErrUnknown)
		}
		return e
	}
	unknown := sent && !pgconn.SafeToRetry(err)
	switch {
	case errors.Is(err, context.Canceled):
	case errors.Is(err, context.DeadlineExceeded):
		err = &abi.Error{
			Code:    job.CodeDatabaseUnavailable,
			Message: fmt.Sprintf("%s did not answer in time", w.target),
			Fix:     "check that the server is up and can be reached, and what slows it down; the relay goes on when it answers",
			Err:     err,
		}
	default:
		err = &abi.Error{
			Code:    job.CodeDatabaseUnavailable,
			Message: fmt.Sprintf("the connection to %s failed: %s", w.target, plain(err)),
			Fix:     "check that the server is up and can be reached; the relay goes on when it is back",
			Err:     err,
		}
	}
	if unknown {
		return errors.Join(err, store.ErrUnknown)
	}
	return err
}

// plain is the innermost text of an error of connecting: those around it repeat
// the user and the address.
func plain(err error) string {
	var ce *pgconn.ConnectError
	if errors.As(err, &ce) {
		if inner := ce.Unwrap(); inner != nil {
			// With and without TLS it fails alike, as often as not.
			return strings.Join(slices.Compact(strings.Split(inner.Error(), "\n")), "\n")
		}
	}
	return err.Error()
}

// stateRefusal is the SQLSTATE with which the functions of the schema refuse, with a
// code of ours: invalid_parameter_value.
const stateRefusal = "22023"

// fromServer gives an error of the server its code and says what to do.
func (w where) fromServer(pg *pgconn.PgError) error {
	if pg.Code == stateRefusal {
		if refused := sqltext.Refused(pg.Message, pg.Hint, pg); refused != nil {
			return refused
		}
	}
	e := &abi.Error{Err: pg}
	say := func(code, fix, format string, args ...any) {
		e.Code, e.Fix, e.Message = code, fix, fmt.Sprintf(format, args...)
	}
	class := ""
	if len(pg.Code) >= 2 {
		class = pg.Code[:2]
	}
	switch {
	case pg.Code == "25006": // read_only_sql_transaction
		say(job.CodeDatabaseReadOnly, "name the primary server", "%s cannot be written: it is a replica, or set to read-only", w.target)
	case pg.Code == "42501": // insufficient_privilege
		say(job.CodeDatabaseDenied, "grant it with `runner migrate outbox --relay ROLE` or `--enqueuer ROLE`, as the owner of the schema",
			"the role of %s lacks a privilege: %s", w.target, pg.Message)
	case pg.Code == "42P01", pg.Code == "3F000", pg.Code == "42703", pg.Code == "42883": // undefined table, schema, column, function
		say(job.CodeDatabaseSchema, fixMigrate, "the schema %s of %s lacks something this build needs: %s", w.schema, w.target, pg.Message)
	case pg.Code == "53100": // disk_full
		say(job.CodeDatabaseFull, "free space on the server; what was staged is not lost", "no space left on the server of %s", w.target)
	case class == "53": // too many connections, out of memory
		say(job.CodeDatabaseUnavailable, "lower the connections of its clients, or raise the server's limits", "the server of %s is out of resources: %s", w.target, pg.Message)
	case pg.Code == "57014", pg.Code == "55P03", pg.Code == "40001", pg.Code == "40P01": // canceled, lock, serialization, deadlock
		say(job.CodeDatabaseBusy, "look for what blocks the outbox: select pid, query from pg_stat_activity where state <> 'idle' order by xact_start",
			"%s kept a statement from going on: %s", w.target, pg.Message)
	case pg.Code == "25P03", pg.Code == "25P04": // idle_in_transaction_session_timeout, transaction_timeout
		say(job.CodeDatabaseBusy, "raise that timeout for the relay's role", "%s ended a transaction: %s", w.target, pg.Message)
	case class == "57", class == "08": // operator intervention, connection
		say(job.CodeDatabaseUnavailable, "wait for the server to come back; the relay goes on by itself", "%s is not available: %s", w.target, pg.Message)
	case pg.Code == "3D000": // invalid_catalog_name
		say(job.CodeDatabaseMissing, "create it, or name another", "the database does not exist: %s", pg.Message)
	case class == "28": // invalid authorization
		say(job.CodeDatabaseUnavailable, "check user and password of the URL, and the server's pg_hba.conf", "%s refuses to log in: %s", w.target, pg.Message)
	case class == "22": // data exception
		say(job.CodeInvalid, "", "%s refuses a value: %s", w.target, pg.Message)
	default:
		say(job.CodeInternal, "", "%s: %s (SQLSTATE %s)", w.target, pg.Message, pg.Code)
	}
	return e
}

const fixMigrate = "run `runner migrate outbox --database-url …` with the URL of that database"

func errInvalid(format string, args ...any) error {
	return &abi.Error{Code: job.CodeInvalid, Message: fmt.Sprintf(format, args...)}
}
