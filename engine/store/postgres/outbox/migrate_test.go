package outbox

import (
	"context"
	"errors"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
	"github.com/jobrunner/runner/engine/store/postgres"
	"github.com/jobrunner/runner/engine/store/postgres/pgtest"
)

func TestMigrateInstallsOnceAndTwiceIsNothing(t *testing.T) {
	cfg := Config{URL: pgtest.Database(t)}
	m, err := OpenMigrator(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if v, err := m.Version(t.Context()); v != 0 || err != nil {
		t.Fatal(v, err)
	}
	_, err = Open(t.Context(), cfg)
	if abi.CodeOf(err) != job.CodeDatabaseSchema || !strings.Contains(err.Error(), "runner migrate outbox") {
		t.Errorf("without an outbox: %v", err)
	}
	// Migrations that begin at the same time wait for each other.
	var wg sync.WaitGroup
	var mu sync.Mutex
	var applied []int
	for range 4 {
		wg.Go(func() {
			versions, err := m.Migrate(context.Background())
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			applied = append(applied, versions...)
			mu.Unlock()
		})
	}
	wg.Wait()
	slices.Sort(applied)
	if len(applied) != m.Latest() || applied[0] != 1 {
		t.Errorf("applied %v", applied)
	}
	if v, err := m.Version(t.Context()); v != m.Latest() || err != nil {
		t.Error(v, err)
	}
	open(t, cfg)
}

func TestOutboxOfAnotherVersionIsRefused(t *testing.T) {
	cfg := installed(t)
	a := session(t, cfg)
	a.exec(`INSERT INTO {schema}.outbox_version (version) VALUES (99)`)
	if _, err := Open(t.Context(), cfg); abi.CodeOf(err) != job.CodeDatabaseSchema || !strings.Contains(err.Error(), "upgrade this runner") {
		t.Errorf("a newer one: %v", err)
	}
	m, err := OpenMigrator(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Migrate(t.Context()); abi.CodeOf(err) != job.CodeDatabaseSchema {
		t.Errorf("migrating a newer one: %v", err)
	}
	a.exec(`DELETE FROM {schema}.outbox_version`)
	if _, err := Open(t.Context(), cfg); abi.CodeOf(err) != job.CodeDatabaseSchema || !strings.Contains(err.Error(), "runner migrate outbox") {
		t.Errorf("an older one: %v", err)
	}
}

// An outbox stands beside the queue's tables in one schema, whichever came first.
func TestOutboxAndQueueShareASchema(t *testing.T) {
	for _, outboxFirst := range []bool{true, false} {
		url := pgtest.Database(t)
		queue, err := postgres.OpenMigrator(postgres.Config{URL: url})
		if err != nil {
			t.Fatal(err)
		}
		if outboxFirst {
			migrate(t, Config{URL: url})
		}
		if _, err := queue.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
		if !outboxFirst {
			migrate(t, Config{URL: url})
		}
		q, err := postgres.Open(t.Context(), postgres.Config{URL: url})
		if err != nil {
			t.Fatal(err)
		}
		defer q.Close()
		open(t, Config{URL: url})
	}
}

func TestReadOnlyDatabaseIsRefused(t *testing.T) {
	cfg := installed(t)
	u, err := url.Parse(cfg.URL)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	q.Set("default_transaction_read_only", "on")
	u.RawQuery = q.Encode()
	cfg.URL = u.String()
	if _, err := Open(t.Context(), cfg); abi.CodeOf(err) != job.CodeDatabaseReadOnly {
		t.Error(err)
	}
}

func TestConfigIsChecked(t *testing.T) {
	for _, cfg := range []Config{
		{},
		{URL: "postgres://u:secret@h:x/"},
		{URL: "postgres://h/d", MaxConns: -1},
		{URL: "postgres://h/d", ConnectTimeout: -1},
		{URL: "postgres://h/d", Schema: "pg_x"},
		{URL: "postgres://h/d", Schema: `a"b`},
		{URL: "postgres://h/d", Schema: "a'b"},
		{URL: "postgres://h/d", Schema: "{now}"},
		{URL: "postgres://h/d", Schema: strings.Repeat("x", 41)},
	} {
		_, err := Open(t.Context(), cfg)
		if abi.CodeOf(err) != job.CodeInvalid || strings.Contains(err.Error(), "secret") {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
	cfg := Config{URL: "postgres://u:secret@/nowhere?host=/nonexistent"}
	if _, err := Open(t.Context(), cfg); abi.CodeOf(err) != job.CodeDatabaseUnavailable || strings.Contains(err.Error(), "secret") {
		t.Errorf("no server: %v", err)
	}
}

// as is cfg for a role, which logs in without a password.
func as(t *testing.T, cfg Config, role string) Config {
	t.Helper()
	u, err := url.Parse(cfg.URL)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.User(role)
	cfg.URL = u.String()
	return cfg
}

// Least privilege: an enqueuer stages and sees nothing; a relay deals with rows
// and alters nothing of what they ask for; anyone else can do neither.
func TestGrantsAreTheLeast(t *testing.T) {
	cfg := installed(t)
	owner := session(t, cfg)
	for _, role := range []string{`en"queuer`, "relay-1", "stranger"} {
		owner.exec("CREATE ROLE " + pgx.Identifier{role}.Sanitize() + " LOGIN")
		defer func() {
			owner.exec("DROP OWNED BY " + pgx.Identifier{role}.Sanitize())
			owner.exec("DROP ROLE " + pgx.Identifier{role}.Sanitize())
		}()
	}
	m, err := OpenMigrator(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := m.Grant(t.Context(), GrantParams{Enqueuers: []string{`en"queuer`}, Relays: []string{"relay-1"}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.Grant(t.Context(), GrantParams{Relays: []string{"nobody-here"}}); abi.CodeOf(err) != job.CodeInvalid {
		t.Errorf("a role there is not: %v", err)
	}

	denied := func(a *app, statement string) {
		t.Helper()
		_, err := a.Exec(t.Context(), a.sql(statement))
		var pg *pgconn.PgError
		if !errors.As(err, &pg) || pg.Code != "42501" {
			t.Errorf("%s: %v, want permission denied", statement, err)
		}
	}
	const touch = `UPDATE {schema}.outbox SET state = 'staged'`
	stranger := session(t, as(t, cfg, "stranger"))
	denied(stranger, `SELECT {schema}.enqueue('j', '{}')`)
	denied(stranger, `SELECT FROM {schema}.outbox`)

	enqueuer := session(t, as(t, cfg, `en"queuer`))
	enqueuer.enqueue(`'j', '{"text":1}'`)
	enqueuer.enqueue(`'j', '{"json":1}'::json`)
	enqueuer.enqueue(`'j', '{"jsonb":1}'::jsonb`)
	denied(enqueuer, `SELECT FROM {schema}.outbox`)
	denied(enqueuer, `INSERT INTO {schema}.outbox (job) VALUES ('j')`)
	denied(enqueuer, touch)
	denied(enqueuer, `CREATE TABLE {schema}.mine ()`)

	// It runs as the owner, and is not to be led elsewhere by its caller.
	enqueuer.exec(`CREATE TEMP TABLE outbox (id uuid); SET search_path = pg_temp, public`)
	enqueuer.enqueue(`'j', '{"temp":1}'`)

	d := open(t, as(t, cfg, "relay-1"))
	rows := claim(t, d, "r1", 10)
	if len(rows) != 4 || rows[0].EnqueuedBy != `en"queuer` {
		t.Fatalf("the relay claims %v", rows)
	}
	settle(t, d, publish(rows[0]), reject(rows[1], "X"))
	if err := d.Release(t.Context(), []store.StagedRef{rows[2].Ref()}); err != nil {
		t.Error(err)
	}
	if _, err := d.RetryStaged(t.Context(), store.RetryStagedParams{All: true}); err != nil {
		t.Error(err)
	}
	if _, err := d.ListStaged(t.Context(), store.ListStagedParams{}); err != nil {
		t.Error(err)
	}
	if n, err := d.Purge(t.Context(), 0, 10); n != 1 || err != nil {
		t.Error(n, err)
	}
	if _, err := d.OutboxStats(t.Context()); err != nil {
		t.Error(err)
	}
	relay := session(t, as(t, cfg, "relay-1"))
	denied(relay, `SELECT {schema}.enqueue('j', '{}')`)
	denied(relay, `INSERT INTO {schema}.outbox (job) VALUES ('j')`)
	denied(relay, `UPDATE {schema}.outbox SET input = '1'`)
	denied(relay, `UPDATE {schema}.outbox SET tenant = 'other'`)
	denied(relay, `DROP TABLE {schema}.outbox`)
	_, err = Open(t.Context(), as(t, cfg, "stranger"))
	if abi.CodeOf(err) != job.CodeDatabaseDenied || !strings.Contains(err.Error(), "--relay") {
		t.Errorf("opened by a stranger: %v", err)
	}
}
