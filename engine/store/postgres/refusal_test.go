package postgres

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
	"github.com/jobrunner/runner/engine/store/postgres/pgtest"
)

func wantCode(tb testing.TB, err error, code string) {
	tb.Helper()
	if got := abi.CodeOf(err); got != code {
		tb.Fatalf("error is %v (code %q), want %s", err, got, code)
	}
}

// wantRefused is wantCode for an error that says nothing was done, and what to do.
func wantRefused(tb testing.TB, err error, code, fix string) {
	tb.Helper()
	wantCode(tb, err, code)
	if errors.Is(err, store.ErrUnknown) {
		tb.Fatalf("%v calls its outcome unknown", err)
	}
	if !strings.Contains(err.Error(), fix) {
		tb.Fatalf("%v does not say %q", err, fix)
	}
}

// with returns a URL with parameters set.
func with(tb testing.TB, rawURL string, user string, params ...string) string {
	tb.Helper()
	u, err := url.Parse(rawURL)
	if err != nil {
		tb.Fatal(err)
	}
	if user != "" {
		u.User = url.User(user)
	}
	q := u.Query()
	for i := 0; i < len(params); i += 2 {
		q.Set(params[i], params[i+1])
	}
	u.RawQuery = q.Encode()
	return u.String()
}

func entry(n int) []store.EnqueueParams {
	return []store.EnqueueParams{{ID: idAt(time.Now(), n), Job: "j", Queue: "q", MaxAttempts: 1}}
}

func TestOpenRefusesWhatItCannotUse(t *testing.T) {
	ctx := context.Background()
	cfg := migrated(t, Config{})
	try := func(c Config) error {
		s, err := Open(ctx, c)
		if err == nil {
			s.Close()
		}
		return err
	}
	t.Run("no URL", func(t *testing.T) { wantRefused(t, try(Config{}), job.CodeInvalid, "postgres://") })
	t.Run("a URL that cannot be read keeps its password", func(t *testing.T) {
		err := try(Config{URL: "postgres://u:s3cret%zz@h/d"})
		wantRefused(t, err, job.CodeInvalid, "escaped")
		if strings.Contains(err.Error(), "s3cret") {
			t.Fatal(err)
		}
	})
	t.Run("a schema that cannot be", func(t *testing.T) {
		for _, name := range []string{"pg_x", "a'b", `a"b`, strings.Repeat("x", 41), "a\x00"} {
			wantRefused(t, try(Config{URL: cfg.URL, Schema: name}), job.CodeInvalid, "schema")
		}
	})
	t.Run("nobody answers, and the password stays out of it", func(t *testing.T) {
		err := try(Config{URL: "postgres://u:s3cret@127.0.0.1:1/d?sslmode=disable"})
		wantRefused(t, err, job.CodeDatabaseUnavailable, "server is up")
		if strings.Contains(err.Error(), "s3cret") {
			t.Fatal(err)
		}
	})
	t.Run("no such database", func(t *testing.T) {
		u, _ := url.Parse(cfg.URL)
		u.Path = "/nowhere"
		wantRefused(t, try(Config{URL: u.String()}), job.CodeDatabaseMissing, "create it")
	})
	t.Run("no schema", func(t *testing.T) {
		wantRefused(t, try(Config{URL: cfg.URL, Schema: "none"}), job.CodeDatabaseSchema, "runner migrate up")
	})
	t.Run("a database that is read-only", func(t *testing.T) {
		wantRefused(t, try(Config{URL: with(t, cfg.URL, "", "default_transaction_read_only", "on"), Schema: cfg.Schema}),
			job.CodeDatabaseReadOnly, "primary")
	})
	t.Run("a schema of another version", func(t *testing.T) {
		connected(t, cfg.URL, func(c *pgx.Conn) {
			set := func(version int) {
				if _, err := c.Exec(ctx, cfg.dialect().fill("UPDATE {schema}.schema_version SET version = $1 WHERE version = (SELECT max(version) FROM {schema}.schema_version)"), version); err != nil {
					t.Fatal(err)
				}
			}
			set(latest + 1)
			wantRefused(t, try(cfg), job.CodeDatabaseSchema, "upgrade this runner")
			m, err := OpenMigrator(cfg)
			if err != nil {
				t.Fatal(err)
			}
			_, err = m.Migrate(ctx)
			wantRefused(t, err, job.CodeDatabaseSchema, "upgrade this runner")
			set(0)
			wantRefused(t, try(cfg), job.CodeDatabaseSchema, "runner migrate up")
			set(latest)
		})
	})
}

func TestMigrate(t *testing.T) {
	ctx := context.Background()
	cfg := Config{URL: pgtest.Database(t), Schema: `side by side`}
	m, err := OpenMigrator(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if v, err := m.Version(ctx); v != 0 || err != nil {
		t.Fatalf("an empty database is version %d, %v", v, err)
	}
	// Two begin at the same time: each version is applied by one of them.
	type answer struct {
		applied []int
		err     error
	}
	answers := make(chan answer)
	for range 2 {
		go func() {
			applied, err := m.Migrate(ctx)
			answers <- answer{applied, err}
		}()
	}
	applied := 0
	for range 2 {
		a := <-answers
		if a.err != nil {
			t.Fatal(a.err)
		}
		applied += len(a.applied)
	}
	if v, err := m.Version(ctx); applied != latest || v != latest || err != nil {
		t.Fatalf("applied %d versions to version %d, %v", applied, v, err)
	}
	// Another schema beside it is another runner's.
	s := open(t, cfg)
	if _, err := s.Enqueue(ctx, entry(1)); err != nil {
		t.Fatal(err)
	}
	other, err := OpenMigrator(Config{URL: cfg.URL})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.Migrate(ctx); err != nil {
		t.Fatal(err)
	}
	s2 := open(t, Config{URL: cfg.URL})
	if st, err := s2.Stats(ctx); err != nil || len(st.Queues) != 0 {
		t.Fatalf("the other schema has %+v, %v", st.Queues, err)
	}
}

// A role may do what it is for, and nothing else.
func TestRolesHaveTheLeastPrivilege(t *testing.T) {
	ctx := context.Background()
	cfg := migrated(t, Config{})
	worker, enqueuer := fmt.Sprintf("Worker %d", schemas.Load()), fmt.Sprintf("enqueuer'%d", schemas.Load())
	connected(t, cfg.URL, func(c *pgx.Conn) {
		for name, role := range map[string]Role{worker: RoleWorker, enqueuer: RoleEnqueuer} {
			sql, err := Grants(cfg, role, name)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := c.Exec(ctx, "CREATE ROLE "+pgx.Identifier{name}.Sanitize()+" LOGIN; "+sql, pgx.QueryExecModeSimpleProtocol); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				connected(t, cfg.URL, func(c *pgx.Conn) {
					id := pgx.Identifier{name}.Sanitize()
					if _, err := c.Exec(ctx, "DROP OWNED BY "+id+"; DROP ROLE "+id, pgx.QueryExecModeSimpleProtocol); err != nil {
						t.Error(err)
					}
				})
			})
		}
	})
	if _, err := Grants(cfg, "owner", "x"); abi.CodeOf(err) != job.CodeInvalid {
		t.Fatal(err)
	}

	wcfg, ecfg := cfg, cfg
	wcfg.URL, ecfg.URL = with(t, cfg.URL, worker), with(t, cfg.URL, enqueuer)
	w, e := open(t, wcfg), open(t, ecfg)

	// The enqueuer: one, many, by COPY, by key, a duplicate, a large input.
	keyed := entry(1)
	keyed[0].Key, keyed[0].Input = "k", make([]byte, 5000)
	first, err := e.Enqueue(ctx, keyed)
	if err != nil {
		t.Fatal(err)
	}
	keyed[0].ID = idAt(time.Now(), 2)
	if again, err := e.Enqueue(ctx, keyed); err != nil || !again[0].Deduped || again[0].ID != first[0].ID {
		t.Fatalf("%+v, %v", again, err)
	}
	enqueueN(t, e, 2*copyMin, copyMin, noTenant)
	if id, err := e.FindLive(ctx, "j", "", "k"); err != nil || id != first[0].ID {
		t.Fatal(id, err)
	}
	_, err = e.Get(ctx, first[0].ID)
	wantRefused(t, err, job.CodeDatabaseDenied, "grant")
	connected(t, ecfg.URL, func(c *pgx.Conn) { // what would upset every claim
		for column, value := range map[string]string{
			"claims": "9223372036854775807", "attempt": "2147483647", "orphans": "9", "error": "'no JSON'", "progress": "'no JSON'",
			"module": "'m'", "started_at": "now()", "awaits": "1", "topic": "'t'", "at_gate": "'g'", "asked_priority": "-100",
		} {
			_, err := c.Exec(ctx, cfg.dialect().fill("INSERT INTO {schema}.waiting (id, job, queue, priority, max_attempts, "+column+
				") VALUES (gen_random_uuid(), 'j', 'q', 0, 1, "+value+")"))
			var pg *pgconn.PgError
			if !errors.As(err, &pg) || pg.Code != "42501" {
				t.Errorf("an enqueuer writes %s: %v", column, err)
			}
		}
		// What no claim would take, what none would be listed as, and what would go first.
		for _, values := range []string{"'hibernating', 0", "'', 0", "'running', 0", "'done', 0", "'blocked', 0", "'ready', -101", "'ready', 101", "'ready', -32768"} {
			_, err := c.Exec(ctx, cfg.dialect().fill("INSERT INTO {schema}.waiting (id, job, queue, max_attempts, state, priority) VALUES (gen_random_uuid(), 'j', 'q', 1, "+values+")"))
			var pg *pgconn.PgError
			if !errors.As(err, &pg) || pg.Code != checkViolation {
				t.Errorf("an enqueuer writes a run with %s: %v", values, err)
			}
		}
	})
	err = e.Register(ctx, store.RegisterParams{ID: "thief", Lease: time.Hour})
	wantRefused(t, err, job.CodeDatabaseDenied, "grant")
	_, err = e.Claim(ctx, store.ClaimParams{Worker: "thief", Queues: []store.QueueLimit{{Queue: "q", Limit: 1}}})
	wantRefused(t, err, job.CodeDatabaseDenied, "grant")

	// The worker: a run's life, and what looks after the tables.
	work(t, w, 2*copyMin, 100)
	if err := w.Register(ctx, store.RegisterParams{ID: "w", Lease: time.Hour}); err != nil {
		t.Fatal(err)
	}
	res, err := w.Claim(ctx, store.ClaimParams{Worker: "w", Queues: []store.QueueLimit{{Queue: "q", Limit: 1}}})
	if err != nil || len(res.Runs) != 1 {
		t.Fatal(res, err)
	}
	r := res.Runs[0]
	if _, err := w.SaveSteps(ctx, []store.StepParams{{Ref: refOf(r), Name: "s", Kind: job.KindStep, Status: job.StepCompleted, Enqueue: entry(3)}}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Renew(ctx, store.RenewParams{Worker: "w", Lease: time.Hour, Held: []job.Ref{refOf(r)}}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Settle(ctx, []store.SettleParams{{Ref: refOf(r), Outcome: job.DeadLettered, To: job.Dead, Retention: time.Nanosecond}}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Requeue(ctx, store.RequeueParams{ID: r.ID, FromStep: "s"}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Cancel(ctx, store.CancelParams{ID: r.ID}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Reclaim(ctx, store.ReclaimParams{}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Purge(ctx, 10); err != nil {
		t.Fatal(err)
	}
	if err := w.Deregister(ctx, "w"); err != nil {
		t.Fatal(err)
	}
	for _, f := range []func() error{
		func() error { _, err := w.Stats(ctx); return err },
		func() error { _, err := w.List(ctx, store.ListParams{}); return err },
		func() error { _, err := w.ListWorkers(ctx); return err },
		func() error { _, err := w.ListSteps(ctx, r.ID); return err },
		func() error { _, err := w.Attempts(ctx, r.ID); return err },
		func() error { return w.fold(ctx) },
	} {
		if err := f(); err != nil {
			t.Fatal(err)
		}
	}
	// The enqueuer publishes, by the store and by SQL, and does nothing else about events.
	if err := w.Register(ctx, store.RegisterParams{ID: "w", Lease: time.Minute}); err != nil {
		t.Fatal(err)
	}
	waiter := parkable(t, w, idAt(time.Now(), 900), store.WaitParams{Topic: "t", FromNow: true})
	if _, err := w.Settle(ctx, []store.SettleParams{waiter}); err != nil {
		t.Fatal(err)
	}
	told := store.EventParams{ID: idAt(time.Now(), 901), Topic: "t", Key: "k", Tenant: "acme", Payload: []byte("7"), Keep: time.Hour, By: "e"}
	pub, err := e.Publish(ctx, []store.EventParams{told})
	if err != nil || pub[0].Woken != 1 || pub[0].Seq == 0 || pub[0].Deduped {
		t.Fatalf("%+v, %v", res, err)
	}
	if again, err := e.Publish(ctx, []store.EventParams{told, told}); err != nil || !again[0].Deduped || again[1].Seq != pub[0].Seq || !again[1].At.Equal(pub[0].At) {
		t.Fatalf("%+v, %v", again, err)
	}
	_, err = e.Publish(ctx, []store.EventParams{{ID: idAt(time.Now(), 902), Topic: "t", Payload: []byte("{"), Keep: time.Hour}})
	wantCode(t, err, job.CodeInvalid)
	_, err = e.Publish(ctx, []store.EventParams{{ID: idAt(time.Now(), 903), Topic: "t", Payload: []byte("1"), Keep: time.Hour, Run: r.ID}})
	wantCode(t, err, job.CodeDatabaseDenied) // in no run's name
	events, err := w.ListEvents(ctx, store.ListEventsParams{})
	if err != nil || len(events) != 1 || events[0].By != "e" || events[0].Tenant != "acme" || events[0].Key != "k" || events[0].Run != "" {
		t.Fatalf("%+v, %v", events, err)
	}
	_, err = e.ListEvents(ctx, store.ListEventsParams{})
	wantCode(t, err, job.CodeDatabaseDenied)
	_, err = e.PurgeEvents(ctx, 1)
	wantCode(t, err, job.CodeDatabaseDenied)
	connected(t, ecfg.URL, func(c *pgx.Conn) {
		if _, err := c.Exec(ctx, cfg.dialect().fill("SELECT {schema}.publish('t', '8')")); err != nil {
			t.Fatal(err)
		}
		for _, sql := range []string{
			"SELECT * FROM {schema}.publishing", "INSERT INTO {schema}.events (id, topic, key, payload, published_by, published_at, expires_at) VALUES (gen_random_uuid(), 't', '', '', '', now(), now())",
			"SELECT {schema}.add_event(gen_random_uuid(), 't', '', '', '1', 'x', 1)", "SELECT {schema}.queue_event_refusal('t', '1', '', '', NULL, '')",
			"UPDATE {schema}.waiting SET topic = NULL", "UPDATE {schema}.steps SET output = '1'", "DELETE FROM {schema}.events",
		} {
			if _, err := c.Exec(ctx, cfg.dialect().fill(sql)); sqlState(err) != "42501" {
				t.Errorf("%s: %v", sql, err)
			}
		}
	})
	// Neither may change the schema.
	m, err := OpenMigrator(wcfg)
	if err != nil {
		t.Fatal(err)
	}
	connected(t, cfg.URL, func(c *pgx.Conn) {
		if _, err := c.Exec(ctx, cfg.dialect().fill("DELETE FROM {schema}.schema_version")); err != nil {
			t.Fatal(err)
		}
	})
	_, err = m.Migrate(ctx)
	wantCode(t, err, job.CodeDatabaseDenied)
}

func TestAStatementTimeoutIsSaidSo(t *testing.T) {
	ctx := context.Background()
	// One that no machine is too busy for, and one session to make it short in.
	s := open(t, migrated(t, Config{StatementTimeout: time.Hour, MaxConns: 1, NoListen: true}))
	var has string
	if err := s.pool.QueryRow(ctx, "SHOW statement_timeout").Scan(&has); err != nil || has != "1h" {
		t.Fatalf("statement_timeout is %s, %v", has, err)
	}
	// Someone locks the table for longer than that.
	connected(t, s.cfg.URL, func(c *pgx.Conn) {
		tx, err := c.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(ctx, s.cfg.dialect().fill("LOCK TABLE {schema}.waiting")); err != nil {
			t.Fatal(err)
		}
		if _, err := s.pool.Exec(ctx, "SET statement_timeout = '50ms'"); err != nil {
			t.Fatal(err)
		}
		_, err = s.Enqueue(ctx, entry(1))
		wantRefused(t, err, job.CodeDatabaseBusy, "statement_timeout")
		if err := tx.Rollback(ctx); err != nil {
			t.Fatal(err)
		}
	})
	s.pool.Reset() // a session of its own setting again
	if _, err := s.Enqueue(ctx, entry(1)); err != nil {
		t.Fatalf("the store did not recover: %v", err)
	}
}

func TestNoConnectionLeftIsSaidSo(t *testing.T) {
	ctx := context.Background()
	cfg := migrated(t, Config{})
	role := fmt.Sprintf("few%d", schemas.Load())
	connected(t, cfg.URL, func(c *pgx.Conn) {
		sql, err := Grants(cfg, RoleWorker, role)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Exec(ctx, "CREATE ROLE "+role+" LOGIN CONNECTION LIMIT 1; "+sql, pgx.QueryExecModeSimpleProtocol); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if _, err := c.Exec(ctx, "DROP OWNED BY "+role+"; DROP ROLE "+role, pgx.QueryExecModeSimpleProtocol); err != nil {
				t.Error(err)
			}
		}()
		cfg.URL = with(t, cfg.URL, role)
		s, err := Open(ctx, cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		// The only connection is taken, by a listing that takes its time.
		taken, err := s.pool.Acquire(ctx)
		for sqlState(err) == "53300" { // the server still counts the one that Open has closed
			taken, err = s.pool.Acquire(ctx)
		}
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.Enqueue(ctx, entry(1))
		taken.Release()
		wantRefused(t, err, job.CodeDatabaseUnavailable, "pool_max_conns")
		if _, err := s.Enqueue(ctx, entry(1)); err != nil {
			t.Fatal(err)
		}
	})
}

func TestAClosedStoreSaysSo(t *testing.T) {
	s, err := Open(context.Background(), migrated(t, Config{}))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	_, err = s.Enqueue(context.Background(), entry(1))
	wantRefused(t, err, job.CodeDatabaseUnavailable, "closed")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}
