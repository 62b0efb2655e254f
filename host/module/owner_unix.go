//go:build unix

package module

import (
	"io/fs"
	"os"
	"syscall"
)

// user is this process's user; tests pretend to be another.
var user = os.Geteuid

// owned reports whether the file belongs to this process's user.
func owned(st fs.FileInfo) bool {
	s, ok := st.Sys().(*syscall.Stat_t)
	return ok && int(s.Uid) == user()
}
