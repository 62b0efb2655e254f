package wire

import (
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/jobrunner/runner/abi"
)

// Name is the argument b of fn as the name of a step, a sleep, a topic or a
// secret: 1 to abi.MaxName bytes of UTF-8 without control characters, which no
// listing could show and some databases cannot store. Any other is a Violation,
// since names are written in a handler's code.
func Name(fn string, b []byte) (string, error) {
	// What is cut off here is too long whatever it holds.
	s := string(b[:min(len(b), abi.MaxName+1)])
	if detail := badName(s); detail != "" {
		return "", &abi.Violation{
			Func: fn, Detail: "the name " + detail,
			Fix: "name it with 1 to " + strconv.Itoa(abi.MaxName) + " bytes of UTF-8 without control characters",
		}
	}
	return s, nil
}

// Key is the argument b of fn as the key of an event: as a name, but it may be
// empty. Keys are made from data, so any other is a Refusal with CodeInvalid.
func Key(fn string, b []byte) (string, error) {
	if len(b) == 0 {
		return "", nil
	}
	s := string(b[:min(len(b), abi.MaxName+1)])
	if detail := badName(s); detail != "" {
		return "", invalid("use a key of at most 255 bytes without control characters", "%s: the key %s", fn, detail)
	}
	return s, nil
}

// badName is what is wrong with a name, or "".
func badName(s string) string {
	switch {
	case s == "":
		return "is empty"
	case len(s) > abi.MaxName:
		return "is longer than " + strconv.Itoa(abi.MaxName) + " bytes"
	case !utf8.ValidString(s):
		return "is not UTF-8"
	case strings.ContainsFunc(s, control):
		return "has a control character"
	}
	return ""
}

// control reports the C0 and C1 controls and DEL.
func control(r rune) bool { return r < 0x20 || r >= 0x7f && r < 0xa0 }

// StepFlags are the flags argument of step_begin. A bit that this host does not
// know is a Violation: the guest counts on a promise that would not be kept.
func StepFlags(bits uint32) (abi.StepFlags, error) {
	if bits&^uint32(abi.StepOnce|abi.StepCompensated) != 0 {
		return 0, violation(abi.FuncStepBegin, "unknown flags %#x", bits)
	}
	return abi.StepFlags(bits), nil
}
