package outbox

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
	"github.com/jobrunner/runner/engine/store/postgres/pgtest"
)

// (B1) What is staged commits or vanishes with the caller's rows, though
// the id was answered.
func TestStagingIsTheCallersTransaction(t *testing.T) {
	cfg := installed(t)
	d, a := open(t, cfg), session(t, cfg)
	a.exec("CREATE TABLE {schema}.orders (n int)")

	tx, err := a.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), a.sql("INSERT INTO {schema}.orders VALUES (1)")); err != nil {
		t.Fatal(err)
	}
	id, err := a.schema.EnqueueTx(t.Context(), tx, Request{Job: "ship", Input: []byte(`{"n":1}`)})
	if err != nil || id == "" {
		t.Fatal(id, err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if rows := claim(t, d, "r1", 100); len(rows) != 0 {
		t.Fatalf("a relay finds %v after a rollback", rows)
	}

	a.tx(func(tx pgx.Tx) {
		if _, err := tx.Exec(t.Context(), a.sql("INSERT INTO {schema}.orders VALUES (2)")); err != nil {
			t.Fatal(err)
		}
		if id, err = a.schema.EnqueueTx(t.Context(), tx, Request{Job: "ship", Input: []byte(`{"n":2}`)}); err != nil {
			t.Fatal(err)
		}
		if rows := claim(t, d, "r1", 100); len(rows) != 0 {
			t.Fatalf("a relay finds %v before the commit", rows)
		}
	})
	rows := claim(t, d, "r1", 100)
	if len(rows) != 1 || rows[0].ID != id || string(rows[0].Input) != `{"n":2}` {
		t.Fatalf("a relay finds %v, want %s", rows, id)
	}
	if n := value[int](a, "SELECT count(*) FROM {schema}.orders"); n != 1 {
		t.Errorf("%d orders", n)
	}
}

// (B16) Whatever was said rides in the row, unchanged.
func TestIntentRidesInTheRow(t *testing.T) {
	cfg := installed(t)
	d, a := open(t, cfg), session(t, cfg)
	priority := -7
	at := time.Date(2033, 2, 3, 4, 5, 6, 7e6, time.UTC)
	const id, trace = "01890a5d-ac96-774b-bcce-b302099a8057", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	said := Request{
		ID: id, Job: "mail/send", Input: []byte(`{"a":1}`), Key: "k-1", Tenant: "acme", RunAt: at, Priority: &priority,
		MaxAttempts: 9, OnConflict: Reject, EnqueuedBy: "user:42", Traceparent: trace,
	}
	a.tx(func(tx pgx.Tx) {
		got, err := a.schema.EnqueueTx(t.Context(), tx, said)
		if err != nil || got != id {
			t.Fatal(got, err)
		}
	})
	a.enqueue(`'plain'`)
	a.enqueue(`job => 'later', delay => '90 seconds', enqueued_by => NULL, "on_conflict" => NULL, key => '', tenant => ''`)

	rows := claim(t, d, "r1", 100)
	if len(rows) != 3 {
		t.Fatalf("%d rows", len(rows))
	}
	if diff := cmp.Diff(said, rows[0].StageParams); diff != "" {
		t.Error(diff)
	}
	want := store.StageParams{ID: rows[1].ID, Job: "plain", Input: []byte("null"), OnConflict: Dedupe, EnqueuedBy: "postgres"}
	if diff := cmp.Diff(want, rows[1].StageParams); diff != "" {
		t.Error(diff)
	}
	want = store.StageParams{ID: rows[2].ID, Job: "later", Input: []byte("null"), OnConflict: Dedupe, EnqueuedBy: "postgres", Delay: 90 * time.Second}
	if diff := cmp.Diff(want, rows[2].StageParams); diff != "" {
		t.Error(diff)
	}
	if r := rows[0]; r.State != store.Waiting || r.Relay != "r1" || r.Claim != 1 || r.Age < 0 || r.Age > time.Minute || time.Since(r.StagedAt).Abs() > time.Minute {
		t.Errorf("claimed as %+v", r)
	}
}

// An input is kept as it was given, to the byte: with escapes of NUL, equal
// members and large numbers where its type has them.
func TestInputIsKeptToTheByte(t *testing.T) {
	cfg := installed(t)
	d, a := open(t, cfg), session(t, cfg)
	const awkward = `{ "nul":"a\u0000b", "n":12345678901234567890123, "é":"\ud83d\ude00" , "z":1.50}`
	quoted := "'" + awkward + "'"
	a.enqueue(`'j', ` + quoted)
	a.enqueue(`'j', ` + quoted + `::text`)
	a.enqueue(`'j', ` + quoted + `::varchar`)
	a.enqueue(`'j', ` + quoted + `::json`)
	a.tx(func(tx pgx.Tx) {
		if _, err := a.schema.EnqueueTx(t.Context(), tx, Request{Job: "j", Input: []byte(awkward)}); err != nil {
			t.Fatal(err)
		}
		// A parameter whose type the server infers.
		if _, err := tx.Exec(t.Context(), a.sql("SELECT {schema}.enqueue($1, $2)"), "j", awkward); err != nil {
			t.Fatal(err)
		}
	})
	a.enqueue(`'j', jsonb_build_object('b', 1, 'a', ARRAY[1, 2])`)
	a.enqueue(`'j', NULL::jsonb`)
	for i, r := range claim(t, d, "r1", 100) {
		want := awkward
		switch i {
		case 6:
			want = `{"a": [1, 2], "b": 1}`
		case 7:
			want = `null`
		}
		if string(r.Input) != want {
			t.Errorf("row %d: %s", i, r.Input)
		}
	}
}

// The application's database may have another encoding: an input is UTF-8 in the
// outbox, as it is in the queue.
func TestInputIsUTF8WhateverTheEncoding(t *testing.T) {
	server := pgtest.Shared(t)
	name := fmt.Sprintf("latin1_%d", time.Now().UnixNano())
	if err := server.Exec(t.Context(), "CREATE DATABASE "+name+" ENCODING 'LATIN1' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'"); err != nil {
		t.Fatal(err)
	}
	defer server.Exec(context.Background(), "DROP DATABASE "+name+" WITH (FORCE)")
	u, err := url.Parse(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	u.Path = "/" + name
	cfg := Config{URL: u.String()}
	migrate(t, cfg)
	cfg.Schema = DefaultSchema
	d, a := open(t, cfg), session(t, cfg)
	a.exec("SET client_encoding = 'UTF8'")
	a.enqueue(`'j', '{"é":"ü"}', tenant => 'Zoë'`)
	rows := claim(t, d, "r1", 1)
	if len(rows) != 1 || string(rows[0].Input) != `{"é":"ü"}` || rows[0].Tenant != "Zoë" {
		t.Errorf("%+v", rows)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}

// What is wrong whatever the jobs are is refused where it is said, with words.
func TestEnqueueRefusesMistakesOfItsCaller(t *testing.T) {
	cfg := installed(t)
	a := session(t, cfg)
	for _, c := range []struct{ args, says, fix string }{
		{`NULL`, "X_JOB_UNKNOWN: a job must be named", "jobs.toml declares"},
		{`''`, "X_JOB_UNKNOWN: a job must be named", "jobs.toml declares"},
		{`repeat('j', 256)`, "X_JOB_UNKNOWN: the name of the job has 256 bytes", "at most 255"},
		{`'j', '{"a":'`, "X_JOB_INPUT_INVALID: the input is refused: it is no JSON", "with each key once"},
		{`'j', ''`, "X_JOB_INPUT_INVALID: the input is refused: it is no JSON", "one JSON value"},
		{`'j', repeat('[', 1000000)`, "X_JOB_INPUT_INVALID: the input is refused: nested deeper than 1000", "one JSON value"},
		{`'j', to_json(repeat('x', 1048575))`, "X_JOB_INPUT_INVALID: the input has 1048577 bytes", "send less"},
		{`'j', key => repeat('é', 257)`, "X_JOB_KEY_INVALID: the idempotency key has 514 bytes", "at most 512"},
		{`'j', tenant => repeat('t', 256)`, "X_JOB_KEY_INVALID: the tenant has 256 bytes", "at most 255"},
		{`'j', run_at => now(), delay => '1s'`, "X_INVALID: a delay and an instant are given", "say one of them"},
		{`'j', run_at => 'infinity'`, "X_INVALID: a run cannot be due at that instant", "before 9000"},
		{`'j', run_at => '-infinity'`, "X_INVALID: a run cannot be due at that instant", "from 1970"},
		{`'j', delay => '-1s'`, "X_INVALID: a delay lies in the past", "leave it out"},
		{`'j', delay => '11 years'`, "X_INVALID: a delay is longer than ten years", "3650 days"},
		{`'j', delay => '10 years'`, "X_INVALID: a delay is longer than ten years", "3650 days"},
		{`'j', delay => '178000000 years'`, "X_INVALID: a delay is longer than ten years", "3650 days"},
		{`'j', delay => '-178000000 years'`, "X_INVALID: a delay lies in the past", "leave it out"},
		{`'j', priority => 101`, "X_INVALID: a priority of 101 is outside", "-100 to 100"},
		{`'j', max_attempts => 0`, "X_INVALID: 0 attempts cannot be made", "from 1 to"},
		{`'j', max_attempts => 10001`, "X_INVALID: 10001 attempts cannot be made", "from 1 to"},
		{`'j', on_conflict => 'error'`, "X_INVALID: on_conflict says nothing", "dedupe or reject"},
		{`'j', enqueued_by => repeat('x', 256)`, "X_INVALID: the text of enqueued_by has 256", "at most 255"},
		{`'j', traceparent => repeat('x', 256)`, "X_INVALID: the traceparent has 256", "55"},
	} {
		_, err := a.Exec(t.Context(), a.sql("SELECT {schema}.enqueue("+c.args+")"))
		var pg *pgconn.PgError
		if !errors.As(err, &pg) || !strings.HasPrefix(pg.Message, c.says) || pg.Hint == "" || !strings.Contains(pg.Hint, c.fix) || pg.Code != stateRefusal {
			t.Errorf("enqueue(%s): %v, want %q", c.args, err, c.says)
		}
	}
	if n := value[int](a, "SELECT count(*) FROM {schema}.outbox"); n != 0 {
		t.Errorf("%d rows were staged", n)
	}
}

// The bounds that the function knows by heart are those of the packages that own
// them.
func TestBoundsOfTheFunctionAreThoseOfTheEngine(t *testing.T) {
	text := "" // of the migration that made the functions as they are
	for _, m := range migrations {
		if strings.Contains(m, "FUNCTION {schema}.enqueue(") {
			text = m
		}
	}
	for _, bound := range []string{
		fmt.Sprintf("octet_length(job) > %d ", abi.MaxName),
		fmt.Sprintf("size > %d ", abi.MaxInput),
		fmt.Sprintf("max(depth) FROM nested) > %d ", abi.MaxJSONDepth),
		fmt.Sprintf("octet_length(key) > %d ", job.MaxKey),
		fmt.Sprintf("octet_length(tenant) > %d ", job.MaxTenant),
		fmt.Sprintf("delay_ms > %d ", abi.MaxSleep.Milliseconds()),
		fmt.Sprintf("priority NOT BETWEEN %d AND %d\n", job.MinPriority, job.MaxPriority),
		fmt.Sprintf("max_attempts NOT BETWEEN 1 AND %d\n", job.MostAttempts),
		fmt.Sprintf("octet_length(enqueued_by) > %d ", job.MaxTenant),
		fmt.Sprintf("octet_length(traceparent) > %d ", job.MaxTraceparent),
		fmt.Sprintf("octet_length(topic) NOT BETWEEN 1 AND %d ", abi.MaxName),
		fmt.Sprintf("NOT BETWEEN 0.001 AND %d ", int(store.MaxEventKeep.Seconds())),
	} {
		if !strings.Contains(text, bound) {
			t.Errorf("the function does not say %q", bound)
		}
	}
}

// (B15) A refusal that needs no database leaves the transaction usable.
func TestRefusalLeavesTheTransactionUsable(t *testing.T) {
	cfg := installed(t)
	d, a := open(t, cfg), session(t, cfg)
	low := -101
	ok := Request{Job: "j"}
	var id string
	a.tx(func(tx pgx.Tx) {
		for _, c := range []struct {
			code   string
			change func(r *Request)
		}{
			{job.CodeIDInvalid, func(r *Request) { r.ID = "01890A5D-AC96-774B-BCCE-B302099A8057" }},
			{job.CodeIDInvalid, func(r *Request) { r.ID = "{01890a5d-ac96-774b-bcce-b302099a8057}" }},
			{job.CodeIDInvalid, func(r *Request) { r.ID = "1" }},
			{job.CodeUnknownJob, func(r *Request) { r.Job = "" }},
			{job.CodeUnknownJob, func(r *Request) { r.Job = strings.Repeat("j", 256) }},
			{job.CodeKeyInvalid, func(r *Request) { r.Key = "a\x00b" }},
			{job.CodeKeyInvalid, func(r *Request) { r.Tenant = "\xff" }},
			{job.CodeInputInvalid, func(r *Request) { r.Input = []byte(`{"a":1,"a":2}`) }},
			{job.CodeInputInvalid, func(r *Request) { r.Input = []byte("{\"a\":\"\x00\"}") }},
			{job.CodeInputInvalid, func(r *Request) { r.Input = []byte(`"` + strings.Repeat("x", abi.MaxInput) + `"`) }},
			{job.CodeInvalid, func(r *Request) { r.Delay, r.RunAt = time.Second, time.Now() }},
			{job.CodeInvalid, func(r *Request) { r.Delay = -1 }},
			{job.CodeInvalid, func(r *Request) { r.RunAt = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC) }},
			{job.CodeInvalid, func(r *Request) { r.Priority = &low }},
			{job.CodeInvalid, func(r *Request) { r.MaxAttempts = -1 }},
			{job.CodeInvalid, func(r *Request) { r.OnConflict = "error" }},
		} {
			bad := ok
			c.change(&bad)
			if _, err := a.schema.EnqueueTx(t.Context(), tx, bad); abi.CodeOf(err) != c.code {
				t.Errorf("%+v: %v, want %s", bad, err, c.code)
			}
			_, err := a.schema.EnqueueManyTx(t.Context(), tx, []Request{ok, bad, ok})
			if abi.CodeOf(err) != c.code || !strings.Contains(err.Error(), "entry 1: ") {
				t.Errorf("a batch with %+v: %v", bad, err)
			}
		}
		var err error
		if id, err = a.schema.EnqueueTx(t.Context(), tx, ok); err != nil {
			t.Fatal(err)
		}
	})
	if got := idsOf(claim(t, d, "r1", 10)); len(got) != 1 || got[0] != id {
		t.Errorf("staged %v, want %s alone", got, id)
	}
}

// (B9, I9) Rows of one transaction keep their order, though they may share an
// instant, and their ids sort as they were staged.
func TestOrderIsThatOfStaging(t *testing.T) {
	cfg := installed(t)
	d, a := open(t, cfg), session(t, cfg)
	a.exec(`SELECT {schema}.enqueue('j', n::text) FROM generate_series(0, 299) n`)
	var requests []Request
	for n := range 300 {
		requests = append(requests, Request{Job: "j", Input: fmt.Append(nil, 300+n)})
	}
	var ids []string
	a.tx(func(tx pgx.Tx) {
		var err error
		if ids, err = a.schema.EnqueueManyTx(t.Context(), tx, requests); err != nil {
			t.Fatal(err)
		}
	})
	rows := claim(t, d, "r1", 1000)
	if len(rows) != 600 {
		t.Fatalf("%d rows", len(rows))
	}
	for n := range rows {
		if string(rows[n].Input) != fmt.Sprint(n) {
			t.Fatalf("place %d has %s", n, rows[n].Input)
		}
		if n > 0 && rows[n].ID <= rows[n-1].ID {
			t.Fatalf("id %s was staged after %s", rows[n].ID, rows[n-1].ID)
		}
		u, err := uuid.Parse(rows[n].ID)
		if err != nil || u.Version() != 7 || u.Variant() != uuid.RFC4122 {
			t.Fatalf("id %s is no UUID of version 7", rows[n].ID)
		}
		if sec, nsec := u.Time().UnixTime(); time.Since(time.Unix(sec, nsec)).Abs() > time.Minute {
			t.Fatalf("id %s is of another time", rows[n].ID)
		}
	}
	if diff := cmp.Diff(ids, idsOf(rows[300:])); diff != "" {
		t.Error(diff)
	}
}

// (I7) An id that is staged already stages nothing, in whatever state it is.
func TestAnIDIsStagedOnce(t *testing.T) {
	cfg := installed(t)
	d, a := open(t, cfg), session(t, cfg)
	const id = "01890a5d-ac96-774b-bcce-b302099a8057"
	again := func() {
		if got := a.enqueue(`'j', '2', id => '` + id + `'`); got != id {
			t.Fatalf("answered %s", got)
		}
	}
	a.enqueue(`'j', '1', id => '` + id + `'`)
	again()
	rows := claim(t, d, "r1", 10)
	if len(rows) != 1 || string(rows[0].Input) != "1" {
		t.Fatalf("staged %v", rows)
	}
	again()
	settle(t, d, publish(rows[0]))
	again()
	if rows := claim(t, d, "r1", 10); len(rows) != 0 {
		t.Errorf("staged again: %v", rows)
	}
}

// (M5) An empty batch stages nothing, and does not touch the transaction.
func TestEmptyBatchIsANoOp(t *testing.T) {
	ids, err := EnqueueManyTx(context.Background(), nil, nil)
	if err != nil || ids == nil || len(ids) != 0 {
		t.Errorf("%v %v", ids, err)
	}
	if _, err := EnqueueManyTx(context.Background(), nil, make([]Request, MaxStage+1)); abi.CodeOf(err) != job.CodeInvalid {
		t.Errorf("an oversized batch: %v", err)
	}
}

// Ten thousand entries are one statement.
func TestLargeBatchIsOneRoundTrip(t *testing.T) {
	cfg := installed(t)
	a := session(t, cfg)
	requests := make([]Request, MaxStage)
	for i := range requests {
		requests[i] = Request{Job: "j", Input: []byte(`{"n":1}`), Key: fmt.Sprint(i)}
	}
	a.tx(func(tx pgx.Tx) {
		ids, err := a.schema.EnqueueManyTx(t.Context(), tx, requests)
		if err != nil || len(ids) != MaxStage {
			t.Fatal(len(ids), err)
		}
	})
	if n := value[int](a, "SELECT count(DISTINCT key) FROM {schema}.outbox"); n != MaxStage {
		t.Errorf("%d rows", n)
	}
}

// Without an outbox the error says what to run.
func TestEnqueueWithoutOutboxSaysWhatToRun(t *testing.T) {
	a := session(t, Config{URL: sharedDatabase(t), Schema: "nowhere"})
	tx, err := a.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	_, err = a.schema.EnqueueTx(t.Context(), tx, Request{Job: "j"})
	if abi.CodeOf(err) != job.CodeDatabaseSchema || !strings.Contains(err.Error(), "runner migrate outbox") {
		t.Error(err)
	}
}

// EnqueueTx works however the application's connection sends its statements.
func TestEnqueueTxInEveryModeOfTheDriver(t *testing.T) {
	cfg := installed(t)
	d := open(t, cfg)
	said := Request{
		Job: "j", Input: []byte(`{"a":"\u0000'\\"}`), Key: "k'\\", RunAt: time.Date(2033, 1, 2, 3, 4, 5, 6e6, time.UTC), OnConflict: Reject,
		ID: "01890a5d-ac96-774b-bcce-b302099a8057", EnqueuedBy: "me",
	}
	for i, mode := range []string{"cache_statement", "cache_describe", "describe_exec", "exec", "simple_protocol"} {
		u, err := url.Parse(cfg.URL)
		if err != nil {
			t.Fatal(err)
		}
		q := u.Query()
		q.Set("default_query_exec_mode", mode)
		u.RawQuery = q.Encode()
		a := session(t, Config{URL: u.String(), Schema: cfg.Schema})
		said.ID = fmt.Sprintf("01890a5d-ac96-774b-bcce-b302099a805%d", i)
		a.tx(func(tx pgx.Tx) {
			if _, err := a.schema.EnqueueTx(t.Context(), tx, said); err != nil {
				t.Fatalf("%s: %v", mode, err)
			}
		})
		if rows := claim(t, d, "r"+mode, 10); len(rows) != 1 || cmp.Diff(said, rows[0].StageParams) != "" {
			t.Errorf("%s: %v", mode, rows)
		}
	}
}
