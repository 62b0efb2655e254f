package outbox

import (
	"context"
	"errors"
	"math"
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

// What SQL can say of a run it refuses where Go does, with the same code; but for an
// input with a key twice, which is the relay's to refuse.
func FuzzSQLRefusesTheRequestsThatGoRefuses(f *testing.F) {
	for _, s := range abitest.HostileJSON() {
		if len(s) < 8<<10 {
			f.Add("j", s, "", "", "", "", "", int64(0), int64(0), int32(0), int32(0))
		}
	}
	for _, s := range abitest.HostileTexts() {
		if len(s) < 1<<10 {
			f.Add(s, "1", s, s, s, s, s, int64(0), int64(0), int32(0), int32(1))
		}
	}
	for _, at := range abitest.HostileInstants() {
		if at.Year() > 0 && at.Year() < 100_000 {
			f.Add("j", "1", "", "", "", "", "dedupe", at.UnixMicro(), int64(0), int32(0), int32(0))
		}
	}
	for _, d := range abitest.HostileDurations() {
		f.Add("j", "1", "", "", "", "", "reject", int64(0), d.Microseconds(), int32(math.MinInt32), int32(math.MaxInt32))
	}
	cfg := installed(f)
	c, err := pgx.Connect(context.Background(), cfg.URL)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = c.Close(context.Background()) })
	call := dialect{schema: cfg.Schema}.fill(`SELECT {schema}.enqueue($1, $2, key => $3, tenant => $4, enqueued_by => $5, traceparent => $6, on_conflict => $7,
		run_at => $8, delay => $9::bigint * interval '1 microsecond', priority => $10, max_attempts => $11)`)
	f.Fuzz(func(t *testing.T, name, input, key, tenant, by, trace, conflict string, at, delay int64, priority, attempts int32) {
		for _, s := range []string{name, input, key, tenant, by, trace, conflict} {
			if !utf8.ValidString(s) || strings.ContainsRune(s, 0) {
				t.Skip()
			}
		}
		if delay > math.MaxInt64/1000 || delay < math.MinInt64/1000 || at > 8e18 || at < -6e16 || input == "" {
			t.Skip() // no value of the types
		}
		asked := int(priority)
		r := Request{
			Job: name, Input: []byte(input), Key: key, Tenant: tenant, EnqueuedBy: by, Traceparent: trace, OnConflict: store.OnConflict(conflict),
			Delay: time.Duration(delay) * time.Microsecond, Priority: &asked, MaxAttempts: int(attempts),
		}
		var runAt *time.Time
		if at != 0 {
			r.RunAt = time.UnixMicro(at).UTC()
			runAt = &r.RunAt
		}
		null := func(n int64) any {
			if n == 0 {
				return nil
			}
			return n
		}
		text := func(s string) any {
			if s == "" {
				return nil
			}
			return s
		}
		_, want := checkRequest(&r, r.Input)
		ctx := context.Background()
		tx, err := c.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		_, got := tx.Exec(ctx, call, name, input, key, tenant, by, trace, text(conflict), runAt, null(delay), priority, null(int64(attempts)))
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
				t.Fatalf("%+v: %v", r, got)
			}
			code = refused.Code
		}
		if code != abi.CodeOf(want) && !(want != nil && strings.Contains(want.Error(), "duplicate key")) {
			t.Fatalf("%+v: SQL says %v, and Go %v", r, got, want)
		}
	})
}

// Functions refuse with the codes of the other doors, of which outbox_refuse writes those
// that it is given.
func TestEveryRefusalOfAFunctionHasACode(t *testing.T) {
	cfg := installed(t)
	c, err := pgx.Connect(t.Context(), cfg.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.Background())
	rows, err := c.Query(t.Context(), `SELECT p.proname FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
		WHERE n.nspname = $1 AND p.prosrc ~* 'raise\s+exception' AND p.prosrc ~* 'raise\s+exception\s+(?!''X_[A-Z_]+: |''%: %'')'`, cfg.Schema)
	if err != nil {
		t.Fatal(err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(names) > 0 {
		t.Errorf("these refuse without a code: %v, %v", names, err)
	}
}
