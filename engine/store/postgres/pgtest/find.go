package pgtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sort"
)

// binaries is the folder of initdb and pg_ctl: of PATH, of Debian's packages
// (the newest), or of a package that it installs.
func binaries(ctx context.Context) (string, error) {
	dir, err := found(ctx, "postgresql", find)
	if err != nil {
		return "", fmt.Errorf("pgtest: no Postgres server is installed: %w; install the package postgresql (14 or newer), or set RUNNER_TEST_DATABASE_URL to a server that may be used for tests", err)
	}
	if dir == "" {
		return "", errors.New("pgtest: the package postgresql is installed, but has no initdb in /usr/lib/postgresql/*/bin")
	}
	return dir, nil
}

// Installed reports whether there is a server to start, without installing one.
func Installed() bool { return find() != "" }

func find() string {
	if p, err := exec.LookPath("initdb"); err == nil {
		if p, err = filepath.EvalSymlinks(p); err == nil {
			return filepath.Dir(p)
		}
	}
	var all []string
	for _, pattern := range []string{"/usr/lib/postgresql/*/bin/initdb", "/usr/pgsql-*/bin/initdb", "/opt/homebrew/opt/postgresql@*/bin/initdb"} {
		hits, _ := filepath.Glob(pattern) // the patterns are well formed
		all = append(all, hits...)
	}
	if len(all) == 0 {
		return ""
	}
	sort.Strings(all)
	return filepath.Dir(all[len(all)-1])
}

// found is what find finds, once it is installed if need be, without letting a
// package of Debian's start a server.
//
// Tests of several packages run at once, and apt-get does not wait for itself: one
// process installs, the others find what it has installed. They look no earlier
// than that: of a package that is being unpacked some files are there, and the user
// whom it brings is not.
func found(ctx context.Context, name string, find func() string) (string, error) {
	apt, why := installer()
	if why != nil {
		if at := find(); at != "" {
			return at, nil
		}
		return "", why
	}
	unlock, err := lock(filepath.Join(os.TempDir(), "pgtest.lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	if at := find(); at != "" {
		return at, nil
	}
	for range 3 { // a mirror that does not answer is asked again
		if err = run(ctx, apt, "update", "-q"); err == nil {
			err = run(ctx, apt, "install", "-q", "-y", "--no-install-recommends", "-o", "DPkg::Lock::Timeout=300", name)
		}
		if err == nil || ctx.Err() != nil {
			break
		}
	}
	return find(), err
}

// installer is the program that installs packages, for whoever may use it.
func installer() (string, error) {
	if runtime.GOOS != "linux" || os.Geteuid() != 0 {
		return "", errors.New("only root on Debian can have it installed")
	}
	apt, err := exec.LookPath("apt-get")
	if err != nil {
		return "", errors.New("there is no apt-get")
	}
	return apt, nil
}

func run(ctx context.Context, apt string, args ...string) error {
	cmd := exec.CommandContext(ctx, apt, args...)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "RUNLEVEL=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("apt-get %s: %w: %s", args[0], err, out)
	}
	return nil
}
