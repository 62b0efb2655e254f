package postgres

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/jobrunner/runner/engine/store"
)

// A row whose texts somebody else has damaged costs no other run its claim, and
// no listing its page.
func TestARowThatIsDamagedHarmsNoOther(t *testing.T) {
	ctx := t.Context()
	cfg := migrated(t, Config{})
	s := open(t, cfg)
	enqueueN(t, s, 3, 3, noTenant)
	connected(t, cfg.URL, func(c *pgx.Conn) {
		tag, err := c.Exec(ctx, s.cfg.dialect().fill(`UPDATE {schema}.waiting SET error = 'no JSON', progress = '[1]'
			WHERE id = (SELECT min(id::text)::uuid FROM {schema}.waiting)`))
		if err != nil || tag.RowsAffected() != 1 {
			t.Fatal(tag, err)
		}
	})
	if runs, err := s.List(ctx, store.ListParams{Limit: 10}); err != nil || len(runs) != 3 {
		t.Errorf("listed %d, %v", len(runs), err)
	}
	if err := s.Register(ctx, store.RegisterParams{ID: "w", Lease: time.Minute}); err != nil {
		t.Fatal(err)
	}
	claimed, err := s.Claim(ctx, store.ClaimParams{Worker: "w", Queues: []store.QueueLimit{{Queue: "q", Limit: 10}}})
	runs := claimed.Runs
	if err != nil || len(runs) != 3 {
		t.Fatalf("claimed %d, %v", len(runs), err)
	}
	damaged := 0
	for _, r := range runs {
		if r.Error.Message != "" {
			damaged++
		}
	}
	if damaged != 1 {
		t.Errorf("%d runs say that their error is damaged", damaged)
	}
}
