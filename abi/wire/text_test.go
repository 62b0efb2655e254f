package wire

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/jobrunner/runner/abi"
)

func TestLogLineKeepsTextAndDefusesTerminals(t *testing.T) {
	for in, want := range map[string]string{
		"plain ünïcode\n\ttwo": "plain ünïcode\n\ttwo",
		"\x1b[31mred\r":        "\ufffd[31mred\ufffd",
		"nul\x00 csi\u009b":    "nul\ufffd csi\ufffd",
		"bad \xff\xfe":         "bad \ufffd\ufffd",
	} {
		if got := LogLine([]byte(in)); got != want {
			t.Errorf("LogLine(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestTextsAreCutAtARune(t *testing.T) {
	if got := LogLine([]byte("x" + strings.Repeat("é", abi.MaxLogLine))); len(got) != abi.MaxLogLine-1 || !utf8.ValidString(got) {
		t.Errorf("%d bytes, valid %v", len(got), utf8.ValidString(got))
	}
	if got := LogLine([]byte(strings.Repeat("\xff", 2*abi.MaxLogLine))); len(got) > abi.MaxLogLine {
		t.Errorf("%d bytes of replacement characters", len(got))
	}
	if got := Note([]byte(strings.Repeat("a\n", abi.MaxProgressNote))); len(got) != abi.MaxProgressNote || strings.Contains(got, "\n") {
		t.Errorf("note %q", got)
	}
}

func TestLevelAndPermilleAreBroughtIntoRange(t *testing.T) {
	if Level(1) != abi.LevelInfo || Level(4) != abi.LevelError || Level(math.MaxUint32) != abi.LevelError {
		t.Error("level")
	}
	if Permille(-1) != 0 || Permille(500) != 500 || Permille(math.MaxInt32) != 1000 {
		t.Error("permille")
	}
}

func TestDurationTakesUpToTenYears(t *testing.T) {
	for ms, want := range map[int64]time.Duration{
		-1: 0, math.MinInt64: 0, 0: 0, 1500: 1500 * time.Millisecond, abi.MaxSleep.Milliseconds(): abi.MaxSleep,
	} {
		if got, err := Duration(ms); err != nil || got != want {
			t.Errorf("Duration(%d) = %v, %v", ms, got, err)
		}
	}
	for _, ms := range []int64{abi.MaxSleep.Milliseconds() + 1, math.MaxInt64} {
		if _, err := Duration(ms); refusalCode(err) != abi.CodeLimit {
			t.Errorf("Duration(%d): %v, want CodeLimit", ms, err)
		}
	}
}

func TestUntilTakesUpToTenYearsAhead(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	at := now.UnixMilli()
	for ms, want := range map[int64]time.Time{
		math.MinInt64: time.UnixMilli(0), at - 1: now.Add(-time.Millisecond), at: now, at + abi.MaxSleep.Milliseconds(): now.Add(abi.MaxSleep),
	} {
		if got, err := Until(ms, now); err != nil || !got.Equal(want) {
			t.Errorf("Until(%d) = %v, %v", ms, got, err)
		}
	}
	for _, ms := range []int64{at + abi.MaxSleep.Milliseconds() + 1, math.MaxInt64} {
		if _, err := Until(ms, now); refusalCode(err) != abi.CodeLimit {
			t.Errorf("Until(%d): %v, want CodeLimit", ms, err)
		}
	}
}

func TestMillisRoundsUp(t *testing.T) {
	for d, want := range map[time.Duration]int64{0: 0, 1: 1, time.Millisecond: 1, time.Millisecond + 1: 2, -1: 0, abi.MaxSleep: abi.MaxSleep.Milliseconds()} {
		if got := Millis(d); got != want {
			t.Errorf("Millis(%d) = %d, want %d", d, got, want)
		}
	}
}

func FuzzAppendString(f *testing.F) {
	for _, s := range []string{"", "plain", "q\"b\\s/\n\t\r\b\x00\x1f\x7f", "é😀\u2028", "\xff\xed\xa0\x80x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		b := appendString(nil, s)
		if err := CheckJSON(b, math.MaxInt); err != nil {
			t.Fatalf("appendString(%q) = %q: %v", s, b, err)
		}
		var got string
		if err := json.Unmarshal(b, &got); err != nil || got != strings.ToValidUTF8(replaceEach(s), "\ufffd") {
			t.Fatalf("appendString(%q) = %q reads as %q", s, b, got)
		}
		if c := clean(s); utf8.ValidString(c) && len(b) >= 2 {
			if n := len(appendString(nil, c)) - 2; n != jsonLen(c) {
				t.Fatalf("jsonLen(%q) = %d, appended %d", c, jsonLen(c), n)
			}
		} else {
			t.Fatalf("clean(%q) = %q", s, c)
		}
	})
}

// replaceEach replaces every byte that is not UTF-8 on its own, where
// strings.ToValidUTF8 replaces a row of them once.
func replaceEach(s string) string {
	var sb strings.Builder
	for _, r := range s {
		sb.WriteRune(r)
	}
	return sb.String()
}
