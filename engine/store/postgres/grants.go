package postgres

import (
	"strings"

	"github.com/jackc/pgx/v5"
)

// Role is what a database role is for.
type Role string

const (
	// RoleWorker claims and runs, enqueues, and operates on runs.
	RoleWorker Role = "worker"
	// RoleEnqueuer enqueues and nothing else; it reads no inputs and no outputs.
	RoleEnqueuer Role = "enqueuer"
)

// Grants is the SQL that gives a database role, by its name, exactly what it
// needs in cfg's schema. The schema's owner runs it.
func Grants(cfg Config, role Role, name string) (string, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return "", err
	}
	text, ok := defines["grants_"+string(role)]
	if !ok {
		return "", errInvalid("there are no grants for a role %q", role)
	}
	return strings.ReplaceAll(cfg.dialect().fill(text), "{role}", pgx.Identifier{name}.Sanitize()), nil
}
