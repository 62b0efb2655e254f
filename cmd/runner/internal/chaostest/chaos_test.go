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
	"syscall"
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
	chaosSeed = flag.Uint64("chaos.seed", 1, "the schedule to run; 0 is a new one")
	chaosFor  = flag.Duration("chaos.for", 15*time.Second, "how long trouble lasts")
	chaosRuns = flag.Int("chaos.runs", 400, "how many runs there are in all")
	chaosPace = flag.Duration("chaos.every", time.Second, "how long it is from one trouble to the next, on average")
	chaosOnly = flag.String("chaos.only", "", "the only kinds of trouble that there are, separated by commas; empty is all")
	chaosBug  = flag.String("chaos.plant", "", "a bug that the workers are built with, which the round must find: settle-fence, settle-ordinal, step-fence or step-ordinal")
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
	tight   = 2 * time.Second // the timeout of every fourth run's attempts
	// backlog is the tenant that enqueues two tenths of everything at once, before
	// anyone else.
	backlog      = "backlog"
	others       = 20       // tenants with a share of one tenth, after it
	alone        = "alone-" // begins the tenants of every fifth of the later runs, which have one each
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
	schedule := plan(planParams{
		rng: rand.New(rand.NewPCG(seed, 1)), length: *chaosFor, every: *chaosPace,
		only: *chaosOnly, promote: *chaosLose, full: *chaosFull, jump: *chaosJump,
	})
	t.Logf("seed %d, %d runs, trouble for %v:\n%s", seed, *chaosRuns, *chaosFor, printed(schedule))
	c := newChaos(t, seed)
	defer func() {
		if t.Failed() {
			t.Logf("again with: %s; logs are in %s", again(seed), c.dir)
		}
	}()
	c.run(schedule)
	c.check()
	if *chaosBug != "" && c.problems == 0 {
		t.Errorf("%s was planted and not found", *chaosBug)
	}
}

// again is the command that has the same schedule happen.
func again(seed uint64) string {
	flags := ""
	flag.Visit(func(f *flag.Flag) {
		switch {
		case f.Name == "chaos.seed" || !strings.HasPrefix(f.Name, "chaos."):
		default:
			flags += fmt.Sprintf(" -%s=%s", f.Name, f.Value)
		}
	})
	return fmt.Sprintf("go test ./cmd/runner/internal/chaostest -run Whatever -count=1 -v -timeout 0 -chaos.seed=%d%s", seed, flags)
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
	happened map[string]int    // what there was of each trouble
	problems int
}

func newChaos(t *testing.T, seed uint64) *chaos {
	c := &chaos{T: t, ctx: t.Context(), rng: rand.New(rand.NewPCG(seed, 2)), runs: map[string]string{}, upfront: map[string]bool{}, happened: map[string]int{}}
	var err error
	if c.dir, err = os.MkdirTemp("", "runner-chaos-"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if !t.Failed() {
			_ = os.RemoveAll(c.dir)
		}
	})
	build(t, c.dir, *chaosSkew, *chaosBug)
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
	for i := range workers {
		writeManifest(t, c.dir, workerName(i), c.effects.server.URL)
	}
	m, report := manifest.Load(writeManifest(t, c.dir, "client", c.effects.server.URL))
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
			name: workerName(i), dir: c.dir, database: as(t, c.url(database, i), roleWorks), skew: skew, fail: c.failf,
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(w.close) // of a round that does not come to its end
		c.workers = append(c.workers, w)
	}
	for _, w := range c.workers {
		if !w.awaitStart() {
			t.FailNow() // it is said why
		}
	}
	return c
}

func workerName(i int) string { return fmt.Sprintf("worker-%d", i) }

// failf notes a failure, from any goroutine. Of a planted bug it is a finding.
func (c *chaos) failf(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch c.problems++; {
	case c.problems > 20:
	case *chaosBug != "":
		c.Logf("found: "+format, args...)
	default:
		c.Errorf(format, args...)
	}
}

// note counts what happened.
func (c *chaos) note(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.happened[what]++
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
			if tenants[i] = fmt.Sprintf("late-%02d", (left+i)%others); i%5 == 0 {
				tenants[i] = fmt.Sprint(alone, left-i)
			}
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
		name := "effects"
		if i%4 == 1 || i%2 == 1 && strings.HasPrefix(tenant, alone) {
			name = "timed"
		}
		requests[i] = engine.Request{Job: name, ID: uuid.Must(uuid.NewV7()).String(), Input: input}
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
	over := make(chan struct{})
	wg.Go(func() { c.tellProgress(began, over) })
	for _, a := range schedule {
		due := began.Add(a.at)
		time.Sleep(time.Until(due))
		wg.Go(func() { c.do(a, due, &server) })
	}
	c.awaitEnd(began.Add(*chaosFor))
	close(over)
	wg.Wait()
	c.loseOne()
	for _, w := range c.workers {
		w.close()
	}
}

// loseOne has a run taken over for certain, which a machine too busy for its troubles
// may not have come to: whichever process claims it is killed in its first step.
func (c *chaos) loseOne() {
	var once sync.Once
	lost := make(chan *trap, 1)
	traps := make([]*trap, len(c.workers))
	for i, w := range c.workers {
		t := &trap{}
		t.spring = func([]string) {
			once.Do(func() {
				t.holds = true // to the last: it may end a little later than it is told to
				w.signal(syscall.SIGKILL)
				lost <- t
			})
		}
		traps[i] = t
		c.effects.set(w.name, t)
	}
	c.enqueue([]string{alone + "lost"}, false)
	select {
	case t := <-lost:
		// Taken over it may be buried before it has an effect: a process that is too busy
		// to renew its lease is as lost as one that was killed.
		for until := time.Now().Add(endPatience); !within(t.next, time.Second) && !c.over(t.run); {
			if time.Now().After(until) {
				c.failf("run %s of a killed process has not been taken over for %v", t.run, endPatience)
				break
			}
		}
	case <-time.After(endPatience):
		c.failf("the last run has not begun for %v", endPatience)
	}
	for i, w := range c.workers {
		c.effects.unset(w.name, traps[i])
	}
	c.awaitEnd(time.Now())
}

// over reports whether a run has ended.
func (c *chaos) over(run string) bool {
	r, err := c.direct.Get(c.ctx, run)
	return err == nil && r.State.Terminal()
}

// tooLate is how long a trouble may wait for those before it. On a machine that is
// too busy for all of them some are left out: the fleet has to get to work.
const tooLate = 5 * time.Second

// calm is how long the server is left alone after a trouble.
const calm = 2 * time.Second

// do is one action. Those on one process, and those on the server, wait for each
// other.
func (c *chaos) do(a action, due time.Time, server *sync.Mutex) {
	turn := server
	if !a.kind.ofServer() {
		if turn = nil; a.target < workers {
			turn = &c.workers[a.target].busy
		}
	}
	if turn != nil && a.kind != stall && a.kind != delay && a.kind != cut {
		turn.Lock()
		defer turn.Unlock()
		if a.kind != promote && time.Since(due) > tooLate {
			c.note("left out")
			return
		}
	}
	c.note(string(a.kind))
	if a.kind.ofServer() {
		c.trouble(a)
		time.Sleep(calm)
		return
	}
	c.troubleProcess(a)
}

// awaitEnd waits until no run is live, after the trouble. Patience is what tells a
// fleet that hangs from one that has much to do: it begins anew with every run that
// ends.
func (c *chaos) awaitEnd(trouble time.Time) {
	time.Sleep(time.Until(trouble))
	deadline := time.Now().Add(endPatience)
	ended := int64(0)
	for {
		live, over, err := c.count()
		if over > ended {
			ended, deadline = over, time.Now().Add(endPatience)
		}
		switch {
		case err == nil && live == 0:
			return
		case time.Now().After(deadline):
			c.failf("%d runs are still live, and none has ended for %v: %v", live, endPatience, err)
			return
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// count is how many runs are live, and how many have ended.
func (c *chaos) count() (live, over int64, err error) {
	c.mu.Lock()
	direct := c.direct
	c.mu.Unlock()
	s, err := direct.Stats(c.ctx)
	for _, q := range s.Queues {
		live += q.Ready + q.Delayed + q.Running + q.Suspended
		over += q.Done + q.Dead
	}
	return live, over, err
}

// tellProgress says every minute how far a long round is.
func (c *chaos) tellProgress(began time.Time, over <-chan struct{}) {
	tick := time.NewTicker(time.Minute)
	defer tick.Stop()
	for {
		select {
		case <-over:
			return
		case <-tick.C:
		}
		live, ended, err := c.count()
		if err != nil {
			continue // the server is away
		}
		c.Logf("after %v: %d of %d have ended, %d are live", time.Since(began).Round(time.Second), ended, *chaosRuns, live)
	}
}
