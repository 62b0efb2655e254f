package engine_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/abi/abitest"
	"github.com/jobrunner/runner/abi/wire"
	"github.com/jobrunner/runner/engine"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
	"github.com/jobrunner/runner/engine/store/postgres"
	pgoutbox "github.com/jobrunner/runner/engine/store/postgres/outbox"
)

// gate is one way to publish an event, as a door is one to enqueue. One that does not
// answer an id answers "".
type gate = doorOf[engine.Event]

func (h *house) client(on store.Store) *engine.Client {
	c, err := engine.NewClient(engine.ClientConfig{Store: on, Manifest: h.m})
	h.must(err)
	return c
}

// oneByClient and eachByClient are the Go client's.
func oneByClient(on func(*house) store.Store) func(h *house) func(engine.Event) (string, error) {
	return func(h *house) func(engine.Event) (string, error) {
		c := h.client(on(h))
		return func(e engine.Event) (string, error) {
			res, err := c.Publish(h.Context(), e)
			return res.ID, err
		}
	}
}

func eachByClient(on func(*house) store.Store) func(h *house) func(engine.Event) (string, error) {
	return func(h *house) func(engine.Event) (string, error) {
		c := h.client(on(h))
		return func(e engine.Event) (string, error) {
			verdicts, err := c.PublishEach(h.Context(), []engine.Event{e})
			h.must(err)
			return e.ID, verdicts[0].Refused
		}
	}
}

func byPublishTx(h *house) func(engine.Event) (string, error) {
	return inTx(h, func(tx pgx.Tx, e engine.Event) (string, error) {
		ids, err := engine.PublishTx(h.Context(), h.server.(*postgres.Store), tx, e)
		if err != nil {
			return "", err
		}
		return ids[0], nil
	})
}

func byOutboxTx(schema string, follow func(h *house) func(string) (string, error)) func(h *house) func(engine.Event) (string, error) {
	return func(h *house) func(engine.Event) (string, error) {
		published := follow(h)
		publish := inTx(h, func(tx pgx.Tx, e engine.Event) (string, error) {
			return pgoutbox.Schema(schema).PublishTx(h.Context(), tx, e)
		})
		return func(e engine.Event) (string, error) {
			id, err := publish(e)
			if err != nil {
				return "", err
			}
			return published(id)
		}
	}
}

// bySQLPublish calls an SQL function with what its types can say.
func bySQLPublish(call string, follow func(h *house) func(string) (string, error)) func(h *house) func(engine.Event) (string, error) {
	return func(h *house) func(engine.Event) (string, error) {
		published := follow(h)
		conn := h.connect()
		return func(e engine.Event) (id string, err error) {
			if e.ID != "" && !canonical.MatchString(e.ID) {
				return "", errUnsayable
			}
			all := e.Topic + e.Key + e.Tenant + e.By + string(e.Payload)
			if !utf8.ValidString(all) || strings.ContainsRune(all, 0) || e.Keep%time.Microsecond != 0 {
				return "", errUnsayable
			}
			err = conn.QueryRow(h.Context(), call, e.Topic, orNull(string(e.Payload)), orNull(e.Key), orNull(e.Tenant), orNull(e.Keep), orNull(e.By), orNull(e.ID)).Scan(&id)
			if err != nil {
				return "", err
			}
			return published(id)
		}
	}
}

// atOnce is for what needs no relay.
func atOnce(*house) func(string) (string, error) {
	return func(id string) (string, error) { return id, nil }
}

// relayed is for an outbox: whatever its function takes the relay takes.
func relayed(schema string) func(h *house) func(string) (string, error) {
	return func(h *house) func(string) (string, error) {
		follow := h.staged(schema)
		return func(id string) (string, error) {
			id, err := follow(id)
			if err != nil {
				h.Errorf("%s was staged, and then rejected: %v", id, err)
			}
			return id, err
		}
	}
}

// byHandler is a handler's publish, as it comes out of its memory.
func byHandler(on func(*house) store.Store) func(h *house) func(engine.Event) (string, error) {
	return func(h *house) func(engine.Event) (string, error) {
		a := h.attempt(on(h))
		return func(e engine.Event) (string, error) {
			if e.ID != "" || e.Keep != 0 || e.Tenant != "" || e.By != "" {
				return "", errUnsayable
			}
			topic, err := wire.Name(abi.FuncPublish, []byte(e.Topic))
			if err != nil {
				return "", err
			}
			key, err := wire.Key(abi.FuncPublish, []byte(e.Key))
			if err != nil {
				return "", err
			}
			if len(e.Payload) == 0 {
				e.Payload = []byte("null") // a handler says it
			}
			if err := wire.JSON(abi.FuncPublish, "the payload", e.Payload, abi.MaxInput); err != nil {
				return "", err
			}
			return "", a.Publish(h.Context(), abi.PublishParams{Topic: topic, Key: key, Payload: e.Payload})
		}
	}
}

// gates in the order in which they are compared: the first says what is right.
var gates = []gate{
	{"client on SQLite", oneByClient(onFile), onFile},
	{"client on Postgres", oneByClient(onServer), onServer},
	{"client, each, on SQLite", eachByClient(onFile), onFile},
	{"client, each, on Postgres", eachByClient(onServer), onServer},
	{"client in a transaction", byPublishTx, onServer},
	{"outbox's function in the queue's schema", byOutboxTx("runner", atOnce), onServer},
	{"SQL", bySQLPublish(`SELECT runner.publish($1, $2::text, $3, $4, $5, $6, $7::text::uuid)::text`, atOnce), onServer},
	{"SQL at once", bySQLPublish(`WITH p AS (SELECT coalesce($7::text::uuid, gen_random_uuid()) AS id)
		SELECT p.id::text FROM p, runner.publish_now($1, coalesce($2::text, 'null'), coalesce($3, ''), coalesce($4, ''), coalesce($5, interval '7 days'), coalesce($6, ''), p.id)`, atOnce), onServer},
	{"outbox, by Go", byOutboxTx("events_by_go", relayed("events_by_go")), onFile},
	{"outbox, by SQL", bySQLPublish(`SELECT events_by_sql.publish($1, $2::text, $3, $4, $5, $6, $7::text::uuid)::text`, relayed("events_by_sql")), onFile},
	{"handler on SQLite", byHandler(onFile), onFile},
	{"handler on Postgres", byHandler(onServer), onServer},
}

// events are all parts of an event with all that is hostile to them.
func hostileEvents() (names []string, events []engine.Event) {
	add := func(what, value string, e engine.Event) {
		if e.Topic == "" && what != "topic" {
			e.Topic = "t"
		}
		names, events = append(names, what+": "+value), append(events, e)
	}
	texts := abitest.HostileTexts()
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		s := texts[name]
		add("topic", name, engine.Event{Topic: s})
		add("key", name, engine.Event{Key: s})
		add("tenant", name, engine.Event{Tenant: s})
		add("id", name, engine.Event{ID: s})
		add("by", name, engine.Event{By: s})
	}
	add("topic", "none", engine.Event{})
	for _, id := range []string{"01890A5D-AC96-774B-BCCE-B302099A8057", "{01890a5d-ac96-774b-bcce-b302099a8057}", "01890a5dac96774bbcceb302099a8057", "00000000-0000-0000-0000-000000000000"} {
		add("id", id, engine.Event{ID: id})
	}
	payloads := abitest.HostileJSON()
	for _, name := range slices.Sorted(maps.Keys(payloads)) {
		add("payload", name, engine.Event{Payload: []byte(payloads[name])})
	}
	for _, name := range []string{`{"a":1,"a":2}`, `{"a":1,"b":{"c":[{"d":1,"d":2}]}}`, ` {"a":1,"A":2}`, `{"a":"\"{","b":"{"}`, `{"\ud800":1,"\ud801":2}`, `{"a":[` + strings.Repeat("[", 999) + strings.Repeat("]", 999) + `]}`} {
		add("payload", fmt.Sprintf("%.40s", name), engine.Event{Payload: []byte(name)})
	}
	add("payload", "none", engine.Event{})
	for _, d := range append(abitest.HostileDurations(), 10*365*24*time.Hour, 10*365*24*time.Hour+time.Millisecond) {
		add("keep", d.String(), engine.Event{Keep: d})
	}
	return names, events
}

// newest is the event that was published last.
func (h *house) newest(db store.Store) (e job.Event) {
	h.Helper()
	events, err := db.ListEvents(h.Context(), store.ListEventsParams{Limit: 1})
	h.must(err)
	if len(events) == 1 {
		e = events[0]
	}
	return e
}

// Whatever event is published through any door is refused by all of them, with one
// code, and then nothing is there; or it is kept exactly by all of them, on either
// store. (V20)
func TestEveryDoorOfEventsRefusesAndKeepsTheSame(t *testing.T) {
	h := newHouse(t)
	publish := make([]func(engine.Event) (string, error), len(gates))
	for i, g := range gates {
		publish[i] = g.open(h)
	}
	names, events := hostileEvents()
	for n, e := range events {
		var first string
		for i, g := range gates {
			before := h.newest(g.db(h))
			id, err := publish[i](e)
			if errors.Is(err, errUnsayable) {
				continue
			}
			var code string
			if err != nil {
				var flaws []string
				if code, flaws = refusal(err); len(flaws) > 0 {
					t.Errorf("%s, by the %s: %s", names[n], g.name, strings.Join(flaws, "; "))
				}
			}
			if i == 0 {
				first = code
			}
			if (code == "") != (first == "") || code != first && !syntax[code] {
				t.Errorf("%s: the %s answers %q (%.200v), and the %s %q", names[n], g.name, code, err, gates[0].name, first)
			}
			if e.Keep > 0 && e.Keep <= time.Second && err == nil {
				continue // it may be gone already
			}
			got := h.newest(g.db(h))
			if err != nil {
				if got.Seq != before.Seq {
					t.Errorf("%s: the %s refuses it, and published %+v", names[n], g.name, got)
				}
				continue
			}
			if id == "" {
				id = got.ID
			}
			deduped := e.ID != "" && got.Seq == before.Seq // by an earlier door
			if got.ID != id || got.Seq == before.Seq && !deduped {
				t.Errorf("%s: the %s published %s, and the newest is %s", names[n], g.name, id, got.ID)
			}
			if flaw := unlikeEvent(e, got, strings.HasPrefix(g.name, "outbox, ")); flaw != "" {
				t.Errorf("%s, by the %s: %s", names[n], g.name, flaw)
			}
		}
	}
}

// unlikeEvent says what of an event that was asked for is not as it is kept.
func unlikeEvent(e engine.Event, got job.Event, staged bool) string {
	payload, keep := e.Payload, e.Keep
	if len(payload) == 0 {
		payload = []byte("null")
	}
	if keep == 0 {
		keep = job.DefaultEventKeep
	}
	keep = max(keep.Truncate(time.Millisecond), time.Millisecond)
	if staged {
		keep = max(keep, time.Hour)
	}
	switch kept := got.ExpiresAt.Sub(got.PublishedAt); {
	case got.Topic != e.Topic || got.Key != e.Key || got.Tenant != e.Tenant || e.By != "" && got.By != e.By || e.ID != "" && got.ID != e.ID:
		return fmt.Sprintf("it is %.300q", fmt.Sprintf("%+v", got))
	case !bytes.Equal(got.Payload, payload):
		return fmt.Sprintf("its payload is %.100q", got.Payload)
	case kept != keep:
		return fmt.Sprintf("it is kept for %v", kept)
	}
	return ""
}
