package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

// published is a store and a session of an application beside it.
type published struct {
	*testing.T
	s   *Store
	app *pgx.Conn
	ids int
}

func newPublished(t *testing.T) *published {
	t.Helper()
	s := open(t, migrated(t, Config{}))
	if err := s.Register(t.Context(), store.RegisterParams{ID: "w", Lease: time.Hour}); err != nil {
		t.Fatal(err)
	}
	return &published{T: t, s: s, app: session(t, s.cfg.URL)}
}

func session(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	c, err := pgx.Connect(context.Background(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

// exec runs SQL, with the schema filled in.
func (p *published) exec(c *pgx.Conn, sql string, args ...any) {
	p.Helper()
	if _, err := c.Exec(context.Background(), p.s.cfg.dialect().fill(sql), args...); err != nil {
		p.Fatalf("%s: %v", sql, err)
	}
}

// park makes a run that waits for the topic "t" and a key, or any, and answers its id.
func (p *published) park(key string) string {
	p.Helper()
	settle := p.parkable()
	settle.Step.Wait.Key = key
	if _, err := p.s.Settle(context.Background(), []store.SettleParams{settle}); err != nil {
		p.Fatal(err)
	}
	p.want(settle.Ref.RunID, job.Suspended, job.StepWaiting)
	return settle.Ref.RunID
}

func (p *published) parkable() store.SettleParams {
	p.Helper()
	p.ids++
	return parkable(p.T, p.s, fmt.Sprintf("01970000-0000-7000-8000-%012x", p.ids), store.WaitParams{Topic: "t", FromNow: true})
}

func (p *published) want(id string, state job.State, status job.StepStatus) job.Step {
	p.Helper()
	r, err := p.s.Get(context.Background(), id)
	if err != nil {
		p.Fatal(err)
	}
	steps, err := p.s.ListSteps(context.Background(), id)
	if err != nil || len(steps) != 1 {
		p.Fatal(steps, err)
	}
	if r.State != state || steps[0].Status != status {
		p.Fatalf("the run is %s, its wait %s; want %s and %s", r.State, steps[0].Status, state, status)
	}
	return steps[0]
}

func (p *published) events() []job.Event {
	p.Helper()
	events, err := p.s.ListEvents(context.Background(), store.ListEventsParams{Limit: 1000})
	if err != nil {
		p.Fatal(err)
	}
	return events
}

// (V9, V11): the waiters are ready in the commit that publishes, and other
// processes are told of it then; a rollback publishes nothing.
func TestSQLPublishesWithTheCommitOfItsTransaction(t *testing.T) {
	ctx := t.Context()
	p := newPublished(t)
	waiter := p.park("k")
	listener := session(t, p.s.cfg.URL)
	p.exec(listener, "LISTEN "+pgx.Identifier{p.s.cfg.channel()}.Sanitize())

	p.exec(p.app, "BEGIN")
	p.exec(p.app, `SELECT {schema}.publish('t', '{"n":0}')`)
	p.exec(p.app, "ROLLBACK")
	p.exec(p.app, "BEGIN")
	var id string
	if err := p.app.QueryRow(ctx, p.s.cfg.dialect().fill(`SELECT {schema}.publish('t', '{"n": 1}', key => 'k', keep => interval '1 hour')::text`)).Scan(&id); err != nil {
		t.Fatal(err)
	}
	p.exec(p.app, "SAVEPOINT a")
	p.exec(p.app, `SELECT {schema}.publish('t', '{"n":2}'::json)`)
	p.exec(p.app, "ROLLBACK TO a")
	p.exec(p.app, `SELECT {schema}.publish(topic => 't', payload => '{"n":3}'::jsonb, tenant => 'acme', published_by => 'ann')`)
	// Nothing is locked until the commit: others publish and park meanwhile.
	res, err := p.s.Publish(ctx, []store.EventParams{{ID: "01970000-0000-7000-8000-00000000000e", Topic: "t", Key: "other", Payload: []byte("9"), Keep: time.Hour, Tenant: "elsewhere"}})
	if err != nil || res[0].Woken != 0 {
		t.Fatalf("%+v, %v", res, err)
	}
	second := p.park("")
	p.want(waiter, job.Suspended, job.StepWaiting)
	p.exec(p.app, "COMMIT")

	for _, run := range []string{waiter, second} {
		if got := p.want(run, job.Ready, job.StepCompleted); string(got.Output) != `{"n": 1}` {
			t.Errorf("the wait has %s", got.Output)
		}
	}
	events := p.events()
	if len(events) != 3 {
		t.Fatalf("events %+v", events)
	}
	var role string
	if err := p.app.QueryRow(ctx, "SELECT session_user").Scan(&role); err != nil {
		t.Fatal(err)
	}
	last, first := events[0], events[1]
	if first.ID != id || first.Key != "k" || first.Tenant != "" || first.By != role || !first.ExpiresAt.Equal(first.PublishedAt.Add(time.Hour)) ||
		first.PublishedAt.Truncate(time.Millisecond) != first.PublishedAt {
		t.Errorf("the first is %+v", first)
	}
	if string(last.Payload) != `{"n": 3}` || last.Tenant != "acme" || last.By != "ann" || !last.ExpiresAt.Equal(last.PublishedAt.Add(job.DefaultEventKeep)) {
		t.Errorf("the last is %+v", last)
	}
	for {
		n, err := listener.WaitForNotification(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if n.Payload == "q" && n.PID == p.app.PgConn().PID() {
			break
		}
	}
	var left int
	if err := p.app.QueryRow(ctx, p.s.cfg.dialect().fill("SELECT count(*) FROM {schema}.publishing")).Scan(&left); err != nil || left != 0 {
		t.Errorf("%d rows are left, %v", left, err)
	}
}

// An id publishes once, in a transaction and in another; an event that has expired
// is not known any more.
func TestSQLPublishesAnIDOnce(t *testing.T) {
	p := newPublished(t)
	waiter := p.park("")
	const id = "01970000-0000-7000-8000-0000000000ee"
	p.exec(p.app, `SELECT {schema}.publish('t', payload, id => $1) FROM (VALUES ('1'), ('2')) v (payload)`, id)
	if got := p.want(waiter, job.Ready, job.StepCompleted); string(got.Output) != "1" {
		t.Errorf("the wait has %s", got.Output)
	}
	if _, err := p.s.Cancel(t.Context(), store.CancelParams{ID: waiter}); err != nil { // the next claim is to find another
		t.Fatal(err)
	}
	again := p.park("")
	p.exec(p.app, `SELECT {schema}.publish('t', '3', id => $1)`, id)
	p.want(again, job.Suspended, job.StepWaiting)
	if res, err := p.s.Publish(t.Context(), []store.EventParams{{ID: id, Topic: "t", Payload: []byte("4"), Keep: time.Hour}}); err != nil || !res[0].Deduped {
		t.Errorf("%+v, %v", res, err)
	}
	p.exec(p.app, `UPDATE {schema}.events SET expires_at = now() - interval '1 hour' WHERE id = $1`, id)
	p.exec(p.app, `SELECT {schema}.publish('t', '5', id => $1)`, id)
	if got := p.want(again, job.Ready, job.StepCompleted); string(got.Output) != "5" {
		t.Errorf("the wait has %s", got.Output)
	}
	if events := p.events(); len(events) != 1 || string(events[0].Payload) != "5" {
		t.Errorf("events %+v", events)
	}
}

// A transaction may publish on topics in any order: the locks are taken in one.
func TestSQLPublishesKeepTheirOrderAndDoNotDeadlock(t *testing.T) {
	p := newPublished(t)
	const rounds, each = 20, 8
	var sessions sync.WaitGroup
	for n := range 2 {
		c := session(t, p.s.cfg.URL)
		sessions.Go(func() {
			for range rounds {
				_, err := c.Exec(context.Background(), p.s.cfg.dialect().fill(`SELECT {schema}.publish('topic ' || CASE WHEN $1 = 0 THEN n ELSE `+fmt.Sprint(each)+` - n END, n::text)
					FROM generate_series(1, $2::int) n`), n, each)
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	sessions.Wait()
	events := p.events()
	if len(events) != 2*rounds*each {
		t.Fatalf("%d events", len(events))
	}
	// One that has its locks at once keeps to the order too.
	p.exec(p.app, "BEGIN")
	p.exec(p.app, "SET CONSTRAINTS ALL IMMEDIATE")
	p.exec(p.app, `SELECT {schema}.publish('last', n::text) FROM generate_series(1, 3) n`)
	p.exec(p.app, `SELECT {schema}.publish('last', '4')`)
	p.exec(p.app, "COMMIT")
	for i, e := range p.events()[:4] {
		if string(e.Payload) != fmt.Sprint(4-i) {
			t.Errorf("at %d is %s", i, e.Payload)
		}
	}
}

// Each side of the race again, with a publish by SQL: held open in its commit, or
// waiting there for a park that is under way.
func TestAParkWaitsForACommitThatPublishes(t *testing.T) {
	ctx := t.Context()
	p := newPublished(t)
	p.exec(p.app, `CREATE TABLE {schema}.application (n int);
		CREATE FUNCTION {schema}.stall() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_advisory_xact_lock(1, 1); RETURN NULL; END';
		CREATE CONSTRAINT TRIGGER stall AFTER INSERT ON {schema}.application DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION {schema}.stall()`)
	holder := session(t, p.s.cfg.URL)
	p.exec(holder, "SELECT pg_advisory_lock(1, 1)")
	p.exec(p.app, "BEGIN")
	p.exec(p.app, "SELECT {schema}.publish('t', '7')")
	p.exec(p.app, "INSERT INTO {schema}.application VALUES (1)")
	committed, settled := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := p.app.Exec(context.Background(), "COMMIT")
		committed <- err
	}()
	blocks(t, p.s, int32(holder.PgConn().PID())) // it has published, and is not committed
	settle := p.parkable()
	go func() {
		_, err := p.s.Settle(ctx, []store.SettleParams{settle})
		settled <- err
	}()
	blocks(t, p.s, int32(p.app.PgConn().PID()))
	p.exec(holder, "SELECT pg_advisory_unlock(1, 1)")
	if err := errors.Join(<-committed, <-settled); err != nil {
		t.Fatal(err)
	}
	// It began to wait after the event, and knows that.
	seq := p.events()[0].Seq
	if got := p.want(settle.Ref.RunID, job.Suspended, job.StepWaiting); got.Place != seq {
		t.Errorf("its place is %d, the event's %d", got.Place, seq)
	}
}

func TestACommitThatPublishesWaitsForAPark(t *testing.T) {
	ctx := t.Context()
	p := newPublished(t)
	settle := p.parkable()
	p.exec(p.app, "BEGIN")
	p.exec(p.app, "SELECT {schema}.publish('t', '7')")
	committed := make(chan error, 1)
	err := p.s.inTx(ctx, func(tx pgx.Tx) error {
		m := &settlingMore{s: p.s, tx: tx, batch: []store.SettleParams{settle}, out: make([]store.SettleResult, 1), landed: make([]bool, 1)}
		if err := m.run(ctx); err != nil {
			return err
		}
		go func() {
			_, err := p.app.Exec(context.Background(), "COMMIT")
			committed <- err
		}()
		excluded(t, p.s)
		return nil
	})
	if err = errors.Join(err, <-committed); err != nil {
		t.Fatal(err)
	}
	if got := p.want(settle.Ref.RunID, job.Ready, job.StepCompleted); string(got.Output) != "7" {
		t.Errorf("the wait has %s", got.Output)
	}
}

// Two publishers, by SQL and by the store, and one run that parks at the same
// moment: it is woken by the first event after its place, or has a place past both.
func TestNoEventIsLostBetweenTwoPublishersAndAPark(t *testing.T) {
	ctx := t.Context()
	p := newPublished(t)
	for round := range 40 {
		settle := p.parkable()
		before := int64(0)
		if events := p.events(); len(events) > 0 {
			before = events[0].Seq
		}
		start := make(chan struct{})
		var all sync.WaitGroup
		for _, do := range []func() error{
			func() error {
				_, err := p.app.Exec(ctx, p.s.cfg.dialect().fill("SELECT {schema}.publish('t', '1')"))
				return err
			},
			func() error {
				_, err := p.s.Publish(ctx, []store.EventParams{{ID: idAt(time.Now(), round), Topic: "t", Payload: []byte("2"), Keep: time.Hour}})
				return err
			},
			func() error {
				_, err := p.s.Settle(ctx, []store.SettleParams{settle})
				return err
			},
		} {
			all.Go(func() {
				<-start
				if err := do(); err != nil {
					t.Error(err)
				}
			})
		}
		close(start)
		all.Wait()
		var seqs []int64
		for _, e := range p.events() {
			if e.Seq > before {
				seqs = append(seqs, e.Seq) // newest first
			}
		}
		if len(seqs) != 2 {
			t.Fatalf("round %d: events %v", round, seqs)
		}
		steps, err := p.s.ListSteps(ctx, settle.Ref.RunID)
		if err != nil {
			t.Fatal(err)
		}
		state := job.Suspended
		switch got := steps[0]; {
		case got.Status == job.StepCompleted && (got.Place == seqs[0] || got.Place == seqs[1]):
			state = job.Ready
		case got.Status == job.StepWaiting && got.Place == seqs[0]:
		default:
			t.Fatalf("round %d: the wait is %s at %d, the events %v", round, got.Status, got.Place, seqs)
		}
		p.want(settle.Ref.RunID, state, steps[0].Status)
		if _, err := p.s.Cancel(ctx, store.CancelParams{ID: settle.Ref.RunID}); err != nil {
			t.Fatal(err)
		}
	}
}

// What no event can be is refused where it is published. A transaction that could
// not see who began to wait since it began is refused too.
func TestSQLRefusesToPublish(t *testing.T) {
	p := newPublished(t)
	refused := func(words, sql string, args ...any) {
		t.Helper()
		_, err := p.app.Exec(t.Context(), p.s.cfg.dialect().fill(sql), args...)
		var pg *pgconn.PgError
		if !errors.As(err, &pg) || !strings.HasPrefix(pg.Code, "22") || !strings.Contains(pg.Message, words) {
			t.Errorf("%s: %v, want words %q", sql, err, words)
		}
	}
	p.exec(p.app, "BEGIN ISOLATION LEVEL REPEATABLE READ")
	refused("READ COMMITTED", "SELECT {schema}.publish('t')")
	p.exec(p.app, "ROLLBACK")
	p.exec(p.app, "BEGIN")
	p.exec(p.app, "SELECT {schema}.publish('t', '1', keep => interval '1 second') FROM generate_series(1, 10000)")
	refused("at most 10000", "SELECT {schema}.publish('t')")
	p.exec(p.app, "ROLLBACK")
	for _, payload := range []string{"", "{", `{"a":1,"a":2}`, `[{"a":1,"\u0061":2}]`, `{"\ud83d\ude00":1,"😀":2}`, `{"a\n":1,"a\u000a":2}`, `nul`, `"a` + "\x01" + `"`} {
		refused("", "SELECT {schema}.publish('t', $1::text)", payload)
	}
	refused("deeper", "SELECT {schema}.publish('t', repeat('[', 100000))")
	refused("deeper", "SELECT {schema}.publish('t', repeat('[', 1001) || repeat(']', 1001))")
	refused("1048577", "SELECT {schema}.publish('t', '\"' || repeat('x', 1048575) || '\"')")
	for _, payload := range []string{
		`{"a":{"a":1},"b":[{"a":1},{"a":2}]}`, `{"a":"{\"a\":1,\"a\":2}"}`, `["a","a",":","a:"]`, `{"\\u0061":1,"a":2}`, `{"\u0000":1,"\ud800":"\udfff"}`,
		` {"a" : 1 ,"b":[ ]} `, `1e400`, `"` + strings.Repeat("x", 1<<20-2) + `"`,
		strings.Repeat("[", 1000) + strings.Repeat("]", 1000),
	} {
		p.exec(p.app, "SELECT {schema}.publish('kept', $1::text)", payload)
		if got := string(p.events()[0].Payload); got != payload {
			t.Errorf("published %.60q, kept %.60q", payload, got)
		}
	}
	if n := len(p.events()); n != 9 {
		t.Errorf("%d events", n)
	}
}
