package manifest

import (
	"math"
	"testing"
	"time"
)

func TestDurations(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"0s": 0, "250ms": 250 * time.Millisecond, "90s": 90 * time.Second, "1.5h": 90 * time.Minute, "1h30m": 90 * time.Minute,
		"1d": day, "1d12h": 36 * time.Hour, "0.5d": 12 * time.Hour, "2w": 14 * day, "1w1d": 8 * day, "10us": 10 * time.Microsecond,
		"106751d": 106751 * day, "9223372036854775807ns": math.MaxInt64,
	} {
		if got, err := ParseDuration(text); err != nil || got != want {
			t.Errorf("%s is %v, %v; want %v", text, got, err, want)
		}
	}
}

func TestDurationsThatDoNotFitAreRefused(t *testing.T) {
	for _, text := range []string{"106752d", "15251w", "9223372036854775808ns", "2562047h48m", "106751d24h", "99999999999999999999d", "1e400h"} {
		if got, err := ParseDuration(text); err == nil {
			t.Errorf("%s is %v", text, got)
		}
	}
}

func FuzzParseDuration(f *testing.F) {
	for _, s := range []string{"1d", "1.5h", "", "0", "-1s", "1w2d3h4m5s6ms", "NaN", "1e9s", ".s", "1.d", "106751d24h", "µs"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		d, err := ParseDuration(s)
		std, stdErr := time.ParseDuration(s)
		if err != nil {
			if stdErr == nil && s[0] != '-' && s[0] != '+' && s != "0" {
				t.Fatalf("%q is %v to Go and refused here: %v", s, std, err)
			}
			return
		}
		if d < 0 {
			t.Fatalf("%q is %v", s, d)
		}
		if stdErr == nil && std != d {
			t.Fatalf("%q is %v here and %v to Go", s, d, std)
		}
		again, err := ParseDuration(FormatDuration(d))
		if err != nil || again != d {
			t.Fatalf("%q is written %s, which reads as %v, %v", s, FormatDuration(d), again, err)
		}
	})
}

func TestSizes(t *testing.T) {
	for text, want := range map[string]uint64{"64KiB": 64 << 10, "64MiB": 64 << 20, "4GiB": 4 << 30, "0KiB": 0, "64 MiB": 64 << 20} {
		if got, err := ParseSize(text); err != nil || got != want {
			t.Errorf("%s is %d, %v; want %d", text, got, err, want)
		}
	}
	for size, want := range map[uint64]string{64 << 10: "64KiB", 1 << 20: "1MiB", 1 << 30: "1GiB", 1<<30 + 64<<10: "1048640KiB"} {
		if got := FormatSize(size); got != want {
			t.Errorf("%d is written %s, want %s", size, got, want)
		}
	}
}
