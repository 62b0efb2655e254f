package sqlite

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// lockFile locks a byte of f past its text, so that others can read who holds
// it, until f is closed.
func lockFile(f *os.File) error {
	at := &windows.Overlapped{Offset: 1 << 20}
	err := windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, at)
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) {
		return errHeld
	}
	return err
}
