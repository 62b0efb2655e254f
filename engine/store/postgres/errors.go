package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/internal/sqltext"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

// errClosed is what methods answer after Close.
var errClosed = &abi.Error{Code: job.CodeDatabaseUnavailable, Message: "the store is closed"}

// errAgain marks an error of a transaction that has to look again.
var errAgain = errors.New("look again")

// retryable reports whether the server rolled a transaction back for reasons
// that may be gone when it is tried again.
func retryable(err error) bool {
	if errors.Is(err, errAgain) {
		return true
	}
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code == "40001" || pg.Code == "40P01" // serialization failure, deadlock
	}
	return pgconn.SafeToRetry(err) // the connection was gone before anything was sent
}

// sqlState is the server's code of err, "" if it is not from the server.
func sqlState(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code
	}
	return ""
}

// translate turns an error of the driver into one with a code. sent says that a
// write was under way whose outcome a lost connection leaves open: then the
// error is store.ErrUnknown too. Errors that already have a code pass.
func (s *Store) translate(err error, sent bool) error {
	if err == nil || abi.CodeOf(err) != "" {
		return err
	}
	var pg *pgconn.PgError
	if errors.Is(err, errAgain) && !errors.As(err, &pg) {
		return &abi.Error{Code: job.CodeDatabaseBusy, Message: fmt.Sprintf("%d tries were overtaken by others: %v", tries, err), Fix: "try again", Err: err}
	}
	if errors.As(err, &pg) {
		e := s.fromServer(pg)
		// A statement that failed has done nothing. A session that was ended may
		// have committed first.
		if sent && pg.Severity != "ERROR" && pg.SeverityUnlocalized != "ERROR" {
			return errors.Join(e, store.ErrUnknown)
		}
		return e
	}
	unknown := sent && !pgconn.SafeToRetry(err)
	if errors.Is(err, context.Canceled) {
		if unknown {
			return errors.Join(err, store.ErrUnknown)
		}
		return err
	}
	e := &abi.Error{
		Code:    job.CodeDatabaseUnavailable,
		Message: fmt.Sprintf("the connection to %s failed: %v", s.target, plain(err)),
		Fix:     "check that the server is up and can be reached; a worker that runs already goes on when it is back",
		Err:     err,
	}
	if errors.Is(err, context.DeadlineExceeded) {
		e.Message = fmt.Sprintf("%s did not answer in time", s.target)
		e.Fix = "check that the server is up and can be reached, and what slows it down; a worker that runs already goes on when it answers"
	}
	if unknown {
		return errors.Join(e, store.ErrUnknown)
	}
	return e
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
func (s *Store) fromServer(pg *pgconn.PgError) error {
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
		say(job.CodeDatabaseReadOnly, "name the primary server, or several hosts with target_session_attrs=read-write in the URL",
			"%s cannot be written: it is a replica, or set to read-only", s.target)
	case pg.Code == "42501": // insufficient_privilege
		say(job.CodeDatabaseDenied, "grant it as the owner of the schema; docs/postgres.md lists what each role needs", "the role of %s lacks a privilege: %s", s.target, pg.Message)
	case pg.Code == "42P01", pg.Code == "3F000", pg.Code == "42703", pg.Code == "42883": // undefined table, schema, column, function
		say(job.CodeDatabaseSchema, "run `runner migrate up`", "the schema %s of %s lacks something this build needs: %s", s.cfg.Schema, s.target, pg.Message)
	case pg.Code == "53300", pg.Code == "53400": // too_many_connections
		say(job.CodeDatabaseUnavailable, "lower pool_max_conns in the URL of each runner, raise the limit of the server or of the role, or put PgBouncer in between",
			"%s has no connection left: %s", s.target, pg.Message)
	case pg.Code == "53100": // disk_full
		say(job.CodeDatabaseFull, "free space on the server; nothing that was answered is lost, and writes go on when there is space",
			"no space left on the server of %s", s.target)
	case class == "53": // insufficient resources
		say(job.CodeDatabaseUnavailable, "give the server more memory, or lower its settings", "the server of %s is out of resources: %s", s.target, pg.Message)
	case pg.Code == "57014": // query_canceled: by statement_timeout, or by a person
		say(job.CodeDatabaseBusy, "if this is a statement_timeout, raise it for the runner's role; otherwise look for what slows the server down",
			"%s ended a statement: %s", s.target, pg.Message)
	case pg.Code == "25P03", pg.Code == "25P04": // idle_in_transaction_session_timeout, transaction_timeout
		say(job.CodeDatabaseBusy, "raise that timeout for the runner's role: its transactions are short, but for a busy machine",
			"%s ended a transaction: %s", s.target, pg.Message)
	case pg.Code == stateRefused:
		say(job.CodeDatabaseBusy, "roll the transaction back and try again", "a run that the batch names began or ended while it was inserted")
	case pg.Code == lockNotAvailable, pg.Code == "40001", pg.Code == "40P01": // lock, serialization, deadlock
		say(job.CodeDatabaseBusy, "look for a long transaction that locks the runner's tables: select pid, query from pg_stat_activity where state <> 'idle' order by xact_start",
			"%s kept a statement from going on: %s", s.target, pg.Message)
		if pg.Code == lockNotAvailable {
			return errors.Join(e, store.ErrHeld)
		}
	case class == "57", class == "08": // operator intervention, connection
		say(job.CodeDatabaseUnavailable, "wait for the server to come back; the runner goes on by itself", "%s is not available: %s", s.target, pg.Message)
	case pg.Code == "3D000": // invalid_catalog_name
		say(job.CodeDatabaseMissing, "create it, or name another", "the database does not exist: %s", pg.Message)
	case class == "28": // invalid authorization
		say(job.CodeDatabaseUnavailable, "check user and password of the database URL, and the server's pg_hba.conf", "%s refuses to log in: %s", s.target, pg.Message)
	case class == "XX" && pg.Code != "XX000": // data or index corrupted
		say(job.CodeDatabaseCorrupt, "stop the runner, and have the server checked or restored", "%s is damaged: %s", s.target, pg.Message)
	case class == "22", class == "54": // data exception, program limit
		say(job.CodeInvalid, "", "%s refuses a value: %s", s.target, pg.Message)
	case pg.Code == "26000", pg.Code == "42P05": // prepared statement missing or there already
		say(job.CodeDatabaseUnavailable, "set the pooling to "+string(PoolingTransaction), "a pooler in front of %s mixes up prepared statements: %s", s.target, pg.Message)
	default:
		say(job.CodeInternal, "", "%s: %s (SQLSTATE %s)", s.target, pg.Message, pg.Code)
	}
	return e
}

// errRowStatus refuses one row that another build wrote.
func errRowStatus(column, value, id string) error {
	return &abi.Error{
		Code:    job.CodeRowStatusUnknown,
		Message: fmt.Sprintf("the %s of run %s is %q, which this build does not know", column, id, strings.ToValidUTF8(value, "?")),
		Fix:     "upgrade this runner to the version that wrote the row",
	}
}
