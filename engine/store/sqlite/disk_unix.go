//go:build unix

package sqlite

import (
	"io/fs"
	"syscall"
)

// errQuota is a user's share of a disk that is full.
const errQuota = syscall.EDQUOT

// names is how many names a file has.
func names(info fs.FileInfo) int {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(st.Nlink)
	}
	return 1
}
