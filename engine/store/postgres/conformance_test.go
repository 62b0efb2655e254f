package postgres

import (
	"context"
	"flag"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/jobrunner/runner/engine/store"
	"github.com/jobrunner/runner/engine/store/storetest"
)

func TestConformance(t *testing.T) { storetest.Run(t, openDB) }

// The same while exact claims are too slow to be made each time.
func TestConformanceByLanes(t *testing.T) {
	storetest.Run(t, func(tb testing.TB) storetest.DB { return byLanes(openWith(tb, Config{})) })
}

// byLanes has every exact claim taken to be slow.
func byLanes(d db) db {
	d.claims.limit = 1
	return d
}

func TestCountsStop(t *testing.T) {
	storetest.RunBounds(t, func(tb testing.TB) storetest.DB {
		d := openWith(tb, Config{})
		d.bounds = storetest.LowBounds()
		return d
	})
}

var seed = flag.Uint64("seed", 1, "what random tests draw from")

// Each seed is another history, compared op by op with a model.
func TestModel(t *testing.T) {
	for _, seed := range []uint64{*seed, *seed + 1} {
		storetest.Random(t, openDB, seed, 1200)
	}
	storetest.Random(t, func(tb testing.TB) storetest.DB { return byLanes(openWith(tb, Config{})) }, *seed+3, 1200)
}

func TestHammer(t *testing.T) { storetest.Hammer(t, openDB, 1, 150) }

// Every statement of the .sql files prepares against the latest schema, so none
// waits for its first use to be found wrong.
func TestStatementsPrepare(t *testing.T) {
	cfg := migrated(t, Config{})
	cfg.now = systemNow
	texts := cfg.dialect().texts()
	connected(t, cfg.URL, func(c *pgx.Conn) {
		for name, st := range statements {
			if _, err := c.Prepare(context.Background(), name, texts[st.index]); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

func TestRandomLimits(t *testing.T) {
	for _, seed := range []uint64{*seed, *seed + 1} {
		storetest.RandomLimits(t, openDB, seed, 1000)
	}
}

func TestHammerLimits(t *testing.T) {
	d := openWith(t, Config{})
	stores := []store.Store{d.Store, open(t, d.cfg), open(t, d.cfg)}
	advance := func(by time.Duration) {
		d.Advance(by)
		for _, s := range stores {
			s.(*Store).claims.reset()
		}
	}
	storetest.HammerLimits(t, stores, advance, 1, 400)
}
