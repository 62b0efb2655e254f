//go:build !unix

package sqlite

import "errors"

// errQuota does not occur here.
var errQuota = errors.New("quota exceeded")
