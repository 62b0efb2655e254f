package outbox

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/jobrunner/runner/engine/store"
	"github.com/jobrunner/runner/engine/store/postgres/pgtest"
)

// events counts what is logged.
type events struct {
	slog.Handler
	mu   sync.Mutex
	seen []string
}

func (e *events) Enabled(context.Context, slog.Level) bool { return true }

func (e *events) Handle(_ context.Context, r slog.Record) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.seen = append(e.seen, r.Message)
	return nil
}

func (e *events) count(message string) (n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, m := range e.seen {
		if m == message {
			n++
		}
	}
	return n
}

// Through a transaction pooler application and relay work the same, by polling,
// which is said once; LISTEN is not left with a session that another gets.
func TestEverythingWorksThroughPgBouncer(t *testing.T) {
	direct := installed(t)
	cfg, log := direct, &events{}
	cfg.URL = pgtest.Bouncer(t, direct.URL, "default_pool_size=2")
	cfg.Logger, cfg.MaxConns = slog.New(log), 4
	d, a := open(t, cfg), session(t, cfg)
	stop := d.Wakes(func() { t.Error("a wake") })
	defer stop()

	var want []string
	for range 3 {
		a.tx(func(tx pgx.Tx) {
			ids, err := a.schema.EnqueueManyTx(t.Context(), tx, []Request{{Job: "j"}, {Job: "j"}, {Job: "j"}})
			if err != nil {
				t.Fatal(err)
			}
			want = append(want, ids...)
		})
	}
	// More at once than there are server connections.
	var mu sync.Mutex
	var got []string
	var wg sync.WaitGroup
	for _, relay := range []string{"r1", "r2", "r3", "r4"} {
		wg.Go(func() {
			for {
				rows, err := d.Claim(context.Background(), store.StagedClaimParams{Relay: relay, Limit: 2, Lease: lease})
				if err != nil {
					t.Error(err)
					return
				}
				if len(rows) == 0 {
					return
				}
				if landed, err := d.SettleStaged(context.Background(), settlesOf(rows)); err != nil || slices.Contains(landed, false) {
					t.Error(landed, err)
				}
				mu.Lock()
				got = append(got, idsOf(rows)...)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("%d of %d rows", len(got), len(want))
	}
	if d.Listening() || log.count("outbox.listen-unproven") != 1 {
		t.Errorf("listening %v; said %d times that wakes do not arrive", d.Listening(), log.count("outbox.listen-unproven"))
	}
	if n := value[int](session(t, direct), `SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN "`+cfg.Schema+`%'`); n != 0 {
		t.Errorf("%d sessions listen", n)
	}
}

// (W20) A proxy that accepts LISTEN and delivers nothing is found out, said once,
// and tried again.
func TestListeningIsProved(t *testing.T) {
	cfg, log := installed(t), &events{}
	cfg.Logger = slog.New(log)
	d := open(t, cfg)
	through, err := pgx.ParseConfig(pgtest.Bouncer(t, cfg.URL))
	if err != nil {
		t.Fatal(err)
	}
	d.listen = newListener(d, through, d.listen.channel)
	d.listen.wait = 50 * time.Millisecond
	stop := d.Wakes(func() { t.Error("a wake") })
	defer stop()
	// It goes on trying. (On a busy machine a probe may not even be sent in time.)
	for d.listen.failed.Load() < 3 || log.count("outbox.listen-unproven") == 0 {
		time.Sleep(10 * time.Millisecond)
	}
	if n := log.count("outbox.listen-unproven"); n != 1 || d.Listening() {
		t.Errorf("said %d times that wakes do not arrive, listening %v", n, d.Listening())
	}
}
