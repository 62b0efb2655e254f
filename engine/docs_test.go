package engine_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// What docs/client.md shows is what the examples run.
func TestClientPageShowsTheExamples(t *testing.T) {
	page, err := os.ReadFile("../docs/client.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	flat := func(text string) string {
		var b strings.Builder
		for line := range strings.Lines(text) {
			b.WriteString(strings.TrimSpace(line) + "\n")
		}
		return b.String()
	}
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	if len(blocks) < 8 {
		t.Fatalf("%d blocks", len(blocks))
	}
	for _, b := range blocks {
		if !strings.Contains(flat(string(source)), flat(b[1])) {
			t.Errorf("no example holds\n%s", b[1])
		}
	}
}
