package postgres

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/abi/abitest"
	"github.com/jobrunner/runner/engine/internal/sqltext"
	"github.com/jobrunner/runner/engine/store"
)

// What SQL can say of an event it refuses exactly where Go does, with the same code.
func FuzzSQLRefusesTheEventsThatGoRefuses(f *testing.F) {
	for _, s := range abitest.HostileJSON() {
		if len(s) < 8<<10 {
			f.Add("t", "k", "", "", s, int64(time.Hour/time.Microsecond))
		}
	}
	for _, s := range abitest.HostileTexts() {
		if len(s) < 1<<10 {
			f.Add(s, s, s, s, `{"a":1}`, int64(1000))
		}
	}
	for _, s := range []string{
		`{"a":1,"a":2}`, `{"a":"{","a":1}`, `{"a":"\"","b":"}"}`, `[{"a":1},{"a":1}]`, `{"a":{"a":1},"b":{"a":1}}`, `{"\ud83d\ude00":1,"😀":2}`, `{"\u00e9":1,"é":2}`, `{"\/":1,"/":2}`, `{"\\u0061":1,"a":2}`,
		`{"\ud800":1,"\udfff":2}`, `{"\ud800\u0061":1,"\ufffda":2}`, `{"a" : 1 , "a" : 2}`, `{"a":[{"b":1,"c":{"b":1}},"b"]}`, `{"\b\f\n\r\t":1,"\u0008\u000c\u000a\u000d\u0009":2}`, `{"\u0000":1,"\u0000":2}`,
		`{"a":"x:","b":":"}`, "{\"a\"\t:1}", "{\"a\u00a0\":1}", "\u00a0{}", "\v1", "{\"a\":1}\f", `{"":1,"":2}`, `{"\u005c":1,"\\":2}`, `{"\u0022":1,"\"":2}`, "{\"a\x7f\":1}",
	} {
		f.Add("t", "", "", "", s, int64(7*24*time.Hour/time.Microsecond))
	}
	cfg := migrate(f, Config{})
	c, err := pgx.Connect(context.Background(), cfg.URL)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = c.Close(context.Background()) })
	call := cfg.dialect().fill("SELECT {schema}.publish($1, $2, key => $3, tenant => $4, keep => $5::bigint * interval '1 microsecond', published_by => $6)")
	f.Fuzz(func(t *testing.T, topic, key, tenant, by, payload string, keep int64) {
		for _, s := range []string{topic, key, tenant, by, payload} {
			if !utf8.ValidString(s) || strings.ContainsRune(s, 0) {
				t.Skip()
			}
		}
		if payload == "" || keep == 0 || keep > 1<<62/1000 || keep < -1<<62/1000 {
			t.Skip()
		}
		ctx := context.Background()
		_, want := store.PublishParams{Topic: topic, Key: key, Tenant: tenant, By: by, Payload: []byte(payload), Keep: time.Duration(keep) * time.Microsecond}.Event()
		tx, err := c.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		_, got := tx.Exec(ctx, call, topic, payload, key, tenant, keep, by)
		if err := tx.Rollback(ctx); err != nil {
			t.Fatal(err)
		}
		code := ""
		if got != nil {
			var pg *pgconn.PgError
			if !errors.As(got, &pg) {
				t.Fatal(got)
			}
			refused := sqltext.Refused(pg.Message, pg.Hint, pg)
			if refused == nil || refused.Fix == "" {
				t.Fatalf("%q, %q, %q, %q, %q, %d: %v", topic, key, tenant, by, payload, keep, got)
			}
			code = refused.Code
		}
		if code != abi.CodeOf(want) {
			t.Fatalf("%q, %q, %q, %q, %q, %d: SQL says %v, and Go %v", topic, key, tenant, by, payload, keep, got, want)
		}
	})
}
