package manifest

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/abi/abitest"
	"github.com/jobrunner/runner/engine/job"
)

// A size that is read is a whole number of its units, and is written so that it is
// read again as itself.
func FuzzParseSize(f *testing.F) {
	for _, s := range []string{"", "1KiB", "64 MiB", "17179869183GiB", "17179869184GiB", "1MB", "-1KiB", "0x10KiB", "1e3KiB", "١KiB", "1 KiB ", "99999999999999999999KiB", "0KiB"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		n, err := ParseSize(s)
		if err != nil {
			if m := err.Error(); n != 0 || m == "" || len(m) > 512 || strings.ContainsAny(m, "\n\r\x1b\x00") {
				t.Fatalf("%q is read as %d, %q", s, n, m)
			}
			return
		}
		if again, err := ParseSize(FormatSize(n)); err != nil || again != n || n%1024 != 0 {
			t.Fatalf("%q is read as %d, and %q as %d, %v", s, n, FormatSize(n), again, err)
		}
	})
}

// A template that is accepted is kept as it was written, and renders a bounded text
// or is refused with a code, whatever the input is.
func FuzzParseTemplate(f *testing.F) {
	for _, s := range []string{"none", "{run.id}", "user:{id}", "{{}}", "{a.b}-{a.c}", "{", "}", "{}", "{a..b}", "{run.other}", "{a}{b}{c}{d}{e}{f}{g}{h}{i}{j}{k}{l}{m}{n}{o}{p}{q}", strings.Repeat("x", 600), "{ä.ß}"} {
		f.Add(s, `{"id":"1","a":{"b":"x","c":2}}`)
	}
	for _, s := range abitest.HostileTexts() {
		if len(s) < 1<<10 {
			f.Add(s, `{"a":"`+strings.Repeat("y", 500)+`"}`)
		}
	}
	f.Fuzz(func(t *testing.T, s, input string) {
		for _, kind := range []struct {
			parse func(string) (Template, error)
			most  int
		}{{ParseKey, job.MaxKey}, {ParseLimitKey, MaxLimitKey}, {ParseTenant, job.MaxTenant}} {
			tpl, err := kind.parse(s)
			if err != nil {
				if abi.CodeOf(err) != CodeTemplate || len(err.Error()) > 1<<10 || !utf8.ValidString(err.Error()) {
					t.Fatalf("%q is refused with %v", s, err)
				}
				continue
			}
			if tpl.String() != s {
				t.Fatalf("%q is kept as %q", s, tpl)
			}
			if got, err := tpl.Render([]byte(input), "01970000-0000-7000-8000-000000000001"); err == nil && len(got) > kind.most || err != nil && abi.CodeOf(err) == "" {
				t.Fatalf("%q of %q renders %q, %v", s, input, got, err)
			}
		}
	})
}

// A zone that is accepted is one by its name, and others are refused in a line.
func FuzzZone(f *testing.F) {
	for _, s := range []string{"", "UTC", "Europe/Berlin", "Etc/UTC", "Etc/GMT+1", "+01:00", "Local", "A/../../../etc/passwd", "A/\x00", "America/Argentina/Buenos_Aires", "Europe/Berlin/", "Europe//Berlin", "Europe/../Europe/Berlin", "Europe\\Berlin", "Europe/", "A/."} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		zone, err := loadZone(s)
		if err != nil {
			if m := err.Error(); zone != nil || len(m) > 512 || strings.ContainsAny(m, "\n\r\x1b\x00") {
				t.Fatalf("%q is %v, %q", s, zone, m)
			}
			return
		}
		if zone.String() != s || strings.Contains(s, "..") {
			t.Fatalf("%q is the zone %q", s, zone)
		}
		if at := time.Date(2030, 7, 1, 12, 0, 0, 0, time.UTC); !at.In(zone).Equal(at) {
			t.Fatalf("%q moves an instant", s)
		}
	})
}
