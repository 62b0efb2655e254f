package module

import (
	"fmt"
	"strings"

	"github.com/jobrunner/runner/abi"
)

// Codes of a Problem.
const (
	CodeTooLarge   = "X_MODULE_TOO_LARGE"    // more bytes than MaxSize
	CodeDigest     = "X_MODULE_PIN_MISMATCH" // other bytes than were asked for
	CodeInvalid    = "X_MODULE_INVALID"      // no module, or one that must not run
	CodeABI        = "X_MODULE_ABI"          // built for a version of the contract that is not served
	CodeImport     = "X_MODULE_IMPORT"       // needs a function that no host provides
	CodeExport     = "X_MODULE_EXPORT"       // lacks what the contract asks of it
	CodeUnreadable = "X_MODULE_UNREADABLE"   // the file cannot be read
	CodeCache      = "X_MODULE_CACHE"        // the cache directory is unsafe or unusable
)

// Problems are all that is wrong with a module, in the order in which a person
// would mend it. errors.As finds the first *abi.Error, errors.Is any of them.
type Problems []*abi.Error

// Error lists the problems, one a line.
func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i, e := range p {
		lines[i] = e.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap makes each problem findable.
func (p Problems) Unwrap() []error {
	errs := make([]error, len(p))
	for i, e := range p {
		errs[i] = e
	}
	return errs
}

// err is the problems as an error: nil, the only one, or all.
func (p Problems) err() error {
	switch len(p) {
	case 0:
		return nil
	case 1:
		return p[0]
	}
	return p
}

// maxProblems bounds a report about a module that imports thousands of
// functions from elsewhere.
const maxProblems = 20

// add appends a problem; fix may be empty.
func (p *Problems) add(code, fix, format string, args ...any) {
	*p = append(*p, &abi.Error{Code: code, Message: fmt.Sprintf(format, args...), Fix: fix})
}

// cut keeps the first problems and says how many were left out.
func (p *Problems) cut() {
	if more := len(*p) - maxProblems; more > 0 {
		last := (*p)[maxProblems]
		*p = append((*p)[:maxProblems], &abi.Error{Code: last.Code, Message: fmt.Sprintf("and %d more problems", more)})
	}
}
