package sqlite

import (
	"regexp"
	"strings"
	"testing"
)

func open(t testing.TB, cfg Config) *Store {
	t.Helper()
	cfg.Create = true
	s, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// Every statement of the .sql files prepares against the latest schema, so none
// waits for its first use to be found wrong.
func TestStatementsPrepare(t *testing.T) {
	s := open(t, Config{Path: Memory})
	err := s.w.do(t.Context(), func(tx *tx) error {
		for name, st := range statements {
			if q := tx.use(st); q.err != nil {
				t.Errorf("%s: %v", name, q.err)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// No statement walks all runs, and no claim, settle or step builds a temporary
// table: what that costs grows with the database, or is paid on every run.
func TestStatementPlans(t *testing.T) {
	walks := map[string]bool{ // live indexes and small tables, as a whole, on purpose
		"stats_running": true, "stats_ended": true, "stats_workers": true, "lapsed_workers": true, "lapse_workers": true, "list_workers": true,
		"list_schedules": true, "release_schedules": true, "list_pauses": true, "paused": true, "forget_rates": true,
		"stats_events": true, // of a bounded number
	}
	temporary := map[string]bool{
		"promote":        true, // the ids it moves
		"set_more_aside": true, // the same, of a bounded number
		"set_lane_aside": true, // the same
		"age_lane":       true, // the same
		"stats_blocked":  true, // those it counts, of a bounded number
		"invoke_depth":   true, // a row for each run on the way, of a bounded number
		"purge_events":   true, // those it deletes
		"upsert_step":    true, // the row it answers
		"stats_running":  true, // a few running runs
		"lapsed_workers": true, // a few workers
		"list_steps":     true, // one run's steps
		"queues_ready":   true, // a row for each queue
		"queues_waiting": true, // the same
		"lead_schedule":  true, // the row it answers
		"stats_lanes":    true, // a row for each lane, of a bounded number
	}
	s := open(t, Config{Path: Memory})
	err := s.w.do(t.Context(), func(tx *tx) error {
		for name, st := range statements {
			for _, detail := range explain(t, tx.conn, "EXPLAIN QUERY PLAN "+st.text, 3) {
				if strings.HasPrefix(detail, "SCAN") && !walks[name] && !ownRows.MatchString(detail) {
					t.Errorf("%s: %s", name, detail)
				}
			}
			for _, opcode := range explain(t, tx.conn, "EXPLAIN "+st.text, 1) {
				switch opcode {
				case "OpenEphemeral", "OpenAutoindex", "SorterOpen":
					if !temporary[name] {
						t.Errorf("%s: %s", name, opcode)
					}
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// ownRows are scans of what a statement makes itself, bounded, row by row.
var ownRows = regexp.MustCompile(`^SCAN (CONSTANT ROW|q|up|queues|lanes|\(subquery-\d+\))$`)

func explain(t *testing.T, c *conn, text string, column int) []string {
	t.Helper()
	s, _, err := c.db.Prepare(text)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var out []string
	for s.Step() {
		out = append(out, s.ColumnText(column))
	}
	return out
}
