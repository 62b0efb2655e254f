package guest

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/abi/wire"
)

// Terminal marks err as one that no retry can mend: the run (or the step) fails
// for good. Terminal(nil) is nil, as with all functions of this kind.
func Terminal(err error) error { return mark(err, abi.FailTerminal, 0) }

// RetryAfter asks for the next try after d instead of the policy's own backoff.
// It counts as an attempt.
func RetryAfter(err error, d time.Duration) error { return mark(err, abi.FailRetryAfter, d) }

// RateLimited hands the run back for at least d without counting an attempt:
// someone else's limit is not the run's failure.
func RateLimited(err error, d time.Duration) error { return mark(err, abi.FailRateLimited, d) }

func mark(err error, kind abi.FailureKind, wait time.Duration) error {
	if err == nil {
		return nil
	}
	return &marked{err, kind, wait}
}

// Coded gives err a stable code for machines, as in X_CARD_DECLINED. Characters
// other than letters, digits and "_.-" become "_".
func Coded(code string, err error) error {
	if err == nil {
		return nil
	}
	return &coded{err, Code(tidyCode(code))}
}

// WithFix adds what whoever called the job may be told to do.
func WithFix(err error, fix string) error {
	if err == nil {
		return nil
	}
	return &fixed{err, fix}
}

func tidyCode(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < 0x80 && wire.ValidCode(string(r)) {
			return r
		}
		return '_'
	}, s)
	if s == "" {
		return "X"
	}
	return s[:min(len(s), 64)]
}

// Code is a failure's code as a target for errors.Is, which finds it in what
// Coded made and in the errors of steps, children and host calls alike:
//
//	if errors.Is(err, guest.Code("X_CARD_DECLINED")) { … }
type Code string

func (c Code) Error() string { return string(c) }

// CodeOf is the outermost code in err's chain, or "".
func CodeOf(err error) string {
	var c interface{ failureCode() Code }
	if errors.As(err, &c) {
		return string(c.failureCode())
	}
	return ""
}

type marked struct {
	error
	kind abi.FailureKind
	wait time.Duration
}

func (e *marked) Unwrap() error { return e.error }
func (e *marked) failureKind() (abi.FailureKind, time.Duration) {
	return e.kind, e.wait
}

type coded struct {
	error
	code Code
}

func (e *coded) Unwrap() error        { return e.error }
func (e *coded) failureCode() Code    { return e.code }
func (e *coded) Is(target error) bool { return target == e.code }

type fixed struct {
	error
	fix string
}

func (e *fixed) Unwrap() error      { return e.error }
func (e *fixed) failureFix() string { return e.fix }

// StepError is how a step failed for good. It is made of what was recorded, not
// of the error that the body returned, so that it is the same in every attempt:
// errors.Is and errors.As find its code, not the body's error. Returned from a
// handler it fails the run for good, since a retry would only replay it.
type StepError struct {
	Step    string
	Code    Code // may be empty
	Message string
	Fix     string // may be empty
}

func (e *StepError) Error() string { return "step " + strconv.Quote(e.Step) + ": " + e.Message }

// Is finds the step's Code.
func (e *StepError) Is(target error) bool { return e.Code != "" && target == e.Code }
func (e *StepError) failureCode() Code    { return e.Code }
func (e *StepError) failureFix() string   { return e.Fix }
func (e *StepError) failureKind() (abi.FailureKind, time.Duration) {
	return abi.FailTerminal, 0
}

// answer is a negative answer of the host as a target for errors.Is.
type answer abi.Code

// What a host may refuse. Every error of a Ctx method answers errors.Is for one
// of them.
const (
	// ErrDenied: the manifest does not grant it.
	ErrDenied = answer(abi.CodeDenied)
	// ErrLimit: it is too large, too long or too many.
	ErrLimit = answer(abi.CodeLimit)
	// ErrTimeout: the wait ended without its event, or the request without its answer.
	ErrTimeout = answer(abi.CodeTimeout)
	// ErrFailed: it was tried and failed; CodeOf says how.
	ErrFailed = answer(abi.CodeFailed)
	// ErrInsideStepOnly: it must be called in a step's body.
	ErrInsideStepOnly = answer(abi.CodeInsideStepOnly)
	// ErrOutsideStepOnly: it must not be called in a step's body.
	ErrOutsideStepOnly = answer(abi.CodeOutsideStepOnly)
	// ErrUnsupported: this host does not have the function.
	ErrUnsupported = answer(abi.CodeUnsupported)
	// ErrInvalid: the request makes no sense, such as a job that does not exist.
	ErrInvalid = answer(abi.CodeInvalid)
	// ErrUnwinding: the run is being undone. It is the panic that ends a handler
	// where its records end; no method returns it.
	ErrUnwinding = answer(abi.CodeUnwinding)
)

func (a answer) Error() string {
	switch a {
	case ErrDenied:
		return "denied: the manifest does not grant it"
	case ErrLimit:
		return "over a limit"
	case ErrTimeout:
		return "timed out"
	case ErrFailed:
		return "failed"
	case ErrInsideStepOnly:
		return "only possible inside a step"
	case ErrOutsideStepOnly:
		return "only possible outside steps"
	case ErrUnsupported:
		return "not supported by this host"
	case ErrInvalid:
		return "invalid request"
	case ErrUnwinding:
		return "the run is being undone"
	}
	return "refused with code " + strconv.Itoa(int(a))
}

// HostError is a refusal of the host, with what it said about it.
type HostError struct {
	Func    string // the function of the ABI, as in http_fetch
	Answer  abi.Code
	Code    Code   // may be empty
	Message string // may be empty
	Fix     string // may be empty
}

func (e *HostError) Error() string {
	s := e.Func + ": " + answer(e.Answer).Error()
	if e.Message != "" {
		s += ": " + e.Message
	}
	return s
}

// Is finds the Err values of this package and the host's Code.
func (e *HostError) Is(target error) bool {
	return target == answer(e.Answer) || e.Code != "" && target == e.Code || target == ErrTimeout && e.Code == childTimeout
}

func (e *HostError) failureCode() Code  { return e.Code }
func (e *HostError) failureFix() string { return e.Fix }

// failureKind is terminal where the next attempt would get the same answer:
// from the manifest, the handler's code, or a record.
func (e *HostError) failureKind() (abi.FailureKind, time.Duration) {
	if e.Func == abi.FuncHTTPFetch && (e.Answer == abi.CodeTimeout || e.Answer == abi.CodeFailed) {
		return abi.FailRetry, 0
	}
	return abi.FailTerminal, 0
}

// panicked is a panic of a handler or a step's body.
type panicked struct {
	message string
	stack   string
}

func (e *panicked) Error() string { return "panic: " + e.message }

// failureOf is err as the host gets it.
func failureOf(err error) abi.Failure {
	f := abi.Failure{Message: err.Error(), Code: CodeOf(err)}
	var k interface {
		failureKind() (abi.FailureKind, time.Duration)
	}
	if errors.As(err, &k) {
		f.Kind, f.RetryAfter = k.failureKind()
	}
	var x interface{ failureFix() string }
	if errors.As(err, &x) {
		f.Fix = x.failureFix()
	}
	var p *panicked
	if errors.As(err, &p) {
		f.Stack = p.stack
	}
	return wire.ClipFailure(f)
}
