package postgres

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

// Role is what a database role is for.
type Role string

const (
	// RoleWorker claims and runs, enqueues, and operates on runs.
	RoleWorker Role = "worker"
	// RoleEnqueuer enqueues and nothing else; it reads no inputs and no outputs.
	RoleEnqueuer Role = "enqueuer"
)

// maxRoleName is what Postgres keeps of a name, in bytes.
const maxRoleName = 63

// Grants is the SQL that gives a database role, by its name, exactly what it
// needs in cfg's schema. The schema's owner runs it.
// Errors: X_INVALID for a name that no role has: quoted, it might be another's.
func Grants(cfg Config, role Role, name string) (string, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return "", err
	}
	text, ok := defines["grants_"+string(role)]
	if !ok {
		return "", store.Invalid("there are no grants for a role %q", role)
	}
	if name == "" || len(name) > maxRoleName || !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl) {
		return "", &abi.Error{
			Code: job.CodeInvalid, Message: fmt.Sprintf("%.64q is the name of no role", name),
			Fix: fmt.Sprintf("name one that exists, in 1 to %d bytes; `select rolname from pg_roles` lists them", maxRoleName),
		}
	}
	return strings.ReplaceAll(cfg.dialect().fill(text), "{role}", pgx.Identifier{name}.Sanitize()), nil
}
