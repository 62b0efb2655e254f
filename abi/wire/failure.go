package wire

import (
	"encoding/json"
	"strconv"

	"github.com/jobrunner/runner/abi"
)

// Shares of abi.MaxFailure, in bytes of text. The stack gets what is left.
const (
	maxCode    = 64
	maxMessage = 4 << 10
	maxFix     = 1 << 10
	// maxFailureArg bounds what is read of a failure before it is cut.
	maxFailureArg = 1 << 20
)

// ValidCode reports whether s can be the code of a Failure: 1 to 64 letters,
// digits and any of "_.-", as in X_CARD_DECLINED.
func ValidCode(s string) bool {
	for i := range len(s) {
		switch ch := s[i]; {
		case ch-'0' <= 9, (ch|0x20)-'a' <= 25, ch == '_', ch == '.', ch == '-':
		default:
			return false
		}
	}
	return s != "" && len(s) <= maxCode
}

type failureJSON struct {
	Message    string          `json:"message"`
	Code       string          `json:"code"`
	Fix        string          `json:"fix"`
	RetryAfter json.RawMessage `json:"retry_after_ms"`
	Stack      string          `json:"stack"`
}

// DecodeFailure is the argument of fail or step_fail (named by fn), cut to
// abi.MaxFailure. An unknown kind, JSON that is no object, a field of the wrong
// type and a code that is not ValidCode are Violations; so are more than 1 MiB.
// Unknown fields are ignored. A wait that is not a usable number leaves the
// failure without one: FailRetryAfter becomes FailRetry.
func DecodeFailure(fn string, kind uint32, b []byte) (abi.Failure, error) {
	k := abi.FailureKind(kind)
	if !k.Valid() {
		return abi.Failure{}, violation(fn, "unknown failure kind %d", kind)
	}
	if err := CheckJSON(b, maxFailureArg); err != nil {
		return abi.Failure{}, violation(fn, "the failure is not strict JSON: %v", err)
	}
	f, err := readFailure(b)
	if err != nil {
		return abi.Failure{}, violation(fn, "the failure has the wrong shape: %v", err)
	}
	if f.Code != "" && !ValidCode(f.Code) {
		return abi.Failure{}, violation(fn, "the code %s is not 1 to 64 letters, digits and \"_.-\"", strconv.Quote(clip(f.Code, maxCode)))
	}
	f.Kind = k
	if f.RetryAfter < 0 { // none
		f.RetryAfter = 0
		if k == abi.FailRetryAfter {
			f.Kind = abi.FailRetry
		}
	}
	if f.Kind != abi.FailRetryAfter && f.Kind != abi.FailRateLimited {
		f.RetryAfter = 0
	}
	return ClipFailure(f), nil
}

// ReadFailure reads a Failure that a host or a store wrote: the last result
// after a negative answer, or a step's record. Its Kind is FailTerminal, since
// only what is final is written down.
func ReadFailure(b []byte) (abi.Failure, error) {
	f, err := readFailure(b)
	f.Kind = abi.FailTerminal
	f.RetryAfter = max(f.RetryAfter, 0)
	return f, err
}

// readFailure reads everything but the kind; RetryAfter is -1 where it is not a
// usable number.
func readFailure(b []byte) (abi.Failure, error) {
	var j failureJSON
	if err := object(b, &j, false); err != nil {
		return abi.Failure{}, err
	}
	f := abi.Failure{Message: j.Message, Code: j.Code, Fix: j.Fix, Stack: j.Stack, RetryAfter: -1}
	if ms, err := strconv.ParseFloat(string(j.RetryAfter), 64); err == nil {
		if d, ok := wait(ms); ok {
			f.RetryAfter = d
		}
	}
	return f, nil
}

// AppendFailure appends f as JSON of at most abi.MaxFailure bytes, cutting its
// texts as ClipFailure does.
func AppendFailure(dst []byte, f abi.Failure) []byte {
	f = ClipFailure(f)
	dst = append(dst, `{"message":`...)
	dst = appendString(dst, f.Message)
	if f.Code != "" {
		dst = appendString(append(dst, `,"code":`...), f.Code)
	}
	if f.Fix != "" {
		dst = appendString(append(dst, `,"fix":`...), f.Fix)
	}
	if f.Kind == abi.FailRetryAfter || f.Kind == abi.FailRateLimited {
		dst = strconv.AppendInt(append(dst, `,"retry_after_ms":`...), Millis(f.RetryAfter), 10)
	}
	if f.Stack != "" {
		dst = appendString(append(dst, `,"stack":`...), f.Stack)
	}
	return append(dst, '}')
}

// ClipFailure makes f fit to be kept and shown: texts without control
// characters and so short that AppendFailure stays within abi.MaxFailure, a
// message where there was none, no code that is not ValidCode.
func ClipFailure(f abi.Failure) abi.Failure {
	if !ValidCode(f.Code) {
		f.Code = ""
	}
	f.Message, f.Fix, f.Stack = clean(f.Message), clean(f.Fix), clean(f.Stack)
	if f.Message == "" {
		f.Message = "failed without a message"
	}
	f.RetryAfter = min(max(f.RetryAfter, 0), abi.MaxSleep)
	f.Message = cut(f.Message, maxMessage)
	f.Fix = cut(f.Fix, maxFix)
	// 128 covers the punctuation, the keys and the longest wait.
	left := abi.MaxFailure - 128 - len(f.Code) - jsonLen(f.Message) - jsonLen(f.Fix)
	f.Stack = cut(f.Stack, left)
	return f
}

// cut is s cut so that it takes at most max bytes as a JSON string, the quotes
// not counted, with an ellipsis at its end if something is missing.
func cut(s string, max int) string {
	if jsonLen(s) <= max {
		return s
	}
	n := 0
	for i, r := range s {
		n += jsonRuneLen(r)
		if n > max-len("…") {
			return s[:i] + "…"
		}
	}
	return s
}

// jsonLen is how many bytes appendString makes of clean text, without quotes.
func jsonLen(s string) int {
	n := len(s)
	for i := range len(s) {
		switch s[i] {
		case '"', '\\', '\n', '\t':
			n++
		}
	}
	return n
}

func jsonRuneLen(r rune) int {
	switch {
	case r == '"' || r == '\\' || r == '\n' || r == '\t':
		return 2
	case r < 0x80:
		return 1
	case r < 0x800:
		return 2
	case r < 0x10000:
		return 3
	}
	return 4
}
