package engine_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/abi/abitest"
	"github.com/jobrunner/runner/abi/wire"
	"github.com/jobrunner/runner/engine"
	"github.com/jobrunner/runner/engine/internal/enginetest"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/manifest"
	"github.com/jobrunner/runner/engine/outbox"
	"github.com/jobrunner/runner/engine/queue"
	"github.com/jobrunner/runner/engine/step"
	"github.com/jobrunner/runner/engine/store"
	"github.com/jobrunner/runner/engine/store/postgres"
	pgoutbox "github.com/jobrunner/runner/engine/store/postgres/outbox"
)

// doorOf is one way to ask for an A, a run or an event. open answers what asks through
// it, once: the id, or why there is none; unsayable is for what its language has no
// words for.
type doorOf[A any] struct {
	name string
	open func(h *house) func(A) (id string, err error)
	db   func(h *house) store.Store
}

type door = doorOf[engine.Request]

var errUnsayable = errors.New("this door cannot say it")

// house is a queue on either store, and an outbox beside it.
type house struct {
	testing.TB
	m            *manifest.Manifest
	file, server store.Store
	url          string
}

func newHouse(t testing.TB) *house {
	h := &house{TB: t, file: enginetest.Memory(t), url: newDatabase()}
	h.m = enginetest.Serve(&enginetest.Guest{Name: "doors", Handlers: map[string]enginetest.Handler{"free": nil, "parent": nil}}, nil).Manifest
	db, err := postgres.Open(t.Context(), postgres.Config{URL: h.url})
	h.must(err)
	t.Cleanup(func() { h.must(db.Close()) })
	h.server = db
	return h
}

func (h *house) must(err error) {
	h.Helper()
	if err != nil {
		h.Fatal(err)
	}
}

func (h *house) queue(db store.Store) *queue.Queue {
	return queue.New(queue.Config{Store: db, Manifest: func() *manifest.Manifest { return h.m }})
}

func onFile(h *house) store.Store   { return h.file }
func onServer(h *house) store.Store { return h.server }

// byClient is the Go client.
func byClient(on func(*house) store.Store) func(h *house) func(engine.Request) (string, error) {
	return func(h *house) func(engine.Request) (string, error) {
		c, err := engine.NewClient(engine.ClientConfig{Store: on(h), Manifest: h.m})
		h.must(err)
		return func(r engine.Request) (string, error) {
			res, err := c.Enqueue(h.Context(), r)
			return res.ID, err
		}
	}
}

// byTx is the Go client in a transaction of the queue's database.
func byTx(h *house) func(engine.Request) (string, error) {
	db := h.server.(*postgres.Store)
	c, err := engine.NewClient(engine.ClientConfig{Store: db, Manifest: h.m})
	h.must(err)
	return inTx(h, func(tx pgx.Tx, r engine.Request) (string, error) {
		res, err := engine.EnqueueTx(h.Context(), c, db, tx, r)
		if err != nil {
			return "", err
		}
		return res[0].ID, nil
	})
}

// inTx asks in a transaction of pgx, which a refusal in Go leaves usable.
func inTx[A any](h *house, ask func(tx pgx.Tx, a A) (string, error)) func(A) (string, error) {
	conn := h.connect()
	return func(a A) (id string, refused error) {
		h.must(pgx.BeginFunc(h.Context(), conn, func(tx pgx.Tx) error {
			id, refused = ask(tx, a)
			_, err := tx.Exec(h.Context(), "SELECT 1")
			return err
		}))
		return id, refused
	}
}

// attempt is one of a run in a database, for what a handler asks of it.
func (h *house) attempt(db store.Store) *step.Attempt {
	h.Helper()
	q := h.queue(db)
	parent, err := q.Enqueue(h.Context(), queue.Request{Job: "parent"})
	h.must(err)
	h.must(db.Register(h.Context(), store.RegisterParams{ID: "w", Lease: time.Hour}))
	res, err := db.Claim(h.Context(), store.ClaimParams{Worker: "w", Queues: []store.QueueLimit{{Queue: "default", Limit: 1}}})
	h.must(err)
	if len(res.Runs) != 1 || res.Runs[0].ID != parent.ID {
		h.Fatalf("claimed %d runs", len(res.Runs))
	}
	run := &res.Runs[0]
	return step.New(step.Params{
		Queue: q, Run: run, Ref: job.Ref{RunID: run.ID, Worker: "w", Claim: run.Claims}, Claimed: time.Now(), EventKeep: job.DefaultEventKeep,
		Cancel: func(error) {}, Logger: slog.New(slog.DiscardHandler), Final: func(abi.Failure) bool { return true },
	})
}

// orNull is v for a parameter of SQL, where none is left out.
func orNull[V comparable](v V) *V {
	var none V
	if v == none {
		return nil
	}
	return &v
}

func (h *house) connect() *pgx.Conn {
	conn, err := pgx.Connect(h.Context(), h.url)
	h.must(err)
	h.Cleanup(func() { h.must(conn.Close(context.Background())) })
	return conn
}

// byGuest is a handler's enqueue, as it comes out of its memory.
func byGuest(on func(*house) store.Store) func(h *house) func(engine.Request) (string, error) {
	return func(h *house) func(engine.Request) (string, error) {
		a := h.attempt(on(h))
		return func(r engine.Request) (string, error) {
			if r.ID != "" || r.MaxAttempts != 0 || r.EnqueuedBy != "" || r.Traceparent != "" || !utf8.ValidString(r.Job+r.Key+r.Tenant) ||
				r.Delay%time.Millisecond != 0 || r.RunAt.Year() < 0 || r.RunAt.Year() > 9999 {
				return "", errUnsayable
			}
			runs, err := wire.DecodeEnqueue(wire.AppendEnqueue(nil, abi.EnqueueParams{
				Job: r.Job, Input: r.Input, Key: r.Key, Tenant: r.Tenant, RunAt: r.RunAt, DelayMS: r.Delay.Milliseconds(), Priority: r.Priority,
			}))
			if err != nil {
				return "", err
			}
			res, err := a.Enqueue(h.Context(), runs)
			if err != nil {
				return "", err
			}
			return res[0].ID, nil
		}
	}
}

// staged installs an outbox and follows a row that is staged there through the
// relay: the run, or why it was rejected.
func (h *house) staged(schema string) func(id string) (string, error) {
	cfg := pgoutbox.Config{URL: h.url, Schema: schema}
	m, err := pgoutbox.OpenMigrator(cfg)
	h.must(err)
	_, err = m.Migrate(h.Context())
	h.must(err)
	o, err := pgoutbox.Open(h.Context(), cfg)
	h.must(err)
	h.Cleanup(func() { h.must(o.Close()) })
	relay, err := outbox.New(outbox.Config{Outbox: o, Queue: h.queue(h.file)})
	h.must(err)
	return func(id string) (string, error) {
		res, err := relay.Pass(h.Context())
		h.must(err)
		if res.Published+res.Rejected != 1 {
			h.Fatalf("the pass did %+v", res)
		}
		rows, err := o.ListStaged(h.Context(), store.ListStagedParams{State: store.Rejected, Limit: 1})
		h.must(err)
		if res.Rejected == 1 {
			if rows[0].ID != id {
				h.Fatalf("%s was rejected, and %s staged", rows[0].ID, id)
			}
			return "", &abi.Error{Code: rows[0].Code, Message: rows[0].Reason, Fix: "as the reason says"}
		}
		return id, nil
	}
}

// byStaging is the outbox's Go function.
func byStaging(h *house) func(engine.Request) (string, error) {
	follow := h.staged("by_go")
	stage := inTx(h, func(tx pgx.Tx, r engine.Request) (string, error) {
		return pgoutbox.Schema("by_go").EnqueueTx(h.Context(), tx, pgoutbox.Request{
			Job: r.Job, Input: r.Input, ID: r.ID, Key: r.Key, Tenant: r.Tenant, RunAt: r.RunAt, Delay: r.Delay, Priority: r.Priority,
			MaxAttempts: r.MaxAttempts, EnqueuedBy: r.EnqueuedBy, Traceparent: r.Traceparent,
		})
	})
	return func(r engine.Request) (string, error) {
		id, err := stage(r)
		if err != nil {
			return "", err
		}
		return follow(id)
	}
}

var canonical = regexp.MustCompile(`^[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}$`)

// bySQL is the outbox's SQL function.
func bySQL(h *house) func(engine.Request) (string, error) {
	conn, follow := h.connect(), h.staged("by_sql")
	return func(r engine.Request) (id string, err error) {
		if r.ID != "" && !canonical.MatchString(r.ID) {
			return "", errUnsayable // what the type uuid takes is another text
		}
		all := r.Job + string(r.Input) + r.ID + r.Key + r.Tenant + r.EnqueuedBy + r.Traceparent
		if !utf8.ValidString(all) || strings.ContainsRune(all, 0) || r.Delay%time.Microsecond != 0 || r.MaxAttempts != int(int32(r.MaxAttempts)) || r.Priority != nil && *r.Priority != int(int32(*r.Priority)) {
			return "", errUnsayable
		}
		var runAt *time.Time
		if !r.RunAt.IsZero() {
			if y := r.RunAt.Year(); y < -4000 || y > 290_000 {
				return "", errUnsayable
			}
			runAt = &r.RunAt
		}
		err = conn.QueryRow(h.Context(), `SELECT by_sql.enqueue(job => $1, input => $2::text, key => $3, tenant => $4, run_at => $5, delay => $6,
			priority => $7, max_attempts => $8, enqueued_by => $9, traceparent => $10, id => $11::text::uuid)::text`,
			r.Job, orNull(string(r.Input)), orNull(r.Key), orNull(r.Tenant), runAt, orNull(r.Delay), r.Priority, orNull(r.MaxAttempts),
			orNull(r.EnqueuedBy), orNull(r.Traceparent), orNull(r.ID)).Scan(&id)
		if err != nil {
			return "", err
		}
		return follow(id)
	}
}

// doors in the order in which they are compared: the first says what is right.
var doors = []door{
	{"client on SQLite", byClient(onFile), onFile},
	{"client on Postgres", byClient(onServer), onServer},
	{"client in a transaction", byTx, onServer},
	{"guest on SQLite", byGuest(onFile), onFile},
	{"guest on Postgres", byGuest(onServer), onServer},
	{"outbox, by Go", byStaging, onFile},
	{"outbox, by SQL", bySQL, onFile},
}

// knob is a part of a request, set to something hostile.
type knob struct {
	name string
	set  engine.Request
}

// knobs are all parts of a request with all that is hostile to them.
func knobs() (out []knob) {
	add := func(what, value string, r engine.Request) {
		if r.Job == "" && what != "job" {
			r.Job = "free"
		}
		out = append(out, knob{what + ": " + value, r})
	}
	texts := abitest.HostileTexts()
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		s := texts[name]
		add("job", name, engine.Request{Job: s})
		add("key", name, engine.Request{Key: s})
		add("tenant", name, engine.Request{Tenant: s})
		add("id", name, engine.Request{ID: s})
		add("enqueued_by", name, engine.Request{EnqueuedBy: s})
		add("traceparent", name, engine.Request{Traceparent: s})
	}
	add("job", "none", engine.Request{})
	for _, id := range []string{"01890A5D-AC96-774B-BCCE-B302099A8057", "{01890a5d-ac96-774b-bcce-b302099a8057}", "01890a5dac96774bbcceb302099a8057", "00000000-0000-0000-0000-000000000000"} {
		add("id", id, engine.Request{ID: id})
	}
	inputs := abitest.HostileJSON()
	for _, name := range slices.Sorted(maps.Keys(inputs)) {
		add("input", name, engine.Request{Input: []byte(inputs[name])})
	}
	for _, n := range abitest.HostileNumbers() {
		p := int(n)
		add("priority", fmt.Sprint(n), engine.Request{Priority: &p})
		add("attempts", fmt.Sprint(n), engine.Request{MaxAttempts: p})
	}
	for _, d := range abitest.HostileDurations() {
		add("delay", d.String(), engine.Request{Delay: d})
	}
	for _, at := range abitest.HostileInstants() {
		add("run_at", fmt.Sprintf("%v (%d)", at, at.Unix()), engine.Request{RunAt: at})
	}
	add("run_at", "with a delay", engine.Request{RunAt: time.Now().Add(time.Hour), Delay: time.Hour})
	return out
}

// refusal is the code of a refusal, and what is wrong with how it is told.
func refusal(err error) (code string, flaws []string) {
	var pg *pgconn.PgError
	var refused *abi.Refusal
	var violation *abi.Violation
	message, fix := err.Error(), "none"
	switch {
	case errors.As(err, &pg):
		m := bySQLFunction.FindStringSubmatch(pg.Message)
		if m == nil || pg.Code != "22023" {
			return "", []string{fmt.Sprintf("the server says %.200s (SQLSTATE %s)", pg.Message, pg.Code)}
		}
		code, message, fix = m[1], m[2], pg.Hint
	case errors.As(err, &refused):
		code, message, fix = refused.Failure.Code, refused.Failure.Message, refused.Failure.Fix
	case errors.As(err, &violation):
		code = abi.CodeABIViolation
	default:
		var e *abi.Error
		if !errors.As(err, &e) {
			return "", []string{"it has no code"}
		}
		code, message, fix = e.Code, e.Message, e.Fix
		for _, word := range []string{"SQLSTATE", "INSERT", "constraint", "sqlite3:", "violates", "syntax error"} {
			if strings.Contains(err.Error(), word) {
				flaws = append(flaws, "it says "+word)
			}
		}
	}
	if !strings.HasPrefix(code, "X_") {
		flaws = append(flaws, fmt.Sprintf("its code is %q", code))
	}
	if fix == "" {
		flaws = append(flaws, "it does not say what to do")
	}
	if len(message) > 1<<10 {
		flaws = append(flaws, fmt.Sprintf("it has %d bytes", len(message)))
	}
	if !utf8.ValidString(message) || strings.ContainsFunc(message, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		flaws = append(flaws, fmt.Sprintf("it is no line of text: %q", message[:min(len(message), 200)]))
	}
	return code, flaws
}

// bySQLFunction is the message with which a function of SQL refuses.
var bySQLFunction = regexp.MustCompile(`^(X_[A-Z_]+): (.+)$`)

// syntax are the codes of a door whose language has bounds of its own, and of what
// it refuses before the queue is asked: a handler's.
var syntax = map[string]bool{wire.CodeRequestInvalid: true, wire.CodeLimitExceeded: true, abi.CodeABIViolation: true}

// Whatever is asked for through any door is refused by all of them, with one code,
// or kept exactly by all of them, on either store. (E1, DP2)
func TestEveryDoorRefusesAndKeepsTheSame(t *testing.T) {
	h := newHouse(t)
	enqueue := make([]func(engine.Request) (string, error), len(doors))
	for i, d := range doors {
		enqueue[i] = d.open(h)
	}
	for _, k := range knobs() {
		var first string // the code of the first door
		var kept job.Run // or its run
		for i, d := range doors {
			id, err := enqueue[i](k.set)
			if errors.Is(err, errUnsayable) {
				continue
			}
			var code string
			if err != nil {
				var flaws []string
				if code, flaws = refusal(err); len(flaws) > 0 {
					t.Errorf("%s, by the %s: %s", k.name, d.name, strings.Join(flaws, "; "))
				}
			}
			if i == 0 {
				first = code
			}
			switch {
			case (code == "") != (first == ""):
				t.Errorf("%s: the %s answers %q (%.200v), and the %s %q", k.name, d.name, code, err, doors[0].name, first)
			case code != first && !syntax[code]:
				t.Errorf("%s: the %s refuses with %s (%.200v), and the %s with %s", k.name, d.name, code, err, doors[0].name, first)
			}
			if err != nil {
				continue
			}
			run, err := d.db(h).Get(t.Context(), id)
			h.must(err)
			if flaw := unlike(k.set, run); flaw != "" {
				t.Errorf("%s, by the %s: %s", k.name, d.name, flaw)
			}
			if i == 0 {
				kept = run
			} else if kept.Priority != run.Priority || kept.MaxAttempts != run.MaxAttempts || kept.State != run.State && (k.set.Delay == 0 || k.set.Delay > time.Second) ||
				!kept.RunAt.Equal(run.RunAt) && !k.set.RunAt.IsZero() {
				t.Errorf("%s: the %s keeps %+v, and the %s %+v", k.name, d.name, run, doors[0].name, kept)
			}
			if _, err := d.db(h).Delete(t.Context(), store.DeleteParams{ID: id}); err != nil {
				t.Errorf("%s, by the %s: it cannot be deleted: %v", k.name, d.name, err)
			}
		}
	}
}

// unlike says what of a request its run does not have.
func unlike(r engine.Request, run job.Run) string {
	for _, f := range []struct{ what, asked, has string }{
		{"id", r.ID, run.ID}, {"key", r.Key, run.Key}, {"tenant", r.Tenant, run.Tenant},
		{"enqueued_by", r.EnqueuedBy, run.EnqueuedBy}, {"traceparent", r.Traceparent, run.Traceparent},
	} {
		if f.asked != "" && f.asked != f.has {
			return fmt.Sprintf("its %s is %.100q", f.what, f.has)
		}
	}
	late := run.RunAt.Sub(run.CreatedAt)
	switch {
	case len(r.Input) > 0 && !bytes.Equal(r.Input, run.Input):
		return fmt.Sprintf("its input is %.100q", run.Input)
	case r.Priority != nil && *r.Priority != run.Priority:
		return fmt.Sprintf("its priority is %d", run.Priority)
	case r.MaxAttempts != 0 && r.MaxAttempts != run.MaxAttempts:
		return fmt.Sprintf("it has %d attempts", run.MaxAttempts)
	case !r.RunAt.IsZero() && r.RunAt.After(run.CreatedAt) && r.RunAt.Sub(run.RunAt).Abs() >= time.Millisecond:
		return fmt.Sprintf("it is due at %s", run.RunAt)
	case r.Delay > time.Second && (late > r.Delay+time.Millisecond || late < r.Delay-time.Minute):
		return fmt.Sprintf("it is due after %s", late)
	}
	return ""
}
