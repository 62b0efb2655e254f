package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/internal/enginetest"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/manifest"
	"github.com/jobrunner/runner/engine/outbox"
	"github.com/jobrunner/runner/engine/queue"
	"github.com/jobrunner/runner/engine/store"
	"github.com/jobrunner/runner/engine/store/postgres"
	pgoutbox "github.com/jobrunner/runner/engine/store/postgres/outbox"
)

// publish stages events in one committed transaction and answers their ids.
func (w *world) publish(events ...pgoutbox.Event) []string {
	w.Helper()
	var ids []string
	w.check(pgx.BeginFunc(context.Background(), w.app, func(tx pgx.Tx) (err error) {
		ids, err = pgoutbox.Schema(w.cfg.Schema).PublishManyTx(context.Background(), tx, events)
		return err
	}))
	return ids
}

// published are the events of the queue, oldest first.
func (w *world) published() []job.Event {
	w.Helper()
	events, err := w.runs.ListEvents(context.Background(), store.ListEventsParams{Limit: 1000})
	w.check(err)
	slices.Reverse(events)
	return events
}

// noted writes down what comes to a queue, in its order.
type noted struct {
	*queue.Queue
	calls []string
}

func (n *noted) EnqueueEach(ctx context.Context, requests []queue.Request) ([]queue.Verdict, error) {
	for _, r := range requests {
		n.calls = append(n.calls, "run "+string(r.Input))
	}
	return n.Queue.EnqueueEach(ctx, requests)
}

func (n *noted) PublishEach(ctx context.Context, events []queue.Event) ([]queue.Verdict, error) {
	for _, e := range events {
		n.calls = append(n.calls, "event "+string(e.Payload))
	}
	return n.Queue.PublishEach(ctx, events)
}

// (B2) Runs and events of a transaction come in the order of staging, and what can
// be no event stands aside.
func TestEventsAreRelayedInOrderBetweenRuns(t *testing.T) {
	w := newWorld(t)
	q := &noted{Queue: w.queue}
	r := w.relay(func(c *outbox.Config) { c.Queue = q })
	schema := pgx.Identifier{w.cfg.Schema}.Sanitize()
	for _, sql := range []string{
		"BEGIN", "SELECT {s}.enqueue('free', '0')", "SELECT {s}.publish('paid', '1', key => 'o-1', tenant => 'acme', keep => interval '2 hours', published_by => 'ann')",

		// As an older version of the function staged it.
		`INSERT INTO {s}.outbox (id, staged_at, topic, input, on_conflict) VALUES (gen_random_uuid(), now(), 'paid', '{"twice":1,"twice":2}', 'dedupe')`,
		"SELECT {s}.publish('paid', '2'::json)", "SELECT {s}.publish('paid', '3'::jsonb, keep => interval '1 second')",
		"SELECT {s}.enqueue('free', '4')", "SELECT {s}.publish('due')", "COMMIT", "BEGIN", "SELECT {s}.publish('none', '5')", "ROLLBACK",
	} {
		w.sql(strings.ReplaceAll(sql, "{s}", schema))
	}
	if n := len(w.published()); n != 0 {
		t.Fatalf("%d events before a relay came", n)
	}
	if res := w.pass(r); res != (outbox.Result{Claimed: 7, Published: 6, Rejected: 1}) {
		t.Errorf("%+v", res)
	}
	if want := []string{"run 0", "event 1", `event {"twice":1,"twice":2}`, "event 2", "event 3", "run 4", "event null"}; !slices.Equal(q.calls, want) {
		t.Errorf("it came as %q", q.calls)
	}
	var got []string
	for _, e := range w.published() {
		got = append(got, fmt.Sprint(e.Topic, " ", string(e.Payload), " ", e.Key, " ", e.Tenant, " ", e.ExpiresAt.Sub(e.PublishedAt)))
	}
	// The shortest is kept for as long as its id must be known.
	want := []string{"paid 1 o-1 acme 2h0m0s", "paid 2   168h0m0s", "paid 3   1h0m0s", "due null   168h0m0s"}
	if !slices.Equal(got, want) {
		t.Errorf("published %q, want %q", got, want)
	}
	if by := w.published()[0].By; by != "ann" {
		t.Errorf("published by %q", by)
	}
	rejected := w.rows(store.Rejected)
	if len(rejected) != 1 || rejected[0].Event == nil || rejected[0].Event.Topic != "paid" || rejected[0].Code != job.CodeInvalid || !strings.Contains(rejected[0].Reason, "twice") {
		t.Errorf("rejected %+v", rejected)
	}
	for _, row := range w.rows(store.Published) {
		if row.Event != nil && (row.RunID != "" || row.Job != "" || row.Event.ID != row.ID) {
			t.Errorf("the row of an event is %+v", row)
		}
	}
}

// (B8) A relay that dies after it has published, whatever it could say, and one that
// could not publish: each event is there once, in order.
func TestAnEventIsRelayedOnce(t *testing.T) {
	w := newWorld(t)
	var ids []string
	for _, trouble := range []string{"settle", "publish"} {
		ids = append(ids, w.publish(pgoutbox.Event{Topic: "t", Payload: []byte(`"1"`)}, pgoutbox.Event{Topic: "t", Payload: []byte(`"2"`)})...)
		dying := w.relay(func(c *outbox.Config) {
			c.Outbox = &between{OutboxRelay: w.outbox, do: func(op string, call func() error) error {
				if op == trouble {
					return enginetest.Away()
				}
				return call()
			}}
			if trouble == "publish" {
				c.Queue = &lost{Queue: w.queue}
			}
		})
		if _, err := dying.Pass(t.Context()); err == nil {
			t.Fatalf("%s: nothing happened to it", trouble)
		}
		w.lapse()
		want := outbox.Result{Claimed: 2, Published: 2, Deduped: 2}
		if res := w.pass(w.relay(nil)); res != want {
			t.Errorf("%s: then %+v", trouble, res)
		}
	}
	var got []string
	for _, e := range w.published() {
		got = append(got, e.ID)
	}
	if !slices.Equal(got, ids) {
		t.Errorf("published %v, want %v", got, ids)
	}
}

// lost is a queue whose answer is lost.
type lost struct{ *queue.Queue }

func (l *lost) PublishEach(ctx context.Context, events []queue.Event) ([]queue.Verdict, error) {
	_, err := l.Queue.PublishEach(ctx, events)
	return nil, errors.Join(err, enginetest.Away())
}

// (B15) What can be told is told before the transaction is touched.
func TestARefusedEventLeavesItsTransactionUsable(t *testing.T) {
	w := newWorld(t)
	s := pgoutbox.Schema(w.cfg.Schema)
	w.check(pgx.BeginFunc(t.Context(), w.app, func(tx pgx.Tx) error {
		_, err := s.PublishManyTx(t.Context(), tx, []pgoutbox.Event{{Topic: "t"}, {Topic: ""}})
		if abi.CodeOf(err) != job.CodeInvalid || !strings.Contains(err.Error(), "entry 1") {
			t.Errorf("%v", err)
		}
		if _, err := s.PublishManyTx(t.Context(), tx, make([]pgoutbox.Event, pgoutbox.MaxStage+1)); abi.CodeOf(err) != job.CodeInvalid {
			t.Errorf("%v", err)
		}
		_, err = s.PublishTx(t.Context(), tx, pgoutbox.Event{Topic: "t", ID: "x"})
		if abi.CodeOf(err) != job.CodeIDInvalid {
			t.Errorf("%v", err)
		}
		_, err = s.PublishTx(t.Context(), tx, pgoutbox.Event{Topic: "t"})
		return err
	}))
	err := pgx.BeginFunc(t.Context(), w.app, func(tx pgx.Tx) error {
		_, err := pgoutbox.Schema("elsewhere").PublishTx(t.Context(), tx, pgoutbox.Event{Topic: "t"})
		return err
	})
	var e *abi.Error
	if !errors.As(err, &e) || e.Code != job.CodeDatabaseSchema || !strings.Contains(e.Fix, "migrate up") {
		t.Errorf("%v", err)
	}
}

// Queue and outbox in one schema, whichever came first: an event is published with
// its commit, a run is staged.
func TestOneSchemaHoldsQueueAndOutbox(t *testing.T) {
	for _, first := range []string{"queue", "outbox"} {
		t.Run(first+" first", func(t *testing.T) {
			w := newWorld(t)
			schema := w.cfg.Schema
			if first == "queue" {
				w.sql("DROP SCHEMA " + pgx.Identifier{schema}.Sanitize() + " CASCADE")
			}
			migrate := func(m store.Migrator, err error) {
				w.check(err)
				_, err = m.Migrate(t.Context())
				w.check(err)
			}
			migrate(postgres.OpenMigrator(postgres.Config{URL: w.cfg.URL, Schema: schema}))
			migrate(pgoutbox.OpenMigrator(w.cfg))
			runs, err := postgres.Open(t.Context(), postgres.Config{URL: w.cfg.URL, Schema: schema})
			w.check(err)
			defer runs.Close()
			w.check(pgx.BeginFunc(t.Context(), w.app, func(tx pgx.Tx) error {
				_, err := pgoutbox.Schema(schema).PublishTx(t.Context(), tx, pgoutbox.Event{
					Topic: "t", Key: "k", Tenant: "acme", Payload: []byte("7"), Keep: time.Minute, By: "ann", ID: "01970000-0000-7000-8000-000000000001",
				})
				if err == nil {
					_, err = pgoutbox.Schema(schema).EnqueueTx(t.Context(), tx, pgoutbox.Request{Job: "free"})
				}
				return err
			}))
			events, err := runs.ListEvents(t.Context(), store.ListEventsParams{})
			w.check(err)
			if len(events) != 1 {
				t.Fatalf("events %+v", events)
			}
			got := events[0]
			if got.ExpiresAt.Sub(got.PublishedAt) != time.Minute || got.ID != "01970000-0000-7000-8000-000000000001" || got.Key != "k" || got.Tenant != "acme" || got.By != "ann" || string(got.Payload) != "7" {
				t.Errorf("%+v", got)
			}
			if rows := w.rows(store.Waiting); len(rows) != 1 || rows[0].Job != "free" {
				t.Errorf("staged %+v", rows)
			}
		})
	}
}

// What one door refuses all refuse, and what one takes all take: the client, a
// transaction's in Go, SQL in the queue's database, and SQL with a relay.
func TestTheDoorsOfEventsAgree(t *testing.T) {
	w := newWorld(t)
	queueSchema := w.cfg.Schema + "_queue"
	m, err := postgres.OpenMigrator(postgres.Config{URL: w.cfg.URL, Schema: queueSchema})
	w.check(err)
	_, err = m.Migrate(t.Context())
	w.check(err)
	runs, err := postgres.Open(t.Context(), postgres.Config{URL: w.cfg.URL, Schema: queueSchema})
	w.check(err)
	t.Cleanup(func() { runs.Close() })
	w.runs.Store = runs
	w.queue = queue.New(queue.Config{Store: runs, Manifest: func() *manifest.Manifest { return w.manifest }})
	r := w.relay(nil)

	sql := func(schema string, e queue.Event) error {
		_, err := w.app.Exec(t.Context(), "SELECT "+pgx.Identifier{schema}.Sanitize()+".publish($1, $2, key => $3, tenant => $4, keep => $5, published_by => $6)",
			e.Topic, string(e.Payload), e.Key, e.Tenant, e.Keep, e.By)
		return err
	}
	doors := map[string]func(e queue.Event) error{
		"client": func(e queue.Event) error { _, err := w.queue.Publish(t.Context(), e); return err },
		"transaction": func(e queue.Event) error {
			return pgx.BeginFunc(t.Context(), w.app, func(tx pgx.Tx) error {
				_, err := pgoutbox.Schema(queueSchema).PublishTx(t.Context(), tx, e)
				return err
			})
		},
		"sql": func(e queue.Event) error { return sql(queueSchema, e) },
		"outbox": func(e queue.Event) error {
			if err := sql(w.cfg.Schema, e); err != nil {
				return err
			}
			if res := w.pass(r); res.Rejected == 1 {
				return errors.New(w.rows(store.Rejected)[0].Reason)
			}
			return nil
		},
	}
	ok := func(change func(*queue.Event)) queue.Event {
		e := queue.Event{Topic: "t", Payload: []byte("1"), Keep: 2 * time.Hour, By: "x"}
		change(&e)
		return e
	}
	text := func(set func(e *queue.Event, s string), most int, control bool) (good, bad []queue.Event) {
		for _, s := range []string{"größe", "a b", "../x", "%s%n", "'; drop table x; --", "\u202ertl", "\u200b", strings.Repeat("x", most), strings.Repeat("ü", most/2)} {
			good = append(good, ok(func(e *queue.Event) { set(e, s) }))
		}
		for _, s := range []string{strings.Repeat("x", most+1), strings.Repeat("ü", most/2+1), "a\x00", "\xff"} {
			bad = append(bad, ok(func(e *queue.Event) { set(e, s) }))
		}
		for _, s := range []string{"\x01", "a\nb", "\x1b[31m", "\x7f", "\u0085"} {
			e := ok(func(e *queue.Event) { set(e, s) })
			if control {
				good = append(good, e)
			} else {
				bad = append(bad, e)
			}
		}
		return good, bad
	}
	var good, bad []queue.Event
	for _, f := range []struct {
		set     func(e *queue.Event, s string)
		control bool
	}{
		{func(e *queue.Event, s string) { e.Topic = s }, false}, {func(e *queue.Event, s string) { e.Key = s }, false},
		{func(e *queue.Event, s string) { e.Tenant = s }, true}, {func(e *queue.Event, s string) { e.By = s }, true},
	} {
		g, b := text(f.set, 255, f.control)
		good, bad = append(good, g...), append(bad, b...)
	}
	bad = append(bad, ok(func(e *queue.Event) { e.Topic = "" }))
	for _, payload := range []string{
		`null`, ` {"a":[1,2,{"b":null}]} `, `"\u0000"`, `"\ud800"`, `1e400`, `-0`, `{"a":1,"A":2}`, `{"\ud800":1,"\u0000":2}`,
		strings.Repeat("[", abi.MaxJSONDepth) + strings.Repeat("]", abi.MaxJSONDepth), `"` + strings.Repeat("x", abi.MaxInput-2) + `"`,
	} {
		good = append(good, ok(func(e *queue.Event) { e.Payload = []byte(payload) }))
	}
	for _, payload := range []string{
		`{`, `nul`, `1 2`, `{"a":1,}`, `{'a':1}`, `NaN`, `01`, "\"a\nb\"", `"\x"`, `{"a":1,"a":1}`, `[[{"b":{"c":1,"\u0063":2}}]]`, "\ufeff1", `{"\ud800":1,"\ud801":2}`, "{\"\xff\":1}",
		strings.Repeat("[", abi.MaxJSONDepth+1) + strings.Repeat("]", abi.MaxJSONDepth+1), strings.Repeat("[", 100_000), `"` + strings.Repeat("x", abi.MaxInput-1) + `"`,
	} {
		bad = append(bad, ok(func(e *queue.Event) { e.Payload = []byte(payload) }))
	}
	good = append(good, ok(func(e *queue.Event) { e.Keep = store.MaxEventKeep }))
	for _, keep := range []time.Duration{-1 * time.Second, time.Microsecond, store.MaxEventKeep + time.Hour, 1<<63 - 1, -1 << 63} {
		bad = append(bad, ok(func(e *queue.Event) { e.Keep = keep }))
	}
	for name, door := range doors {
		for _, e := range good {
			if err := door(e); err != nil {
				t.Errorf("%s refuses %.100v: %v", name, e, err)
				continue
			}
			last := w.published()
			if got := last[len(last)-1]; got.Topic != e.Topic || got.Key != e.Key || got.Tenant != e.Tenant || got.By != e.By || string(got.Payload) != string(e.Payload) ||
				got.ExpiresAt.Sub(got.PublishedAt) != e.Keep {
				t.Errorf("%s makes %.200v of %.200v", name, got, e)
			}
		}
		count := len(w.published())
		for _, e := range bad {
			err := door(e)
			if err == nil {
				t.Errorf("%s takes %.100v", name, e)
			}
			if (name == "client" || name == "transaction") && abi.CodeOf(err) != job.CodeInvalid {
				t.Errorf("%s refuses %.100v with %v", name, e, err)
			}
		}
		if n := len(w.published()); n != count {
			t.Errorf("%s published %d of what it refused", name, n-count)
		}
		if _, err := runs.PurgeEvents(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		w.sql("DELETE FROM " + pgx.Identifier{queueSchema}.Sanitize() + ".events")
		w.sql("DELETE FROM " + pgx.Identifier{w.cfg.Schema}.Sanitize() + ".outbox")
	}
}
