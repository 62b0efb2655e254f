//go:build unix

package sqlite

import "syscall"

// errQuota is a user's share of a disk that is full.
const errQuota = syscall.EDQUOT
