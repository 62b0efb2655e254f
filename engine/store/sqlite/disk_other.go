//go:build !unix

package sqlite

import (
	"errors"
	"io/fs"
)

// errQuota does not occur here.
var errQuota = errors.New("quota exceeded")

// names is how many names a file has, which this system does not say cheaply.
func names(fs.FileInfo) int { return 1 }
