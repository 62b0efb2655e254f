//go:build unix && !solaris && !aix

package sqlite

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// lockFile locks f until it is closed. flock belongs to the open file, so
// closing another descriptor of it does not release it.
func lockFile(f *os.File) error {
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return errHeld
	}
	return err
}
