package cli_test

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/rogpeppe/go-internal/testscript"

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
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
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
