package postgres

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
	"github.com/jobrunner/runner/engine/store/postgres/pgtest"
)

// A password that is rotated in the server and in the file that it comes from
// needs no restart; until the file has it, new connections are refused, and say
// why without saying the password.
func TestARotatedPasswordIsReadAgain(t *testing.T) {
	ctx := context.Background()
	server, err := pgtest.Start(ctx, pgtest.Options{Rules: "local all rotating scram-sha-256"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	}()
	file := filepath.Join(t.TempDir(), "passfile")
	write := func(password string) {
		t.Helper()
		if err := os.WriteFile(file, []byte("*:*:*:rotating:"+password+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	admin := Config{URL: server.URL()}
	m, err := OpenMigrator(admin)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Migrate(ctx); err != nil {
		t.Fatal(err)
	}
	grants, err := Grants(admin, RoleWorker, "rotating")
	if err != nil {
		t.Fatal(err)
	}
	exec := func(sql string) {
		t.Helper()
		connected(t, admin.URL, func(c *pgx.Conn) {
			if _, err := c.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol); err != nil {
				t.Fatal(err)
			}
		})
	}
	const cut = "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE usename = 'rotating'"
	exec("CREATE ROLE rotating LOGIN PASSWORD 'first-secret';" + grants)
	write("first-secret")
	s := open(t, Config{URL: with(t, server.URL(), "rotating", "passfile", file)})
	stop := s.Wakes(func(string) {})
	defer stop()
	enqueue := func(n int) error {
		_, err := s.Enqueue(ctx, entry(n))
		return err
	}
	if err := enqueue(1); err != nil {
		t.Fatal(err)
	}
	exec("ALTER ROLE rotating PASSWORD 'second-secret'")
	if err := enqueue(2); err != nil {
		t.Fatalf("on a connection that was there before: %v", err)
	}
	// A connection that was being opened when the password changed is not yet
	// listed by its user, and a cut one is found cut by its next statement: none
	// is left once one has to be opened.
	n := 3
	for err = nil; sqlState(err) != "28P01"; n++ {
		exec(cut)
		err = enqueue(n)
	}
	wantRefused(t, err, job.CodeDatabaseUnavailable, "check user and password")
	if strings.Contains(err.Error(), "secret") {
		t.Error(err)
	}
	write("second-secret")
	if err := enqueue(n); err != nil {
		t.Fatalf("with the new password: %v", err)
	}
	// The connection that listens as well.
	for !s.Listening() {
		if err := pauseFor(t.Context(), listenMin/10); err != nil {
			t.Fatal(err)
		}
	}
}

// Without the right to notify everything works, and is found by polling.
func TestARoleThatMayNotNotify(t *testing.T) {
	ctx := context.Background()
	server, err := pgtest.Start(ctx, pgtest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	}()
	admin := Config{URL: server.URL()}
	m, err := OpenMigrator(admin)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Migrate(ctx); err != nil {
		t.Fatal(err)
	}
	grants, err := Grants(admin, RoleWorker, "quiet")
	if err != nil {
		t.Fatal(err)
	}
	connected(t, admin.URL, func(c *pgx.Conn) {
		if _, err := c.Exec(ctx, "CREATE ROLE quiet LOGIN; REVOKE EXECUTE ON FUNCTION pg_notify(text, text) FROM PUBLIC;"+grants, pgx.QueryExecModeSimpleProtocol); err != nil {
			t.Fatal(err)
		}
	})
	var log bytes.Buffer // written by Open alone
	s := open(t, Config{URL: with(t, server.URL(), "quiet"), Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if n := strings.Count(log.String(), "may not notify"); n != 1 || s.Listening() {
		t.Errorf("said so %d times, listening %v: %s", n, s.Listening(), log.String())
	}
	enqueueN(t, s, copyMin+1, copyMin, noTenant) // by COPY, and not
	work(t, s, copyMin+1, 10)
	connected(t, s.cfg.URL, func(c *pgx.Conn) {
		err := pgx.BeginFunc(ctx, c, func(tx pgx.Tx) error {
			_, err := s.EnqueueTx(ctx, tx, entry(1))
			return err
		})
		if err != nil {
			t.Error(err)
		}
	})
	if err := s.Register(ctx, store.RegisterParams{ID: "w", Lease: time.Hour}); err != nil {
		t.Fatal(err)
	}
	res, err := s.Claim(ctx, store.ClaimParams{Worker: "w", Queues: []store.QueueLimit{{Queue: "q", Limit: 1}}})
	if err != nil || len(res.Runs) != 1 {
		t.Fatal(res, err)
	}
	if out, err := s.Settle(ctx, []store.SettleParams{{Ref: refOf(res.Runs[0]), Outcome: job.Retried, To: job.Ready}}); err != nil || !out[0].Landed {
		t.Fatal(out, err)
	}
	if err := s.Deregister(ctx, "w"); err != nil {
		t.Fatal(err)
	}
}
