package sqltext

import (
	"slices"
	"testing"
)

func TestMigrationsAreReadInTheirOrder(t *testing.T) {
	got := Migrations(files(map[string]string{"migrations/002_b.sql": "B", "migrations/001_a.sql": "A", "other.sql": "C"}), "queue")
	if !slices.Equal(got, []string{"A", "B"}) {
		t.Errorf("read %q", got)
	}
}

func TestAProgramWithoutAMigrationDoesNotStart(t *testing.T) {
	for _, names := range [][]string{{"002_b"}, {"001_a", "003_c"}, {"001_a", "001_b"}, {"1_a"}, {"x"}, nil} {
		all := map[string]string{}
		for _, n := range names {
			all["migrations/"+n+".sql"] = ""
		}
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%q are taken for migrations", names)
				}
			}()
			Migrations(files(all), "queue")
		}()
	}
}
