package app

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/manifest"
)

func TestFindDatabasePrefersFlagOverEnvironmentOverManifest(t *testing.T) {
	m := &manifest.Manifest{Path: "/srv/app/jobs.toml", Runner: manifest.Runner{Database: "sqlite:data/m.db"}}
	cwd, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		p    DatabaseParams
		path string
	}{
		{"flag", DatabaseParams{Flag: "sqlite:/a.db", Env: "sqlite:/b.db", Manifest: m}, "/a.db"},
		{"environment", DatabaseParams{Env: "sqlite:///b.db", Manifest: m}, "/b.db"},
		{"manifest, relative to it", DatabaseParams{Manifest: m}, "/srv/app/data/m.db"},
		{"nothing", DatabaseParams{}, filepath.Join(cwd, "runner.db")},
		{"relative flag, to the working directory", DatabaseParams{Flag: "sqlite:x.db", Manifest: m}, filepath.Join(cwd, "x.db")},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := FindDatabase(c.p)
			if err != nil || got.Path != c.path {
				t.Errorf("got %q, %v; want %q", got.Path, err, c.path)
			}
		})
	}
}

func TestFindDatabaseRefusesWhatItCannotOpenWithoutShowingPasswords(t *testing.T) {
	for _, c := range []struct{ url, code string }{
		{"postgres:u:hunter2@db/x", CodeDatabaseURL},
		{"postgres://u:hunter2%zz@db/x", CodeDatabaseURL},
		{"postgres://u:hunter2@db/x?sslmode=hunter2", CodeDatabaseURL},
		{"postgres://u:hunter2@db/x?a=%zz", CodeDatabaseURL},
		{"postgres://u:hunter2@db/x?schema=pg_mine", CodeDatabaseURL},
		{"postgres://u:hunter2@db/x?schema=a&schema=b", CodeDatabaseURL},
		{"postgres://u:hunter2@db/x?pooling=session", CodeDatabaseURL},
		{"postgres://u:hunter2@db/x?pool_max_conns=0", CodeDatabaseURL},
		{"mysql://u:hunter2@db/x", CodeDatabaseURL},
		{"mysql://u:hunter2%zz@db/x", CodeDatabaseURL},
		{"u:hunter2@db", CodeDatabaseURL},
		{"host=db password=hunter2", CodeDatabaseURL},
		{"host=db password=hunter2 options='a:b'", CodeDatabaseURL},
		{"mysql://db/x?password=hunter2", CodeDatabaseURL},
		{"sqlite:x.db?password=hunter2", CodeDatabaseURL},
		{"runner.db", CodeDatabaseURL},
		{"sqlite:", CodeDatabaseURL},
		{"sqlite::memory:", CodeDatabaseURL},
		{"sqlite:x.db?mode=ro", CodeDatabaseURL},
		{"sqlite:dir/", CodeDatabaseURL},
	} {
		_, err := FindDatabase(DatabaseParams{Flag: c.url})
		if abi.CodeOf(err) != c.code {
			t.Errorf("%s: got %v, want %s", c.url, err, c.code)
		} else if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: the message shows the password: %v", c.url, err)
		}
	}
}
