package pgtest

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// Bouncer starts a PgBouncer in transaction mode before the shared server, and
// returns the URL of a database through it. The end of the test stops it.
// Settings are lines of pgbouncer.ini.
func Bouncer(tb testing.TB, database string, settings ...string) string {
	tb.Helper()
	return Shared(tb).Bouncer(tb, database, settings...)
}

// Bouncer starts one before this server.
func (s *Server) Bouncer(tb testing.TB, database string, settings ...string) string {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	through, err := startBouncer(ctx, tb, s, database, settings)
	if err != nil {
		tb.Fatal(err)
	}
	return through
}

func startBouncer(ctx context.Context, tb testing.TB, s *Server, database string, settings []string) (string, error) {
	bin, err := bouncer(ctx)
	if err != nil {
		return "", err
	}
	dir, err := folder()
	if err != nil {
		return "", err
	}
	cred, err := serverUser()
	if err != nil {
		return "", err
	}
	if cred != nil {
		if err := os.Chown(dir, int(cred.Uid), int(cred.Gid)); err != nil {
			return "", err
		}
	}
	cfg, err := pgx.ParseConfig(database)
	if err != nil {
		return "", err
	}
	port := strconv.Itoa(s.port)
	// auth_type=any logs everyone in as the user that the database's entry names.
	ini := "[databases]\n* = host=" + s.dir + " port=" + port + " user=" + cfg.User +
		"\n[pgbouncer]\nlisten_addr=\nlisten_port=" + port + "\nunix_socket_dir=" + dir +
		"\nauth_type=any\npool_mode=transaction\nlogfile=" + filepath.Join(dir, "log") + "\n"
	for _, line := range settings {
		ini += line + "\n"
	}
	file := filepath.Join(dir, "pgbouncer.ini")
	if err := os.WriteFile(file, []byte(ini), 0o644); err != nil {
		return "", err
	}
	if err := os.Chmod(file, 0o644); err != nil { // whatever the umask is
		return "", err
	}
	// A shell that holds a pipe from this process ends it, however this one ends.
	cmd := exec.Command("/bin/sh", "-c", `"$1" "$2/pgbouncer.ini" </dev/null & read -r _; kill -9 $!; wait; cd /; rm -rf "$2"`, "pgtest", bin, dir)
	cmd.Dir = "/"
	hold, err := cmd.StdinPipe()
	if err != nil {
		return "", err
	}
	detach(cmd)
	runAs(cmd, cred)
	if err := cmd.Start(); err != nil {
		return "", err
	}
	tb.Cleanup(func() {
		_ = hold.Close()
		_ = cmd.Wait()
		if err := os.RemoveAll(dir); err != nil {
			tb.Error(err)
		}
	})
	through := fmt.Sprintf("postgres://%s@/%s?host=%s&port=%s", cfg.User, cfg.Database, url.QueryEscape(dir), port)
	for {
		c, err := pgx.Connect(ctx, through)
		if err == nil {
			return through, c.Close(ctx)
		}
		select {
		case <-ctx.Done():
			log, _ := os.ReadFile(filepath.Join(dir, "log"))
			return "", fmt.Errorf("pgtest: pgbouncer does not answer: %w\n%s", err, log)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// bouncer is the path of pgbouncer, installed if need be.
func bouncer(ctx context.Context) (string, error) {
	find := func() string {
		for _, name := range []string{"pgbouncer", "/usr/sbin/pgbouncer"} {
			if p, err := exec.LookPath(name); err == nil {
				return p
			}
		}
		return ""
	}
	p, err := found(ctx, "pgbouncer", find)
	if err != nil {
		return "", fmt.Errorf("pgtest: PgBouncer is not installed: %w; install the package pgbouncer", err)
	}
	if p == "" {
		return "", errors.New("pgtest: the package pgbouncer is installed, but not its program")
	}
	return p, nil
}
