package postgres

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/jobrunner/runner/engine/store/storetest"
)

func TestConformance(t *testing.T) { storetest.Run(t, openDB) }

// Each seed is another history, compared op by op with a model.
func TestModel(t *testing.T) {
	for _, seed := range []uint64{1, 2} {
		storetest.Random(t, openDB, seed, 1200)
	}
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
