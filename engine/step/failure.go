package step

import (
	"unicode/utf8"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/job"
)

// maxCode bounds a failure's code, which a guest may choose.
const maxCode = 128

// Bounded is what a store keeps of a guest's failure: each text cut to its
// limit, with an ellipsis where it was.
func Bounded(f abi.Failure) job.Failure {
	return job.Failure{
		Code:    cut(f.Code, maxCode),
		Message: cut(f.Message, job.MaxErrorText),
		Fix:     cut(f.Fix, job.MaxErrorText),
		Stack:   cut(f.Stack, job.MaxStack),
	}
}

// Terminal is the verdict on a failure that itself said not to try again.
const Terminal = " [terminal: not tried again]"

// WithVerdict adds the runner's verdict to the operator's text of f, which is cut
// so that the verdict stays.
func WithVerdict(f abi.Failure, verdict string) abi.Failure {
	f.Message = cut(f.Message, job.MaxErrorText-len(verdict)) + verdict
	return f
}

// cut shortens s to at most n bytes of UTF-8.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	const mark = "…"
	n -= len(mark)
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + mark
}
