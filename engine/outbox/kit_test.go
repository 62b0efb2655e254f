package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/jobrunner/runner/engine/internal/enginetest"
	"github.com/jobrunner/runner/engine/manifest"
	"github.com/jobrunner/runner/engine/metrics"
	"github.com/jobrunner/runner/engine/outbox"
	"github.com/jobrunner/runner/engine/queue"
	"github.com/jobrunner/runner/engine/store"
	pgoutbox "github.com/jobrunner/runner/engine/store/postgres/outbox"
	"github.com/jobrunner/runner/engine/store/postgres/pgtest"
)

// jobs are those of the tests: "free" takes anything, "keyed" has the key
// user:{id}, "tenant" is of {org}, "checked" wants an integer n.
func jobs() *manifest.Manifest {
	checked, err := manifest.CompileSchema("checked.json", []byte(`{"type":"object","required":["n"],"properties":{"n":{"type":"integer"}}}`))
	if err != nil {
		panic(err)
	}
	g := &enginetest.Guest{Name: "q", Handlers: map[string]enginetest.Handler{"free": nil, "keyed": nil, "tenant": nil, "checked": nil}}
	return enginetest.Serve(g, func(m *manifest.Manifest) {
		m.Jobs["keyed"].Key = enginetest.Key("user:{id}")
		m.Jobs["tenant"].Tenant = enginetest.Tenant("{org}")
		m.Jobs["checked"].Input = checked
	}).Manifest
}

var (
	schemas  atomic.Int64
	database struct {
		once sync.Once
		url  string
	}
)

// sharedDatabase is the application's database of most tests.
func sharedDatabase(t testing.TB) string {
	t.Helper()
	database.once.Do(func() {
		url, _, err := pgtest.Shared(t).CreateDatabase(context.Background())
		if err != nil {
			t.Error(err)
		}
		database.url = url
	})
	if database.url == "" {
		t.FailNow()
	}
	return database.url
}

// world is an application's database with an outbox, and a queue in another.
type world struct {
	testing.TB
	cfg      pgoutbox.Config
	app      *pgx.Conn // the application's session
	outbox   *pgoutbox.DB
	runs     *enginetest.Store
	manifest *manifest.Manifest
	queue    *queue.Queue
	events   *enginetest.Events
	registry *prometheus.Registry
	metrics  *metrics.Outbox
}

func newWorld(t testing.TB) *world {
	t.Helper()
	return newWorldIn(t, sharedDatabase(t))
}

// newWorldIn is newWorld in a database of the test's.
func newWorldIn(t testing.TB, database string) *world {
	t.Helper()
	w := &world{
		TB: t, cfg: pgoutbox.Config{URL: database, Schema: fmt.Sprintf("app_%d", schemas.Add(1)), MaxConns: 6},
		runs: &enginetest.Store{Store: enginetest.Memory(t)}, manifest: jobs(), events: &enginetest.Events{}, registry: prometheus.NewRegistry(),
	}
	w.queue = queue.New(queue.Config{Store: w.runs, Manifest: func() *manifest.Manifest { return w.manifest }})
	m, err := pgoutbox.OpenMigrator(w.cfg)
	w.check(err)
	_, err = m.Migrate(context.Background())
	w.check(err)
	w.outbox = w.open()
	w.app, err = pgx.Connect(context.Background(), w.cfg.URL)
	w.check(err)
	t.Cleanup(func() { w.app.Close(context.Background()) })
	w.metrics, err = metrics.NewOutbox(w.registry)
	w.check(err)
	return w
}

// open is the outbox as another process has it.
func (w *world) open() *pgoutbox.DB {
	w.Helper()
	d, err := pgoutbox.Open(context.Background(), w.cfg)
	w.check(err)
	w.Cleanup(func() { d.Close() })
	return d
}

func (w *world) check(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// relay is one over the world, adapted by change.
func (w *world) relay(change func(*outbox.Config)) *outbox.Relay {
	w.Helper()
	cfg := outbox.Config{Outbox: w.outbox, Queue: w.queue, Logger: w.events.Logger(), Metrics: w.metrics, Lease: time.Hour}
	if change != nil {
		change(&cfg)
	}
	r, err := outbox.New(cfg)
	w.check(err)
	return r
}

// stage stages requests in one committed transaction and answers their ids.
func (w *world) stage(requests ...pgoutbox.Request) []string {
	w.Helper()
	var ids []string
	w.check(pgx.BeginFunc(context.Background(), w.app, func(tx pgx.Tx) (err error) {
		ids, err = pgoutbox.Schema(w.cfg.Schema).EnqueueManyTx(context.Background(), tx, requests)
		return err
	}))
	return ids
}

// numbered are n requests of the job free with inputs from 0.
func numbered(n int) []pgoutbox.Request {
	out := make([]pgoutbox.Request, n)
	for i := range out {
		out[i] = pgoutbox.Request{Job: "free", Input: fmt.Append(nil, i)}
	}
	return out
}

// pass makes one pass that must work.
func (w *world) pass(r *outbox.Relay) outbox.Result {
	w.Helper()
	res, err := r.Pass(context.Background())
	w.check(err)
	return res
}

// drain passes until nothing is left to claim.
func (w *world) drain(r *outbox.Relay) (total outbox.Result) {
	w.Helper()
	for {
		res := w.pass(r)
		if res.Claimed == 0 {
			return total
		}
		total.Claimed += res.Claimed
		total.Published += res.Published
		total.Deduped += res.Deduped
		total.Rejected += res.Rejected
	}
}

// all are the runs of the queue, oldest first.
func (w *world) all() []string {
	w.Helper()
	var ids []string
	for before := ""; ; {
		page, err := w.runs.List(context.Background(), store.ListParams{Limit: 1000, Before: before})
		w.check(err)
		for _, r := range page {
			ids = append(ids, r.ID)
		}
		if len(page) < 1000 {
			slices.Reverse(ids)
			return ids
		}
		before = page[len(page)-1].ID
	}
}

// rows are the outbox's of a state, those staged first first.
func (w *world) rows(state store.StagedState) []store.Staged {
	w.Helper()
	rows, err := w.outbox.ListStaged(context.Background(), store.ListStagedParams{State: state, Limit: 1000})
	w.check(err)
	slices.Reverse(rows)
	return rows
}

// sql runs a statement with {schema} filled in, as the owner.
func (w *world) sql(text string) {
	w.Helper()
	_, err := w.app.Exec(context.Background(), text)
	w.check(err)
}

// lapse ends the leases of all claimed rows.
func (w *world) lapse() {
	w.Helper()
	w.sql(`UPDATE "` + w.cfg.Schema + `".outbox SET leased_until = now() - interval '1 millisecond' WHERE leased_until IS NOT NULL`)
}

// metric is the value of one metric of the outbox "default", "" for all of its labels.
func (w *world) metric(name string) float64 {
	w.Helper()
	families, err := w.registry.Gather()
	w.check(err)
	sum := 0.0
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return sum
}

// between stands between a relay and its outbox; op is claim, settle or release.
type between struct {
	store.OutboxRelay
	do func(op string, call func() error) error
}

func (b *between) Claim(ctx context.Context, p store.StagedClaimParams) (rows []store.Staged, err error) {
	err = b.do("claim", func() (err error) { rows, err = b.OutboxRelay.Claim(ctx, p); return err })
	if err != nil {
		return nil, err
	}
	return rows, nil
}

func (b *between) SettleStaged(ctx context.Context, batch []store.StagedSettleParams) (landed []bool, err error) {
	err = b.do("settle", func() (err error) { landed, err = b.OutboxRelay.SettleStaged(ctx, batch); return err })
	if err != nil {
		return nil, err
	}
	return landed, nil
}

func (b *between) Release(ctx context.Context, refs []store.StagedRef) error {
	return b.do("release", func() error { return b.OutboxRelay.Release(ctx, refs) })
}

// queueFunc is a queue of one func.
type queueFunc func(ctx context.Context, requests []queue.Request) ([]queue.Verdict, error)

func (f queueFunc) EnqueueEach(ctx context.Context, requests []queue.Request) ([]queue.Verdict, error) {
	return f(ctx, requests)
}

func (f queueFunc) PublishEach(context.Context, []queue.Event) ([]queue.Verdict, error) {
	return nil, errors.New("a queue of runs alone")
}
