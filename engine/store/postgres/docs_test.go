package postgres

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
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

// What the page of events shows in SQL does what it says.
func TestEventsOfThePageArePublished(t *testing.T) {
	text, err := os.ReadFile("../../../docs/events.md")
	if err != nil {
		t.Fatal(err)
	}
	p := newPublished(t)
	// The page says runner, which is another schema here.
	run := func(sql string) {
		p.exec(p.app, strings.ReplaceAll(sql, "runner.", "{schema}."), pgx.QueryExecModeSimpleProtocol)
	}
	run(`CREATE TEMP TABLE orders (id text, customer text, state text);
		INSERT INTO orders VALUES ('o-1', 'bob', ''), ('o-2', 'acme', ''), ('o-3', 'acme', '')`)
	run("SET search_path = " + pgx.Identifier{p.s.cfg.Schema}.Sanitize() + ", pg_temp")
	shown := regexp.MustCompile("(?s)<!-- tested -->\n```sql\n(.*?)```").FindAllStringSubmatch(string(text), -1)
	for _, m := range shown {
		run(m[1])
	}
	var got []string
	for _, e := range p.events() {
		got = append(got, e.Topic+" "+e.Key+" "+e.Tenant+" "+string(e.Payload))
	}
	want := []string{`paid o-3 acme {"order": "o-3"}`, `paid o-2 acme {"order": "o-2"}`, `approval o-1  {"approved": true, "by": "ann"}`}
	if !slices.Equal(got, want) {
		t.Errorf("published %q, want %q", got, want)
	}
}
