package sqltext

import (
	"strings"
	"testing"
)

func TestNamesOfSchemas(t *testing.T) {
	for name, ok := range map[string]bool{
		"runner": true, "side by side": true, "Ü 100%": true, strings.Repeat("x", 40): true, strings.Repeat("x", 41): false, "pg_temp": false,
		"a'b": false, `a"b`: false, `a\b`: false, "a\x00b": false, "a\xffb": false, "a{now}b": false, "a$$b": false,
	} {
		if problem := CheckSchema(name); (problem == "") != ok {
			t.Errorf("%q: %q", name, problem)
		}
	}
}
