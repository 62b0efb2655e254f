package postgres

import (
	"encoding/json"
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

// An enqueuer's role may write whatever instants the server knows. They are read
// as years that can be printed, in a listing, by id and in the counts of queues.
func TestForgedInstantsAreReadAsYearsThatCanBePrinted(t *testing.T) {
	for name, at := range map[string]string{
		"infinity": "infinity", "before all": "-infinity", "before Christ": "4713-01-01 00:00:00+00 BC", "far": "294276-12-31 00:00:00+00",
	} {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			cfg := migrated(t, Config{})
			s := open(t, cfg)
			enqueueN(t, s, 3, 3, noTenant)
			connected(t, cfg.URL, func(c *pgx.Conn) {
				tag, err := c.Exec(ctx, s.cfg.dialect().fill(`UPDATE {schema}.waiting SET run_at = $1::text::timestamptz, created_at = $1::text::timestamptz
					WHERE id = (SELECT min(id::text)::uuid FROM {schema}.waiting)`), at)
				if err != nil || tag.RowsAffected() != 1 {
					t.Fatal(tag, err)
				}
			})
			runs, err := s.List(ctx, store.ListParams{Limit: 10})
			if err != nil || len(runs) != 3 {
				t.Fatalf("listed %d, %v", len(runs), err)
			}
			forged := 0
			for _, r := range runs {
				got, err := s.Get(ctx, r.ID)
				if err != nil {
					t.Fatal(err)
				}
				for _, at := range []time.Time{r.RunAt, r.CreatedAt, got.RunAt, got.CreatedAt} {
					if _, err := json.Marshal(at); err != nil || at.IsZero() {
						t.Errorf("%s: %v", at, err)
					}
				}
				if y := r.CreatedAt.Year(); y == 1 || y == 9999 {
					forged++
				}
			}
			if forged != 1 {
				t.Errorf("%d runs have a year at the end of what can be printed", forged)
			}
			stats, err := s.Stats(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := json.Marshal(stats); err != nil {
				t.Error(err)
			}
			if err := s.Register(ctx, store.RegisterParams{ID: "w", Lease: time.Minute}); err != nil {
				t.Fatal(err)
			}
			claimed, err := s.Claim(ctx, store.ClaimParams{Worker: "w", Queues: []store.QueueLimit{{Queue: "q", Limit: 10}}})
			if err != nil || len(claimed.Runs) < 2 {
				t.Errorf("claimed %d, %v", len(claimed.Runs), err)
			}
		})
	}
}
