package abi

import (
	"errors"
	"fmt"
)

// Error is a problem with a stable code, in words for the person who must act:
// what was wrong (with names), and what to do. Every refusal of the runner that
// reaches a person is one.
type Error struct {
	Code    string // X_…
	Message string
	Fix     string // what to do; may be empty
	Err     error  // cause; may be nil
}

// Error is "CODE: message" and the fix on the same line.
func (e *Error) Error() string {
	s := e.Code + ": " + e.Message
	if e.Fix != "" {
		s += " (" + e.Fix + ")"
	}
	return s
}

// Unwrap is the cause.
func (e *Error) Unwrap() error { return e.Err }

// Is matches another *Error by code, so that errors.Is(err, &Error{Code: X})
// holds wherever err was wrapped.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code
}

// CodeOf is the code of the first *Error in err's chain, or "".
func CodeOf(err error) string {
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

// Refusal is an error of a Calls method that the guest gets as a negative
// answer and may handle. Failure, if its message is not empty, becomes the
// last result.
type Refusal struct {
	Code    Code
	Failure Failure
}

func (r *Refusal) Error() string {
	if r.Failure.Message != "" {
		return r.Failure.Message
	}
	return fmt.Sprintf("refused with code %d", r.Code)
}

// Violation is a guest breaking the contract. It ends the attempt, and no
// retry can mend it.
type Violation struct {
	Func   string // the host function that found it, or the export
	Detail string
	Fix    string // what the handler's author does; empty where an SDK is to blame
}

func (v *Violation) Error() string { return "guest breaks the ABI in " + v.Func + ": " + v.Detail }

// Codes that a host gives to the end of an attempt. Those marked T are
// terminal: FailTerminal.
const (
	CodeABIViolation  = "X_ABI_VIOLATION"   // T: *Violation
	CodeGuestTrap     = "X_GUEST_TRAP"      // unreachable, bad access, division by zero, …
	CodeGuestDeadlock = "X_GUEST_DEADLOCK"  // T: every goroutine of the guest is asleep
	CodeGuestStack    = "X_GUEST_STACK"     // T: stack overflow
	CodeGuestMemory   = "X_GUEST_MEMORY"    // T: trapped after its memory limit refused a growth
	CodeGuestExit     = "X_GUEST_EXIT"      // exit with a code other than 0
	CodeGuestNoOutput = "X_GUEST_NO_OUTPUT" // T: returned or exited 0 without calling output
	CodeHostFailure   = "X_HOST_FAILURE"    // the host itself failed; an operator should look
)
