package chaostest

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/cmd/runner/internal/app"
	"github.com/jobrunner/runner/engine"
	"github.com/jobrunner/runner/engine/manifest"
	"github.com/jobrunner/runner/engine/store"
	"github.com/jobrunner/runner/engine/store/postgres/pgtest"
)

var (
	chaosSeed = flag.Uint64("chaos.seed", 0, "the schedule to run; 0 is a new one")
	chaosFor  = flag.Duration("chaos.for", 15*time.Second, "how long trouble lasts")
	chaosRuns = flag.Int("chaos.runs", 400, "how many runs there are in all")
	chaosPool = flag.Bool("chaos.bouncer", false, "have everybody go through a PgBouncer in transaction mode, with six connections to the server")
	chaosLose = flag.Bool("chaos.promote", false, "lose the server for good in the middle, and promote its streaming replica")
	chaosFull = flag.Bool("chaos.full", false, "fill the server's disk now and then: $TMPDIR, which has to be a small file system")
	chaosJump = flag.Bool("chaos.jump", false, "have the server's clock jump; the order of claims is not judged then")
	chaosSkew = flag.Bool("chaos.skew", false, "put the clocks of the workers ten minutes off, which takes a build of everything")
)

const (
	workers = 3
	slots   = 20 // of each
	lease   = 3 * time.Second
	// backlog is the tenant that enqueues two tenths of everything at once, before
	// anyone else.
	backlog      = "backlog"
	others       = 20 // tenants with a share of one tenth, after it
	endPatience  = 5 * time.Minute
	enqueueBatch = 50
)

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(pgtest.Main(m))
}

func TestWhateverHappensToAFleetEveryRunEndsOnceAndNoRecordedStepRunsAgain(t *testing.T) {
	seed := *chaosSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	schedule := plan(planParams{rng: rand.New(rand.NewPCG(seed, 1)), length: *chaosFor, promote: *chaosLose, full: *chaosFull, jump: *chaosJump})
	t.Logf("seed %d, %d runs, trouble for %v:\n%s", seed, *chaosRuns, *chaosFor, printed(schedule))
	c := newChaos(t, seed)
	defer func() {
		if t.Failed() {
			t.Logf("again with: make chaos CHAOS_SEED=%d CHAOS_FOR=%v CHAOS_RUNS=%d; logs are in %s", seed, *chaosFor, *chaosRuns, c.dir)
		}
	}()
	c.run(schedule)
	c.check()
}

// chaos is one round.
type chaos struct {
	*testing.T
	ctx     context.Context
	dir     string
	server  *pgtest.Server
	standby *pgtest.Server // nil without one, and once it is promoted
	effects *effects
	workers []*worker
	proxies []*proxy // of the workers, and of the test's own client
	client  *engine.Client

	database string      // the undisturbed view
	direct   store.Store // the same

	mu       sync.Mutex // guards all below
	rng      *rand.Rand
	runs     map[string]string // acknowledged, with their tenants
	upfront  map[string]bool   // those that were there before the first claim
	problems int
}

func newChaos(t *testing.T, seed uint64) *chaos {
	c := &chaos{T: t, ctx: t.Context(), rng: rand.New(rand.NewPCG(seed, 2)), runs: map[string]string{}, upfront: map[string]bool{}}
	var err error
	if c.dir, err = os.MkdirTemp("", "runner-chaos-"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if !t.Failed() {
			_ = os.RemoveAll(c.dir)
		}
	})
	build(t, c.dir, *chaosSkew)
	if c.server, err = pgtest.Start(c.ctx, pgtest.Options{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.server.Stop() })
	database, _, err := c.server.CreateDatabase(c.ctx)
	if err != nil {
		t.Fatal(err)
	}
	// So slow that the work lasts about half as long as the trouble, undisturbed.
	c.effects = newEffects(*chaosFor*workers*slots/time.Duration(3**chaosRuns), c.float)
	t.Cleanup(func() {
		c.effects.server.CloseClientConnections()
		c.effects.server.Close()
	})
	m, report := manifest.Load(writeManifest(t, c.dir, c.effects.server.URL))
	if report != nil {
		t.Fatal(report)
	}
	c.database = database
	if *chaosJump {
		c.installClock()
	}
	c.direct = c.open(database, true)
	c.installAudit()
	if *chaosLose {
		standby, err := c.server.Standby(c.ctx)
		if err != nil {
			t.Fatal(err)
		}
		c.standby = standby
		t.Cleanup(func() { _ = standby.Stop() })
	}
	through := func() string { return c.server.URL() } // of the server that there is then
	if *chaosPool {
		bouncer := c.server.Bouncer(t, database, "default_pool_size=6", "max_client_conn=200")
		through = func() string { return bouncer }
	}
	for range workers + 1 {
		c.proxy(through)
	}
	c.installRoles(database)
	asks := as(t, c.url(database, workers), roleAsks)
	if c.client, err = app.NewClient(c.open(asks, false), m); err != nil {
		t.Fatal(err)
	}
	c.enqueueUpfront()
	for i := range workers {
		skew := time.Duration(0)
		if *chaosSkew {
			skew = []time.Duration{-10 * time.Minute, 0, 10 * time.Minute}[i%3]
		}
		w, err := startWorker(workerParams{
			name: fmt.Sprintf("worker-%d", i), dir: c.dir, database: as(t, c.url(database, i), roleWorks), skew: skew, fail: c.failf,
		})
		if err != nil {
			t.Fatal(err)
		}
		c.workers = append(c.workers, w)
	}
	for _, w := range c.workers {
		w.awaitStart()
	}
	return c
}

// failf notes a failure, from any goroutine.
func (c *chaos) failf(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.problems++; c.problems <= 20 {
		c.Errorf(format, args...)
	}
}

func (c *chaos) float() float64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rng.Float64()
}

// open opens the database, with its schema if it has none yet.
func (c *chaos) open(database string, migrate bool) store.Store {
	db, err := app.FindDatabase(app.DatabaseParams{Flag: database})
	if err != nil {
		c.Fatal(err)
	}
	if migrate {
		m, err := app.NewMigrator(db)
		if err != nil {
			c.Fatal(err)
		}
		if _, err := m.Migrate(c.ctx); err != nil {
			c.Fatal(err)
		}
	}
	s, err := app.OpenStore(c.ctx, app.StoreParams{Database: db, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		c.Fatal(err)
	}
	c.Cleanup(func() { _ = s.Close() })
	return s
}

// proxy adds a proxy in front of whatever the URL leads to when a connection is
// made.
func (c *chaos) proxy(through func() string) {
	p, err := newProxy(func() (net.Conn, error) {
		c.mu.Lock()
		u, err := url.Parse(through())
		c.mu.Unlock()
		if err != nil {
			return nil, err
		}
		return net.Dial("unix", filepath.Join(u.Query().Get("host"), ".s.PGSQL."+u.Query().Get("port")))
	})
	if err != nil {
		c.Fatal(err)
	}
	c.Cleanup(p.close)
	c.proxies = append(c.proxies, p)
}

// url is the database's through a proxy.
func (c *chaos) url(database string, i int) string {
	u, err := url.Parse(database)
	if err != nil {
		c.Fatal(err)
	}
	u.Host, u.RawQuery = c.proxies[i].listener.Addr().String(), ""
	return u.String()
}

// enqueueUpfront enqueues three tenths of the runs before anyone works: a large
// backlog of one tenant, and behind it a little of everybody else's. Once they are
// worked off there are idle slots, so that a run which is taken from a worker is
// claimed by another at once.
func (c *chaos) enqueueUpfront() {
	n := *chaosRuns
	var tenants []string
	for range n * 2 / 10 {
		tenants = append(tenants, backlog)
	}
	for i := range n / 10 {
		tenants = append(tenants, fmt.Sprintf("tenant-%02d", i%others))
	}
	for batch := range slices.Chunk(tenants, 1000) {
		c.enqueue(batch, true)
	}
}

// enqueueMeanwhile enqueues the rest, spread over the trouble.
func (c *chaos) enqueueMeanwhile() {
	left := *chaosRuns - len(c.upfront)
	pace := *chaosFor / time.Duration(max(1, left/enqueueBatch))
	for left > 0 {
		tenants := make([]string, min(left, enqueueBatch))
		for i := range tenants {
			tenants[i] = fmt.Sprintf("late-%02d", (left+i)%others)
		}
		c.enqueue(tenants, false)
		left -= len(tenants)
		time.Sleep(pace)
	}
}

// enqueue enqueues a run for each tenant, and asks again under the same ids
// until it is acknowledged.
func (c *chaos) enqueue(tenants []string, upfront bool) {
	requests := make([]engine.Request, len(tenants))
	for i, tenant := range tenants {
		input, err := json.Marshal(map[string]any{"tenant": tenant, "nap": i%10 == 0})
		if err != nil {
			c.Fatal(err)
		}
		requests[i] = engine.Request{Job: "effects", ID: uuid.Must(uuid.NewV7()).String(), Input: input}
	}
	for {
		_, err := c.client.EnqueueMany(c.ctx, requests)
		if err == nil {
			break
		}
		if c.ctx.Err() != nil {
			return
		}
		if !errors.Is(err, store.ErrUnknown) && !strings.HasPrefix(abi.CodeOf(err), "X_DATABASE_") {
			c.failf("enqueue: %v", err)
		}
		time.Sleep(100 * time.Millisecond)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, r := range requests {
		c.runs[r.ID] = tenants[i]
		if upfront {
			c.upfront[r.ID] = true
		}
	}
}

// run lets the schedule happen, and then waits until every run has ended.
func (c *chaos) run(schedule []action) {
	var wg sync.WaitGroup
	wg.Go(c.enqueueMeanwhile)
	var server sync.Mutex
	began := time.Now()
	for _, a := range schedule {
		time.Sleep(time.Until(began.Add(a.at)))
		wg.Go(func() { c.do(a, &server) })
	}
	wg.Wait()
	c.awaitEnd()
	for _, w := range c.workers {
		w.close()
	}
}

// do is one action. Those on one process, and those on the server, wait for each
// other.
func (c *chaos) do(a action, server *sync.Mutex) {
	if a.kind.ofServer() {
		server.Lock()
		defer server.Unlock()
		c.trouble(a)
		return
	}
	p := c.proxies[a.target]
	if a.target < workers {
		w := c.workers[a.target]
		w.busy.Lock()
		defer w.busy.Unlock()
		switch a.kind {
		case kill:
			w.signal(9)
			return
		case drain:
			w.signal(15)
			return
		case pause:
			w.pause(a.length)
			return
		}
	}
	switch a.kind {
	case cut:
		p.cut()
	case stall:
		p.setStall(true)
		time.Sleep(a.length)
		p.setStall(false) // what was written then arrives now, whoever has given up waiting for it
	case delay:
		p.setDelay(a.by)
		time.Sleep(a.length)
		p.setDelay(0)
	}
}

// awaitEnd waits until no run is live. Patience is what tells a fleet that hangs
// from one that has much to do: it begins anew with every run that ends.
func (c *chaos) awaitEnd() {
	deadline := time.Now().Add(endPatience)
	ended := int64(0)
	for {
		s, err := c.direct.Stats(c.ctx)
		var live, over int64
		for _, q := range s.Queues {
			live += q.Ready + q.Delayed + q.Running + q.Suspended
			over += q.Done + q.Dead
		}
		if over > ended {
			ended, deadline = over, time.Now().Add(endPatience)
		}
		switch {
		case err == nil && live == 0:
			return
		case time.Now().After(deadline):
			c.failf("%d runs are still live, and none has ended for %v: %+v, %v", live, endPatience, s.Queues, err)
			return
		}
		time.Sleep(200 * time.Millisecond)
	}
}
