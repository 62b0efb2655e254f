package cli

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/jobrunner/runner/abi/abitest"
	"github.com/jobrunner/runner/abi/wire"
)

func TestJSONDrivesNoTerminal(t *testing.T) {
	payload := json.RawMessage(`{"a":"\u001b[31m` + "\u009b31m \u202e\u2066 \x7f é 漢 😀" + `"}`)
	var b bytes.Buffer
	if err := printJSON(&b, map[string]any{"output": payload, "error": "\x1b]0;x\x07\u009b\u202e"}); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{b.String(), string(printableJSON(payload))} {
		if strings.ContainsAny(text, "\x1b\x07\x7f\u009b\u202e\u2066") {
			t.Errorf("%q", text)
		}
		if !strings.Contains(text, "é 漢 😀") {
			t.Errorf("%q escapes what is harmless", text)
		}
	}
	var was, is map[string]string
	if err := json.Unmarshal(payload, &was); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(printableJSON(payload), &is); err != nil || is["a"] != was["a"] {
		t.Errorf("reads %q, %v; want %q", is["a"], err, was["a"])
	}
}

// JSON that is made printable means the same, and drives no terminal.
func FuzzPrintableJSON(f *testing.F) {
	for _, s := range abitest.HostileJSON() {
		if len(s) < 1<<10 {
			f.Add([]byte(s))
		}
	}
	f.Add([]byte("\"\u009b\u202e\u0085\u2066\x7f\u200b\ufeff\u2028\""))
	f.Fuzz(func(t *testing.T, b []byte) {
		if wire.CheckJSON(b, 1<<20) != nil {
			t.Skip()
		}
		out := printableJSON(b)
		var was, is any
		if err := json.Unmarshal(b, &was); err != nil {
			t.Skip() // a number that Go does not have
		}
		if err := json.Unmarshal(out, &is); err != nil || !reflect.DeepEqual(was, is) {
			t.Fatalf("%q has become %q, %v", b, out, err)
		}
		if i := bytes.IndexFunc(out, func(r rune) bool { return r > ' ' && drivesATerminal(r) }); i >= 0 {
			t.Fatalf("%q prints %q", b, out[i:])
		}
	})
}
