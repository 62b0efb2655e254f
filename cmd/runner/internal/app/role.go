package app

import (
	"errors"
	"fmt"
	"slices"
)

// Role is a part of the work that a process may do.
type Role string

const (
	RoleWorker    Role = "worker"    // claims runs and works them off
	RoleScheduler Role = "scheduler" // fires schedules
	RoleRelay     Role = "relay"     // publishes what an application stages in an outbox
)

// Roles are all roles, which a process has unless it is told otherwise.
var Roles = []Role{RoleWorker, RoleScheduler, RoleRelay}

// ParseRoles reads a list of names. It refuses none, one that nobody knows and
// one that stands twice.
func ParseRoles(names []string) ([]Role, error) {
	var roles []Role
	for _, name := range names {
		switch r := Role(name); {
		case !slices.Contains(Roles, r):
			return nil, fmt.Errorf("%q is no role of a process", name)
		case slices.Contains(roles, r):
			return nil, fmt.Errorf("%s stands twice", name)
		default:
			roles = append(roles, r)
		}
	}
	if len(roles) == 0 {
		return nil, errors.New("a process without a role would do nothing")
	}
	return roles, nil
}
