package cli_test

import (
	"context"
	"errors"
	"log/slog"
	"net/url"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/jobrunner/runner/cmd/runner/internal/app"
	"github.com/jobrunner/runner/engine/store"
	"github.com/jobrunner/runner/engine/store/postgres"
	"github.com/jobrunner/runner/engine/store/postgres/pgtest"
)

type serverKey struct{}

// cmdPostgres gives a script a Postgres server of its own, which it may treat
// badly.
//
//	postgres start [NAME=VALUE…]   starts it with these settings; RUNNER_DATABASE_URL names a database of it
//	postgres down fast|immediate   stops it; immediate is a crash
//	postgres up                    starts it again
//	postgres exec SQL              as its superuser
//	postgres run FILE              the same in the script's database
//	postgres url ROLE VAR          sets VAR to the URL of the script's database for a role
func cmdPostgres(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: postgres start|down|up|exec|run|url …")
	}
	ctx := context.Background()
	held := ts.Value(serverKey{}).(**pgtest.Server)
	if args[0] != "start" && *held == nil {
		ts.Fatalf("no server was started")
	}
	switch {
	case args[0] == "start" && *held == nil:
		settings := map[string]string{}
		for _, s := range args[1:] {
			name, value, _ := strings.Cut(s, "=")
			settings[name] = value
		}
		s, err := pgtest.Start(ctx, pgtest.Options{Settings: settings})
		ts.Check(err)
		*held = s
		ts.Defer(func() { ts.Check(s.Stop()) })
		database, _, err := s.CreateDatabase(ctx)
		ts.Check(err)
		ts.Setenv("RUNNER_DATABASE_URL", database)
	case args[0] == "down" && len(args) == 2:
		ts.Check((*held).Down(ctx, args[1]))
	case args[0] == "up":
		ts.Check((*held).Up(ctx))
	case args[0] == "exec" && len(args) == 2:
		ts.Check((*held).Exec(ctx, args[1]))
	case args[0] == "run" && len(args) == 2:
		c, err := pgx.Connect(ctx, ts.Getenv("RUNNER_DATABASE_URL"))
		ts.Check(err)
		_, err = c.Exec(ctx, ts.ReadFile(args[1]), pgx.QueryExecModeSimpleProtocol)
		ts.Check(errors.Join(err, c.Close(ctx)))
	case args[0] == "url" && len(args) == 3:
		u, err := url.Parse(ts.Getenv("RUNNER_DATABASE_URL"))
		ts.Check(err)
		u.User = url.User(args[1])
		ts.Setenv(args[2], u.String())
	default:
		ts.Fatalf("usage: postgres start|down|up|exec|run|url …")
	}
}

// cmdLapse is: lapse NAME, which is what time does to a process that was killed:
// its lease is over, and what it held is anyone's. So leases can be long, and no
// process loses one because the machine is busy. A file has one server, which
// takes over what it finds.
func cmdLapse(ts *testscript.TestScript, neg bool, args []string) {
	p := named(ts, args, 1, "lapse NAME")
	<-p.done
	if ts.Getenv("RUNNER_DATABASE_URL") == "" {
		return
	}
	const lapse = "UPDATE runner.workers SET expires_at = now() - interval '1 second' WHERE pid = $1"
	if n := execute(ts, lapse, p.cmd.Process.Pid); n == 0 {
		ts.Fatalf("no lease of %s is there", args[0])
	}
}

// cmdLeft is: left NAME. A process that ended in order holds no lease and no run,
// unless the database took too long to hear its goodbye, which it says; then that is
// said here.
func cmdLeft(ts *testscript.TestScript, neg bool, args []string) {
	p := named(ts, args, 1, "left NAME")
	<-p.done
	ctx := context.Background()
	database := ts.Getenv("RUNNER_DATABASE_URL")
	if database == "" {
		database = "sqlite:" + ts.MkAbs("runner.db")
	}
	db, err := app.FindDatabase(app.DatabaseParams{Flag: database})
	ts.Check(err)
	s, err := app.OpenStore(ctx, app.StoreParams{Database: db, Logger: slog.New(slog.DiscardHandler)})
	ts.Check(err)
	defer s.Close()
	left, err := s.ListWorkers(ctx)
	ts.Check(err)
	for _, w := range left {
		if w.PID != p.cmd.Process.Pid {
			continue
		}
		if !strings.Contains(p.said(), "jobs.worker.deregister-failed") {
			ts.Fatalf("%s has left a lease behind; it printed:\n%s", args[0], p.said())
		}
		ts.Check(s.Deregister(ctx, w.ID))
	}
}

// cmdOvertake is: overtake, until no run is live. A process whose claim the server's
// crash cut off registers anew, and what it had claimed waits for its old lease to
// lapse: here that comes as soon as there is the new one, and what was held is taken
// back.
func cmdOvertake(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 0 {
		ts.Fatalf("usage: overtake")
	}
	ctx := context.Background()
	s, err := postgres.Open(ctx, postgres.Config{URL: ts.Getenv("RUNNER_DATABASE_URL")})
	ts.Check(err)
	defer s.Close()
	for {
		execute(ts, `UPDATE runner.workers w SET expires_at = now() - interval '1 second'
			WHERE EXISTS (SELECT FROM runner.workers n WHERE n.pid = w.pid AND n.started_at > w.started_at)`)
		_, err := s.Reclaim(ctx, store.ReclaimParams{MaxOrphans: 3})
		ts.Check(err)
		st, err := s.Stats(ctx)
		ts.Check(err)
		live := int64(0)
		for _, q := range st.Queues {
			live += q.Ready + q.Delayed + q.Running + q.Suspended
		}
		if live == 0 {
			return
		}
		time.Sleep(10 * pollEvery)
	}
}

// execute runs a statement in the script's database, and answers how many rows it
// changed.
func execute(ts *testscript.TestScript, sql string, args ...any) int64 {
	ctx := context.Background()
	c, err := pgx.Connect(ctx, ts.Getenv("RUNNER_DATABASE_URL"))
	ts.Check(err)
	defer c.Close(ctx)
	tag, err := c.Exec(ctx, sql, args...)
	ts.Check(err)
	return tag.RowsAffected()
}
