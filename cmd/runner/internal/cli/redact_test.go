package cli

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
)

func TestRedactHidesValuesOfSecretKeysAndKeepsTheRest(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"password", `{"user":"ann","password":"hunter2"}`, `{"user":"ann","password":"[hidden]"}`},
		{"spelling", `{"API_KEY":1,"accessToken":[1,2],"X-Secret-Thing":{"a":1}}`, `{"API_KEY":"[hidden]","accessToken":"[hidden]","X-Secret-Thing":"[hidden]"}`},
		{"short words only whole", `{"className":"a","userPin":"1234","pinboard":true,"SSN":"x"}`, `{"className":"a","userPin":"[hidden]","pinboard":true,"SSN":"[hidden]"}`},
		{"pass as a word", `{"pass":"a","dbPass":"b","SMTP_PASS":"c","passenger":"d","bypass":1}`, `{"pass":"[hidden]","dbPass":"[hidden]","SMTP_PASS":"[hidden]","passenger":"d","bypass":1}`},
		{"nested in a list", `[{"token":"a"},{"b":null}]`, `[{"token":"[hidden]"},{"b":null}]`},
		{"order and numbers", `{"b": 1.50, "a": 12345678901234567890}`, `{"b":1.50,"a":12345678901234567890}`},
		{"scalar", `"x"`, `"x"`},
		{"not JSON", "\x00\x01", `"[2 bytes that are not JSON]"`},
		{"two values", `1 2`, `"[3 bytes that are not JSON]"`},
		{"empty", ``, ``},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := string(redact([]byte(c.in))); got != c.want {
				t.Errorf("redact(%s) = %s, want %s", c.in, got, c.want)
			}
		})
	}
}

// docs/commands.md names what is blanked.
func TestThePageNamesWhatIsBlanked(t *testing.T) {
	page := commandsPage(t)
	for list, names := range map[string][]string{"parts": secretParts, "words": slices.Collect(maps.Keys(secretWords))} {
		_, after, found := strings.Cut(page, "<!-- redacted: "+list+" -->\n> ")
		line, _, _ := strings.Cut(after, "\n")
		want := "`" + strings.Join(slices.Sorted(slices.Values(names)), "` `") + "`"
		if !found || line != want {
			t.Errorf("%s: the page says\n%s\nblanked is\n%s", list, line, want)
		}
	}
}

func TestRedactHidesWhatLiesDeeperThanEightLevels(t *testing.T) {
	shown := strings.Repeat(`{"a":`, 8) + `"here"` + strings.Repeat("}", 8)
	if got := string(redact([]byte(shown))); got != shown {
		t.Errorf("eight levels: got %s", got)
	}
	deeper := strings.Repeat(`{"a":`, 9) + `"here"` + strings.Repeat("}", 9)
	if got, want := string(redact([]byte(deeper))), strings.Repeat(`{"a":`, 8)+hidden+strings.Repeat("}", 8); got != want {
		t.Errorf("nine levels: got %s, want %s", got, want)
	}
}

func FuzzRedactIsJSONAndNeverLeaks(f *testing.F) {
	for _, s := range []string{`{"password":"needle"}`, `{"a":[{"token":{"b":"needle"}}]}`, `[[[[[[[[["needle"]]]]]]]]]`, `{`, `nul`, strings.Repeat("[", 2000)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		out := redact([]byte(s))
		if len(out) > 0 && !json.Valid(out) {
			t.Fatalf("redact(%q) = %q is not JSON", s, out)
		}
		wrapped := redact([]byte(`{"secret":` + s + `}`))
		if json.Valid([]byte(s)) && string(wrapped) != `{"secret":"[hidden]"}` && string(wrapped) != string(notJSON([]byte(`{"secret":`+s+`}`))) {
			t.Fatalf("a secret of %q shows as %q", s, wrapped)
		}
	})
}
