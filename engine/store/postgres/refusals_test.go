package postgres

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/abi/abitest"
	"github.com/jobrunner/runner/abi/wire"
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

// Of JSON that is nearly right, or nearly wrong, SQL says what Go says: with keys that
// are the same by another spelling, and texts that look like structure.
func TestSQLReadsJSONAsGoDoes(t *testing.T) {
	pieces := []string{
		"a", "A", `\u0061`, `\u0041`, "b", `\ud83d\ude00`, "\U0001f600", `\uD83D\uDE00`, `\ud83d`, `\ude00`, `\ud83d\ud83d`, `\u0000`, `\\`, `\"`, `\/`, "/", `\n`, `\u000a`, `\u005c`, `\u0022`, `\\u0061`,
		":", "{", "}", "[", "]", ",", " ", "é", `\u00e9`, "e\u0301", "\ufffd", `\ufffd`, `\t`, "\u00a0", "\u2028", "'", "--", "$", "%", "x1", `\ud800\u0061`,
	}
	r := rand.New(rand.NewPCG(1, 2))
	text := func() string {
		var b strings.Builder
		b.WriteByte('"')
		for range r.IntN(4) {
			b.WriteString(pieces[r.IntN(len(pieces))])
		}
		b.WriteByte('"')
		return b.String()
	}
	space := func() string { return []string{"", "", "", " ", "\n", "\t ", "\r"}[r.IntN(7)] }
	var value func(depth int) string
	value = func(depth int) string {
		kind := r.IntN(8)
		if depth == 0 {
			kind = r.IntN(4)
		}
		var b strings.Builder
		switch kind {
		case 0, 1:
			return text()
		case 2:
			return []string{"0", "-0", "1e9", "1E-2", "0.5", "123456789012345678901234567890", "1e400"}[r.IntN(7)]
		case 3:
			return []string{"true", "false", "null"}[r.IntN(3)]
		case 4, 5:
			b.WriteByte('[')
			for i := range r.IntN(4) {
				if i > 0 {
					b.WriteByte(',')
				}
				b.WriteString(space() + value(depth-1) + space())
			}
			return b.String() + "]"
		}
		b.WriteByte('{')
		for i := range r.IntN(5) {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString(space() + text() + space() + ":" + space() + value(depth-1) + space())
		}
		return b.String() + "}"
	}
	const all = 20_000
	texts := make([]string, all)
	for i := range texts {
		s := space() + value(r.IntN(5)) + space()
		if at := r.IntN(len(s)); i%4 == 0 { // one byte less, or one that was there once more
			if cut := s[:at] + s[at+1:]; utf8.ValidString(cut) {
				s = cut
			} else if twice := s[:at] + s[at:at+1] + s[at:]; utf8.ValidString(twice) {
				s = twice
			}
		}
		texts[i] = s
	}
	cfg := migrated(t, Config{})
	connected(t, cfg.URL, func(c *pgx.Conn) {
		rows, err := c.Query(t.Context(), cfg.dialect().fill(`SELECT coalesce(array_to_string({schema}.queue_json_refusal('X_INVALID', 'it', u.t, true), '; '), '')
			FROM unnest($1::text[]) WITH ORDINALITY u(t, n) ORDER BY n`), texts)
		if err != nil {
			t.Fatal(err)
		}
		says, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		taken := 0
		for i, s := range texts {
			want := wire.CheckJSON([]byte(s), abi.MaxInput)
			if (says[i] == "") != (want == nil) {
				t.Errorf("%s: SQL says %q, and Go %v", s, says[i], want)
			}
			if want == nil {
				taken++
			}
		}
		if taken < all/4 || taken > all*9/10 {
			t.Errorf("%d of %d were taken", taken, all)
		}
	})
}

// Functions refuse with the codes of the other doors, of which queue_refuse writes those
// that it is given.
func TestEveryRefusalOfAFunctionHasACode(t *testing.T) {
	d := openOwned(t)
	rows, err := d.pool.Query(t.Context(), `SELECT p.proname FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
		WHERE n.nspname = $1 AND p.prosrc ~* 'raise\s+exception' AND p.prosrc ~* 'raise\s+exception\s+(?!''X_[A-Z_]+: |''%: %'')'`, d.cfg.Schema)
	if err != nil {
		t.Fatal(err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(names) > 0 {
		t.Errorf("these refuse without a code: %v, %v", names, err)
	}
	for _, ahead := range []any{-1, 53, nil} {
		_, err := d.pool.Exec(t.Context(), d.cfg.dialect().fill(`SELECT {schema}.extend($1)`), ahead)
		var pg *pgconn.PgError
		if !errors.As(err, &pg) || pg.Code != stateRefusal || !strings.HasPrefix(pg.Message, "X_INVALID: ") || pg.Hint == "" {
			t.Errorf("extend by %v: %v", ahead, err)
		}
	}
}
