package chaostest

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// plants are bugs that a round can be given to find: what is missing in them are
// the fences that keep a late writer out. Each replaces text of one file of the
// store's statements.
var plants = map[string]struct {
	file     string
	replaced []string // old, new, …
}{
	// Whoever writes last has it.
	"settle-fence": {"settle.sql", []string{"r.worker = u.worker AND r.claims = u.claim", "u.worker IS NOT NULL AND u.claim IS NOT NULL"}},
	"step-fence": {"steps.sql", []string{
		"r.worker = u.worker AND r.claims = u.claim", "u.worker IS NOT NULL AND u.claim IS NOT NULL",
		"r.worker = $1 AND r.claims = u.claim", "$1::text IS NOT NULL AND u.claim IS NOT NULL",
	}},
	// Any claim of the same worker will do.
	"settle-ordinal": {"settle.sql", []string{" AND r.claims = u.claim", ""}},
	"step-ordinal":   {"steps.sql", []string{" AND r.claims = u.claim", ""}},
}

const statements = "../../../../engine/store/postgres"

// withPlant is a statement file's text with a bug.
func withPlant(t *testing.T, plant string) (file, text string) {
	t.Helper()
	p, ok := plants[plant]
	if !ok {
		t.Fatalf("no bug is called %q; there are %q", plant, slices.Sorted(maps.Keys(plants)))
	}
	file, err := filepath.Abs(filepath.Join(statements, p.file))
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(p.replaced); i += 2 {
		if !strings.Contains(string(b), p.replaced[i]) {
			t.Fatalf("%s has no %q any more, so %s cannot be planted", p.file, p.replaced[i], plant)
		}
	}
	return file, strings.NewReplacer(p.replaced...).Replace(string(b))
}

// planted adds a statement file with a bug.
func planted(t *testing.T, dir, plant string, replaced map[string]string) {
	t.Helper()
	file, text := withPlant(t, plant)
	replaced[file] = filepath.Join(dir, filepath.Base(file))
	if err := os.WriteFile(replaced[file], []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestPlantsAreStillPlantable(t *testing.T) {
	for plant := range plants {
		withPlant(t, plant)
	}
}
