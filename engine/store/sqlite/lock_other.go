//go:build !windows && (!unix || solaris || aix)

package sqlite

import (
	"errors"
	"os"
)

func lockFile(*os.File) error { return errors.New("this system has no file locks") }
