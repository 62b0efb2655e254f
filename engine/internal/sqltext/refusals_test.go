package sqltext

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"testing"
)

// What migrations are made of is as it was when they were applied.
func TestTheTextOfAppliedMigrationsStays(t *testing.T) {
	if sum := fmt.Sprintf("%x", sha256.Sum256([]byte(refusals1))); sum != "743cbc4acc057324749a25798ebd20e2aa2e564e8f5f1803a5ba8776003d1bb0" {
		t.Errorf("refusals_1.sql is another text, %s: what is to change goes to a new file and new migrations", sum)
	}
	text := Migration("BEGIN {refusals_1} END", "queue")
	if strings.Contains(text, "{of}") || strings.Contains(text, "refusals_1") || !strings.Contains(text, "CREATE FUNCTION {schema}.queue_refuse(") {
		t.Errorf("a migration has become %s", text)
	}
}

func TestARefusalOfAFunctionIsReadFromItsMessage(t *testing.T) {
	from := errors.New("from the server")
	e := Refused("X_JOB_KEY_INVALID: the key: has 600 bytes\nof 512", "say less", from)
	if e == nil || e.Code != "X_JOB_KEY_INVALID" || e.Message != "the key: has 600 bytes\nof 512" || e.Fix != "say less" || !errors.Is(e, from) {
		t.Errorf("%+v", e)
	}
	for _, message := range []string{"", "invalid input syntax for type json", "X_: a", "x X_INVALID: a", "X_INVALID"} {
		if e := Refused(message, "", from); e != nil {
			t.Errorf("%q is read as %v", message, e)
		}
	}
}
