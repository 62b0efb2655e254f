package postgres

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/jobrunner/runner/engine/store"
	"github.com/jobrunner/runner/engine/store/postgres/pgtest"
)

// What a role or a database has been set to for other programs changes nothing:
// the schema can be made, and texts come back as they went in.
func TestSettingsOfTheDatabaseDoNotMatter(t *testing.T) {
	for _, setting := range []string{
		"client_encoding = 'LATIN1'", "standard_conforming_strings = off", "datestyle = 'SQL, DMY'", "timezone = 'Asia/Kathmandu'",
		"bytea_output = escape", "search_path = pg_temp, information_schema", "default_transaction_isolation = serializable",
	} {
		t.Run(setting, func(t *testing.T) {
			ctx := context.Background()
			cfg := Config{URL: pgtest.Database(t)}
			connected(t, cfg.URL, func(c *pgx.Conn) {
				if _, err := c.Exec(ctx, "ALTER DATABASE "+pgx.Identifier{c.Config().Database}.Sanitize()+" SET "+setting); err != nil {
					t.Fatal(err)
				}
			})
			m, err := OpenMigrator(cfg)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := m.Migrate(ctx); err != nil {
				t.Fatal(err)
			}
			urls := []string{cfg.URL}
			if strings.HasPrefix(setting, "client") || strings.HasPrefix(setting, "standard") { // what the pooler keeps for each client
				urls = append(urls, pgtest.Bouncer(t, cfg.URL))
			}
			for i, url := range urls {
				s := open(t, Config{URL: url})
				const key, input = `é☃\'";\n`, `{"é":"☃\\u0041 '$1'"}`
				id := idAt(time.Now(), i+1)
				if _, err := s.Enqueue(ctx, []store.EnqueueParams{{ID: id, Job: "j", Queue: "q", Tenant: string(rune('a' + i)), Key: key, Input: []byte(input), MaxAttempts: 1}}); err != nil {
					t.Fatal(err)
				}
				run, err := s.Get(ctx, id)
				if err != nil || run.Key != key || string(run.Input) != input {
					t.Errorf("it came back as %q, %s: %v", run.Key, run.Input, err)
				}
			}
		})
	}
}
