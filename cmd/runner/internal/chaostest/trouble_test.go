package chaostest

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/cmd/runner/internal/app"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store/postgres/pgtest"
)

// The roles of the processes, with what docs/postgres.md grants and no more.
const (
	roleWorks = "works"
	roleAsks  = "asks"
)

func (c *chaos) installRoles(database string) {
	db, err := app.FindDatabase(app.DatabaseParams{Flag: database})
	if err != nil {
		c.Fatal(err)
	}
	grants, err := app.Grants(db, []string{roleWorks}, []string{roleAsks})
	if err != nil {
		c.Fatal(err)
	}
	c.query(func(conn *pgx.Conn) error {
		_, err := conn.Exec(c.ctx, "CREATE ROLE "+roleWorks+" LOGIN; CREATE ROLE "+roleAsks+" LOGIN;"+grants, pgx.QueryExecModeSimpleProtocol)
		return err
	})
}

// installClock gives the database a clock that can jump: the functions of its time
// are found in a schema that comes before the server's own.
func (c *chaos) installClock() {
	name := c.databaseName()
	c.query(func(conn *pgx.Conn) error {
		_, err := conn.Exec(c.ctx, `
			CREATE SCHEMA clock;
			CREATE TABLE clock.jumped (by interval NOT NULL);
			INSERT INTO clock.jumped VALUES ('0');
			CREATE FUNCTION clock.statement_timestamp() RETURNS timestamptz LANGUAGE sql STABLE AS
				$$ SELECT pg_catalog.statement_timestamp() + by FROM clock.jumped $$;
			GRANT USAGE ON SCHEMA clock TO PUBLIC;
			GRANT SELECT ON clock.jumped TO PUBLIC;
			ALTER DATABASE `+name+` SET search_path = clock, pg_catalog, public`, pgx.QueryExecModeSimpleProtocol)
		return err
	})
}

// as is a database's URL for a role.
func as(t *testing.T, database, role string) string {
	t.Helper()
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.User(role)
	return u.String()
}

// endSessions ends those of everybody else.
const endSessions = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname = current_database()"

// recorded are the tables into which a worker writes what became of its runs.
const recorded = "runner.steps, runner.attempts, runner.finished"

// trouble is what happens to the server, for as long as it lasts.
func (c *chaos) trouble(a action) {
	switch a.kind {
	case restart, reboot:
		mode := "immediate"
		if a.kind == reboot {
			mode = "fast"
		}
		if err := c.server.Down(c.ctx, mode); err != nil {
			c.failf("stop the server: %v", err)
		}
		time.Sleep(a.length)
		if err := c.server.Up(c.ctx); err != nil {
			c.failf("start the server: %v", err)
		}
	case evict:
		c.administer(a, []string{endSessions}, nil)
	case lock:
		c.administer(a, []string{"BEGIN; LOCK TABLE runner.running"}, []string{"ROLLBACK"})
	case deny:
		c.administer(a, []string{"REVOKE INSERT ON " + recorded + " FROM " + roleWorks}, []string{"GRANT INSERT ON " + recorded + " TO " + roleWorks})
	case lockout:
		c.administer(a, []string{"ALTER ROLE " + roleWorks + " NOLOGIN", endSessions}, []string{"ALTER ROLE " + roleWorks + " LOGIN"})
	case squeeze:
		c.administer(a, []string{"ALTER ROLE " + roleWorks + " CONNECTION LIMIT 5", endSessions}, []string{"ALTER ROLE " + roleWorks + " CONNECTION LIMIT -1"})
	case hurry:
		c.administer(a, []string{"ALTER ROLE " + roleWorks + " SET statement_timeout = '5ms'; ALTER ROLE " + roleWorks + " SET idle_in_transaction_session_timeout = '2ms'", endSessions},
			[]string{"ALTER ROLE " + roleWorks + " RESET ALL", endSessions})
		c.renew()
	case promote:
		c.promote()
	case full:
		c.fill(a)
	case jump:
		c.administer(a, []string{fmt.Sprintf("UPDATE clock.jumped SET by = by + interval '%d milliseconds'", a.by.Milliseconds())}, nil)
	case readonly:
		const set = "ALTER DATABASE %s %s default_transaction_read_only"
		name := c.databaseName()
		c.administer(a, []string{fmt.Sprintf(set, name, "SET") + " = on", endSessions}, []string{fmt.Sprintf(set, name, "RESET"), endSessions})
		c.renew()
	}
}

// renew ends the sessions that keep settings which are none any more. To the server
// a session that begins just then is not there yet; here its connection is, and what
// it begins with has not passed.
func (c *chaos) renew() {
	for _, p := range c.proxies {
		p.cut()
	}
}

// administer runs some texts, and others when the trouble is over. Each is a
// transaction, so that a session begins either before what follows it, or with
// what it changed.
func (c *chaos) administer(a action, begin, end []string) {
	conn, err := pgx.Connect(c.ctx, c.database)
	if err != nil {
		c.failf("%s: %v", a.kind, err)
		return
	}
	defer func() { _ = conn.Close(context.WithoutCancel(c.ctx)) }()
	exec := func(texts ...string) {
		for _, text := range texts {
			if _, err := conn.Exec(c.ctx, text, pgx.QueryExecModeSimpleProtocol); err != nil {
				c.failf("%s: %v", a.kind, err)
			}
		}
	}
	exec("SET default_transaction_read_only = off")
	exec(begin...)
	time.Sleep(a.length)
	exec(end...)
}

func (c *chaos) databaseName() string {
	cfg, err := pgx.ParseConfig(c.database)
	if err != nil {
		c.Fatal(err)
	}
	return pgx.Identifier{cfg.Database}.Sanitize()
}

// promote loses the server, and has its replica take its place.
func (c *chaos) promote() {
	standby := c.standby
	if standby == nil {
		c.failf("there is no second replica to promote")
		return
	}
	c.checkReplicaRefused(standby)
	if err := c.server.Down(c.ctx, "immediate"); err != nil {
		c.failf("stop the server: %v", err)
	}
	if err := standby.Promote(c.ctx); err != nil {
		c.failf("%v", err)
		return
	}
	database := c.on(standby)
	c.mu.Lock()
	c.server, c.standby, c.database = standby, nil, database
	c.mu.Unlock()
	direct := c.open(database, false)
	c.mu.Lock()
	c.direct = direct
	c.mu.Unlock()
	for _, p := range c.proxies {
		p.cut()
	}
}

// checkReplicaRefused: as long as it is a replica, no process begins on it.
func (c *chaos) checkReplicaRefused(standby *pgtest.Server) {
	db, err := app.FindDatabase(app.DatabaseParams{Flag: c.on(standby)})
	if err != nil {
		c.failf("%v", err)
		return
	}
	s, err := app.OpenStore(c.ctx, app.StoreParams{Database: db, Logger: slog.New(slog.DiscardHandler)})
	if abi.CodeOf(err) != job.CodeDatabaseReadOnly {
		c.failf("a replica is opened with %v", err)
	}
	if err == nil {
		_ = s.Close()
	}
}

// on is the URL of the database on another server.
func (c *chaos) on(s *pgtest.Server) string {
	u, err := url.Parse(s.URL())
	if err != nil {
		c.Fatal(err)
	}
	before, err := url.Parse(c.database)
	if err != nil {
		c.Fatal(err)
	}
	u.Path = before.Path
	return u.String()
}

// fill leaves the server without space for a while. Postgres may then end, and
// is started again as a supervisor does.
func (c *chaos) fill(a action) {
	free, err := c.server.Fill()
	if err != nil {
		c.failf("%v", err)
		return
	}
	time.Sleep(a.length)
	if err := free(); err != nil {
		c.failf("%v", err)
	}
	for range 100 {
		err := c.server.Exec(c.ctx, "SELECT 1")
		if err == nil {
			return
		}
		_ = c.server.Up(c.ctx) // it may be up, or on its way
		time.Sleep(100 * time.Millisecond)
	}
	c.failf("the server does not come back once there is space")
}
