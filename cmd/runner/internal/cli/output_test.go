package cli

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
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
