package sqltext

import (
	_ "embed"
	"regexp"
	"strings"

	"github.com/jobrunner/runner/abi"
)

// refusals1 are the functions by which those that a program calls refuse what the
// other doors refuse. It is part of the migrations of two schemas, which may have
// been applied: it is never changed. What is to be otherwise goes to a
// refusals_2.sql and new migrations.
//
//go:embed refusals_1.sql
var refusals1 string

// Migration is the text of a migration with its {refusals_1} written out. of begins
// the names of the functions: queue and outbox may share a schema, each with its own.
func Migration(text, of string) string {
	return strings.ReplaceAll(text, "{refusals_1}", strings.ReplaceAll(refusals1, "{of}", of))
}

var coded = regexp.MustCompile(`(?s)^(X_[A-Z_]+): (.*)$`)

// Refused is what such a function refused, by the message and the hint of the
// server's error, or nil if it was not one that did. err is the error itself.
func Refused(message, hint string, err error) *abi.Error {
	m := coded.FindStringSubmatch(message)
	if m == nil {
		return nil
	}
	return &abi.Error{Code: m[1], Message: m[2], Fix: hint, Err: err}
}
