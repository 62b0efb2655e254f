package job

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jobrunner/runner/abi"
)

// Asked is what somebody who asks for a run says of it, beside its job and input.
// Its bounds are those of every door, whether it leads to the queue or to an outbox.
type Asked struct {
	Key, Tenant, EnqueuedBy, Traceparent string
	RunAt                                time.Time
	Delay                                time.Duration
	Priority                             *int
	MaxAttempts                          int // 0 is the job's own
}

// Check reports what of it no run can have.
// Errors: X_JOB_KEY_INVALID for key and tenant, X_INVALID for the rest.
func (a *Asked) Check() error {
	for _, t := range [...]struct {
		code, what, text string
		most             int
	}{
		{CodeKeyInvalid, "idempotency key", a.Key, MaxKey}, {CodeKeyInvalid, "tenant", a.Tenant, MaxTenant},
		{CodeInvalid, "text of enqueued_by", a.EnqueuedBy, MaxTenant}, {CodeInvalid, "traceparent", a.Traceparent, MaxTraceparent},
	} {
		if err := CheckText(t.code, t.what, t.text, t.most); err != nil {
			return err
		}
	}
	if a.Priority != nil && (*a.Priority < MinPriority || *a.Priority > MaxPriority) {
		return invalid(fmt.Sprintf("say one from %d to %d, or leave it out", MinPriority, MaxPriority), "a priority of %d is outside %d to %d", *a.Priority, MinPriority, MaxPriority)
	}
	if err := CheckAttempts(a.MaxAttempts); err != nil {
		return err
	}
	switch {
	case a.Delay < 0:
		return invalid("leave it out to run at once", "a delay of %v lies in the past", a.Delay)
	case a.Delay > abi.MaxSleep:
		return invalid("say at most 3650 days", "a delay of %v is longer than ten years", a.Delay)
	case a.Delay > 0 && !a.RunAt.IsZero():
		return invalid("say one of them", "a delay and an instant are given")
	case !a.RunAt.IsZero() && (a.RunAt.Before(firstDue) || !a.RunAt.Before(endDue)):
		return invalid("say one from 1970 on and before 9000, or leave it out to run at once", "a run cannot be due at %s", a.RunAt.UTC().Format(time.RFC3339Nano))
	}
	return nil
}

// firstDue and endDue bound when a run may be due: what every database keeps. The
// epoch itself is how an instant arrives that nobody has set.
var firstDue, endDue = time.UnixMilli(1), time.Date(9000, 1, 1, 0, 0, 0, 0, time.UTC)

// CheckAttempts reports a number of attempts that no run can have; 0 is not asked for.
// Errors: X_INVALID.
func CheckAttempts(n int) error {
	if n < 0 || n > MostAttempts {
		return invalid(fmt.Sprintf("say a number from 1 to %d, or leave it out", MostAttempts), "%d attempts cannot be made", n)
	}
	return nil
}

// IsText reports whether a text is kept as it is by every store, and has at most so
// many bytes.
func IsText(s string, most int) bool {
	return len(s) <= most && utf8.ValidString(s) && strings.IndexByte(s, 0) < 0
}

// CheckText reports what is no text of at most so many bytes, with the code.
func CheckText(code, what, s string, most int) error {
	switch {
	case IsText(s, most):
		return nil
	case len(s) > most:
		return &abi.Error{Code: code, Message: fmt.Sprintf("the %s %q… has %d bytes", what, s[:min(len(s), 48)], len(s)), Fix: fmt.Sprintf("say it in at most %d", most)}
	}
	return &abi.Error{Code: code, Message: fmt.Sprintf("the %s %q is no text", what, s[:min(len(s), 64)]), Fix: "write it in UTF-8, without NUL"}
}

func invalid(fix, format string, args ...any) error {
	return &abi.Error{Code: CodeInvalid, Message: fmt.Sprintf(format, args...), Fix: fix}
}

// Quote is a text that somebody gave as a message says it: on one line, and of a
// long one the beginning.
func Quote(s string) string {
	if len(s) <= quoted {
		return strconv.Quote(s)
	}
	n := quoted
	for n > quoted-utf8.UTFMax && !utf8.RuneStart(s[n]) {
		n--
	}
	return strconv.Quote(s[:n]) + "…"
}

// quoted is how many bytes of a text a message says.
const quoted = 64
