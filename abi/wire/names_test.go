package wire

import (
	"errors"
	"strings"
	"testing"

	"github.com/jobrunner/runner/abi"
)

func TestNameTakesUpTo255BytesOfText(t *testing.T) {
	for _, s := range []string{"a", "charge card #2", "größe", strings.Repeat("x", 255), strings.Repeat("é", 127)} {
		if got, err := Name(abi.FuncSleep, []byte(s)); err != nil || got != s {
			t.Errorf("Name(%q) = %q, %v", s, got, err)
		}
	}
}

func TestBadNameIsAViolationThatSaysWhy(t *testing.T) {
	for s, want := range map[string]string{
		"":                        "is empty",
		strings.Repeat("x", 256):  "longer than 255 bytes",
		strings.Repeat("é", 128):  "longer than 255 bytes",
		strings.Repeat("é", 9999): "longer than 255 bytes",
		"a\xff":                   "not UTF-8",
		"a\x00b":                  "control character",
		"a\nb":                    "control character",
		"a\u009bb":                "control character",
		"a\x7f":                   "control character",
	} {
		_, err := Name(abi.FuncStepBegin, []byte(s))
		var v *abi.Violation
		if !errors.As(err, &v) || v.Func != abi.FuncStepBegin || !strings.Contains(v.Detail, want) || v.Fix == "" {
			t.Errorf("Name(%.20q) = %v, want a violation of step_begin with %q", s, err, want)
		}
	}
}

func TestUnknownStepFlagIsAViolation(t *testing.T) {
	for bits, want := range map[uint32]bool{0: true, 1: true, 2: true, 3: true, 4: false, 1 << 31: false} {
		f, err := StepFlags(bits)
		if ok := err == nil; ok != want || ok && uint32(f) != bits {
			t.Errorf("StepFlags(%d) = %d, %v", bits, f, err)
		}
	}
}
