package module

import (
	"io/fs"
	"syscall"
	"time"
)

// lastUsed is when a file was written or read last. Most systems note a read once
// a day, which is enough; one mounted not to (noatime) has its files expire by age.
func lastUsed(st fs.FileInfo) time.Time {
	at := st.ModTime()
	if s, ok := st.Sys().(*syscall.Stat_t); ok {
		if read := time.Unix(s.Atim.Unix()); read.After(at) {
			return read
		}
	}
	return at
}
