package postgres

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// The grants that the documentation shows are those that a test proves to suffice.
func TestDocumentedGrantsAreTheGrants(t *testing.T) {
	text, err := os.ReadFile("../../../docs/postgres.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := regexp.MustCompile("(?s)<!-- grants: (\\w+) (\\w+) -->\n```sql\n(.*?)```").FindAllStringSubmatch(string(text), -1)
	if len(shown) != 2 {
		t.Fatalf("%d blocks of grants", len(shown))
	}
	for _, m := range shown {
		want, err := Grants(Config{URL: "postgres://h/d"}, Role(m[1]), m[2])
		if err != nil {
			t.Fatal(err)
		}
		if strings.TrimSpace(m[3]) != strings.TrimSpace(want) {
			t.Errorf("the grants for a %s are\n%s\nnot\n%s", m[1], want, m[3])
		}
	}
}
