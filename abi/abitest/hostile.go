package abitest

import (
	"math"
	"strings"
	"time"

	"github.com/jobrunner/runner/abi"
)

// HostileTexts are texts that somebody will send as a name, a key or a reason, by
// what is wrong with them. Every door of the system either refuses one with a code
// or keeps it byte for byte.
func HostileTexts() map[string]string {
	return map[string]string{
		"blank":              " ",
		"NUL":                "a\x00b",
		"invalid UTF-8":      "a\xff\xfeb",
		"overlong UTF-8":     "\xc0\xaf..",
		"half a surrogate":   "\xed\xa0\x80",
		"right to left":      "invoice\u202efdp.exe\u2066",
		"zero width":         "a\u200b\ufeff\u2060b",
		"line separators":    "a\u2028b\u2029c\u0085d",
		"line breaks":        "a\r\nFAKE LOG LINE level=ERROR\tb",
		"terminal escapes":   "\x1b[2J\x1b]0;owned\x07\u009b31m",
		"path":               "../../../etc/passwd",
		"file argument":      "@/etc/passwd",
		"flag":               "--help",
		"SQL":                "'; DROP TABLE runs; --",
		"more SQL":           "$1 \" \\ {schema} %(x)s E'\\x00' /* ",
		"LIKE":               "%_\\%",
		"format":             "%s%n%d%!x(MISSING)",
		"template":           "{tenant}{run.id}${HOME}`id`$(id)",
		"JSON":               `{"a":"\ud800"}`,
		"null":               "null",
		"a number":           "9223372036854775808",
		"prototype":          "__proto__",
		"not normalised":     "e\u0301\u212b",
		"last code point":    "\U0010ffff\ufffe",
		"255 bytes":          strings.Repeat("x", 255),
		"256 bytes":          strings.Repeat("x", 256),
		"256 bytes of runes": strings.Repeat("é", 128),
		"512 bytes":          strings.Repeat("y", 512),
		"513 bytes":          strings.Repeat("y", 513),
		"64 KiB":             strings.Repeat("z", 64<<10),
		"10 MB":              strings.Repeat("w", 10_000_000),
	}
}

// HostileJSON are inputs, outputs and payloads that somebody will send; not all of
// them are wrong.
func HostileJSON() map[string]string {
	nested := func(levels int) string { return strings.Repeat("[", levels) + strings.Repeat("]", levels) }
	sized := func(n int) string { return `"` + strings.Repeat("x", n-2) + `"` }
	return map[string]string{
		"empty text":        `""`,
		"white space":       " \t\r\n",
		"not a number":      "NaN",
		"infinity":          "1e999",
		"minus nothing":     "-0",
		"big number":        "1e400",
		"exact number":      "12345678901234567890123456789.0000000000000000000000000001",
		"beyond 64 bits":    `{"id":9223372036854775808}`,
		"100,000 digits":    strings.Repeat("9", 100_000),
		"lone surrogate":    `"\ud800"`,
		"reversed pair":     `"\udc00\ud800"`,
		"surrogate pair":    `"\ud83d\ude00"`,
		"NUL escape":        `"a\u0000b"`,
		"NUL":               "\"a\x00b\"",
		"invalid UTF-8":     "\"a\xffb\"",
		"control character": "\"a\nb\"",
		"escapes":           `"\u001b[2J\u202e\u2028"`,
		"second key":        `{"org":"a","org":"b"}`,
		"second key hidden": `{"org":"a","\u006frg":"b"}`,
		"prototype":         `{"__proto__":{"admin":true},"constructor":1}`,
		"empty key":         `{"":0}`,
		"1,000 levels":      nested(abi.MaxJSONDepth),
		"1,001 levels":      nested(abi.MaxJSONDepth + 1),
		"100,000 levels":    nested(100_000),
		"100,000 openings":  strings.Repeat(`{"a":`, 100_000),
		"two values":        "1 2",
		"trailing comma":    "[1,]",
		"comment":           "1 // one",
		"single quotes":     "'a'",
		"byte order mark":   "\ufeff1",
		"cut off":           `{"a":`,
		"octal":             "0777",
		"SQL":               `"'; DROP TABLE runs; --"`,
		"1 MiB":             sized(abi.MaxInput),
		"1 MiB and a byte":  sized(abi.MaxInput + 1),
		"10 MB":             sized(10_000_000),
	}
}

// HostileNumbers are whole numbers for knobs of any width.
func HostileNumbers() []int64 {
	return []int64{
		0, 1, -1, 100, 101, -100, -101, 255, 1_000, 1_001, 10_000, 10_001, 1 << 30, math.MaxInt32, math.MaxInt32 + 1, math.MinInt32, math.MinInt32 - 1,
		1 << 53, math.MaxInt64, math.MinInt64,
	}
}

// HostileDurations are lengths of time, for delays, timeouts and retentions.
func HostileDurations() []time.Duration {
	return []time.Duration{
		0, 1, -1, time.Microsecond, time.Millisecond - 1, time.Millisecond, 1500 * time.Microsecond, time.Second, -time.Second,
		abi.MaxSleep, abi.MaxSleep + 1, abi.MaxSleep + time.Millisecond, math.MaxInt64, math.MinInt64,
	}
}

// HostileInstants are points in time.
func HostileInstants() []time.Time {
	at := func(year int) time.Time { return time.Date(year, 6, 1, 12, 30, 0, 0, time.UTC) }
	east, west := time.FixedZone("", 14*3600), time.FixedZone("", -12*3600)
	return []time.Time{
		at(-1), at(0), at(1).Add(time.Nanosecond), at(1900), time.Unix(-1, 0).UTC(), time.Unix(0, -1).UTC(), time.Unix(0, 0).UTC(), time.Unix(0, 1).UTC(), at(1970), at(2100),
		time.Date(2100, 1, 1, 0, 0, 0, 1_999_999, time.UTC),
		time.Date(1970, 1, 1, 0, 0, 0, 0, east), time.Date(1969, 12, 31, 23, 0, 0, 0, west),
		at(8999), time.Date(8999, 12, 31, 23, 59, 59, 999_999_999, time.UTC), time.Date(9000, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(9000, 1, 1, 0, 0, 0, 1, time.UTC),
		time.Date(8999, 12, 31, 13, 0, 0, 0, west), time.Date(9000, 1, 1, 13, 0, 0, 0, east), at(9000), at(9001), at(9999), at(10_000), at(99_999), at(292_277_026),
		time.Unix(1<<62, 0).UTC(), time.Unix(-1<<62, 0).UTC(),
	}
}
