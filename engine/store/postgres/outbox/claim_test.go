package outbox

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
	"github.com/jobrunner/runner/engine/store/postgres/pgtest"
)

// (B3) Picking and stamping are one: relays that claim at the same time get
// different rows, each batch in the order of staging, and no row is left out.
func TestClaimsAtTheSameTimeAreDisjointAndOrdered(t *testing.T) {
	cfg := installed(t)
	a := session(t, cfg)
	cfg.MaxConns = 8
	d := open(t, cfg)
	a.exec(`SELECT {schema}.enqueue('j', n::text) FROM generate_series(1, 400) n`)
	var mu sync.Mutex
	seen := map[string]string{}
	var wg sync.WaitGroup
	for relay := range 8 {
		wg.Go(func() {
			for {
				rows, err := d.Claim(context.Background(), store.StagedClaimParams{Relay: fmt.Sprint("r", relay), Limit: 7, Lease: lease})
				if err != nil {
					t.Error(err)
					return
				}
				if len(rows) == 0 {
					return
				}
				if ids := idsOf(rows); !slices.IsSorted(ids) {
					t.Errorf("a batch is out of order: %v", ids)
				}
				batch := make([]store.StagedSettleParams, len(rows))
				mu.Lock()
				for i, r := range rows {
					if by, ok := seen[r.ID]; ok {
						t.Errorf("row %s went to %s and %s", r.ID, by, r.Relay)
					}
					seen[r.ID] = r.Relay
					batch[i] = publish(r)
				}
				mu.Unlock()
				if landed, err := d.SettleStaged(context.Background(), batch); err != nil || slices.Contains(landed, false) {
					t.Error(landed, err)
					return
				}
			}
		})
	}
	wg.Wait()
	if len(seen) != 400 {
		t.Errorf("%d of 400 rows were claimed", len(seen))
	}
}

// (B4) A lease is a number of whole milliseconds that ends.
func TestLeaseThatIsNoneIsRefused(t *testing.T) {
	cfg := installed(t)
	d := open(t, cfg)
	for _, bad := range []time.Duration{0, -1, -time.Second, 1500 * time.Microsecond, time.Hour + time.Millisecond, 1<<63 - 1} {
		_, err := d.Claim(t.Context(), store.StagedClaimParams{Relay: "r", Limit: 1, Lease: bad})
		if abi.CodeOf(err) != job.CodeInvalid {
			t.Errorf("a lease of %v: %v", bad, err)
		}
	}
	for _, p := range []store.StagedClaimParams{{Relay: "r", Limit: -1, Lease: lease}, {Limit: 1, Lease: lease}} {
		if _, err := d.Claim(t.Context(), p); abi.CodeOf(err) != job.CodeInvalid {
			t.Errorf("%+v: %v", p, err)
		}
	}
}

// (B4) A row is one relay's for the lease, and anyone's after it.
func TestLeaseLapses(t *testing.T) {
	cfg := installed(t)
	d, a := open(t, cfg), session(t, cfg)
	a.enqueue(`'j'`)
	first := claim(t, d, "r1", 10)
	if rows := claim(t, d, "r2", 10); len(first) != 1 || len(rows) != 0 {
		t.Fatalf("r1 has %v, r2 has %v", first, rows)
	}
	a.lapse()
	rows := claim(t, d, "r2", 10)
	if len(rows) != 1 || rows[0].Claim != 2 {
		t.Fatalf("after the lease r2 has %v", rows)
	}
}

// A relay that lost the answer to a claim finds its rows with the next, at once
// and under a new ordinal.
func TestRelayClaimsItsLeftoversAnew(t *testing.T) {
	cfg := installed(t)
	d, a := open(t, cfg), session(t, cfg)
	a.exec(`SELECT {schema}.enqueue('j', n::text) FROM generate_series(1, 3) n`)
	lost := claim(t, d, "r1", 2)
	rows := claim(t, d, "r1", 10)
	if len(rows) != 3 || rows[0].ID != lost[0].ID || rows[0].Claim != 2 || rows[2].Claim != 1 {
		t.Fatalf("claimed %v after %v", rows, lost)
	}
	if landed := settle(t, d, publish(lost[0])); landed[0] {
		t.Error("a settle under the old ordinal landed")
	}
}

// (B5) Settles and releases of a relay that stalled past its lease change
// nothing of the rows that another has.
func TestStalledRelayIsFenced(t *testing.T) {
	cfg := installed(t)
	d, a := open(t, cfg), session(t, cfg)
	a.exec(`SELECT {schema}.enqueue('j', n::text) FROM generate_series(1, 3) n`)
	stalled := claim(t, d, "r1", 10)
	a.lapse()
	rows := claim(t, d, "r2", 10)
	if len(rows) != 3 {
		t.Fatalf("r2 has %v", rows)
	}
	if landed := settle(t, d, publish(stalled[0]), reject(stalled[1], "X")); landed[0] || landed[1] {
		t.Errorf("late settles landed: %v", landed)
	}
	if err := d.Release(t.Context(), []store.StagedRef{stalled[2].Ref()}); err != nil {
		t.Fatal(err)
	}
	if taken := claim(t, d, "r3", 10); len(taken) != 0 {
		t.Errorf("a late release gave away %v", taken)
	}
	if landed := settle(t, d, publish(rows[0]), publish(rows[1]), publish(rows[2])); slices.Contains(landed, false) {
		t.Errorf("the holder's settles: %v", landed)
	}
	if landed := settle(t, d, publish(stalled[0])); landed[0] {
		t.Error("a late settle landed on a published row")
	}
}

// A settle whose answer was lost is answered the same when it is repeated, and
// one miss does not stop its neighbours.
func TestSettleRepeatedIsAnsweredAgain(t *testing.T) {
	cfg := installed(t)
	d, a := open(t, cfg), session(t, cfg)
	a.exec(`SELECT {schema}.enqueue('j', n::text) FROM generate_series(1, 3) n`)
	rows := claim(t, d, "r1", 10)
	foreign := publish(rows[1])
	foreign.Ref.Claim = 7
	holder := publish(rows[2])
	holder.RunID = "01890a5d-ac96-774b-bcce-b302099a8057"
	batch := []store.StagedSettleParams{reject(rows[0], "X_JOB_UNKNOWN"), foreign, holder}
	for range 2 {
		if diff := cmp.Diff([]bool{true, false, true}, settle(t, d, batch...)); diff != "" {
			t.Fatal(diff)
		}
	}
	listed, err := d.ListStaged(t.Context(), store.ListStagedParams{})
	if err != nil {
		t.Fatal(err)
	}
	slices.Reverse(listed)
	if r := listed[0]; r.State != store.Rejected || r.Code != "X_JOB_UNKNOWN" || r.Reason != "reason of X_JOB_UNKNOWN" || r.SettledAt.IsZero() || r.RunID != "" || r.Input != nil {
		t.Errorf("rejected: %+v", r)
	}
	if r := listed[1]; r.State != store.Waiting || !r.SettledAt.IsZero() {
		t.Errorf("missed: %+v", r)
	}
	if r := listed[2]; r.State != store.Published || r.RunID != holder.RunID || r.Code != "" {
		t.Errorf("published: %+v", r)
	}
}

// (B6) What is released is claimable at once, by anyone.
func TestReleasedRowIsClaimableAtOnce(t *testing.T) {
	cfg := installed(t)
	d, a := open(t, cfg), session(t, cfg)
	a.enqueue(`'j'`)
	rows := claim(t, d, "r1", 10)
	if err := d.Release(t.Context(), []store.StagedRef{rows[0].Ref()}); err != nil {
		t.Fatal(err)
	}
	if landed := settle(t, d, publish(rows[0])); landed[0] {
		t.Error("a released row was settled")
	}
	if again := claim(t, d, "r2", 10); len(again) != 1 {
		t.Errorf("claimed %v", again)
	}
}

// (B14) What has no entries touches no database: this one cannot be reached.
func TestNothingTouchesNoDatabase(t *testing.T) {
	cfg := installed(t)
	d := open(t, cfg)
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if err := d.Release(t.Context(), nil); err != nil {
		t.Error(err)
	}
	if landed, err := d.SettleStaged(t.Context(), nil); landed != nil || err != nil {
		t.Error(landed, err)
	}
	if rows, err := d.Claim(t.Context(), store.StagedClaimParams{Relay: "r", Lease: lease}); rows != nil || err != nil {
		t.Error(rows, err)
	}
	if _, err := d.Claim(t.Context(), store.StagedClaimParams{Relay: "r", Limit: 1, Lease: lease}); abi.CodeOf(err) != job.CodeDatabaseUnavailable {
		t.Errorf("after Close: %v", err)
	}
}

// A batch ends before its inputs need more memory than they should, and a row
// that is too large alone still comes.
func TestClaimIsBoundedInBytes(t *testing.T) {
	cfg := installed(t)
	d, a := open(t, cfg), session(t, cfg)
	a.exec(`SELECT {schema}.enqueue('j', to_json(repeat('x', 1000000))) FROM generate_series(1, 12)`)
	first := claim(t, d, "r1", 100)
	if len(first) != 9 { // the ninth begins below 8 MiB
		t.Errorf("%d rows of 1 MB", len(first))
	}
	if rest := claim(t, d, "r2", 100); len(rest) != 3 {
		t.Errorf("%d rows are left to another relay", len(rest))
	}
}

// (B10) Published rows are kept, and deleted when their time is over; others
// are not.
func TestPurgeDeletesOldPublishedRows(t *testing.T) {
	cfg := installed(t)
	d, a := open(t, cfg), session(t, cfg)
	a.exec(`SELECT {schema}.enqueue('j', n::text) FROM generate_series(1, 6) n`)
	rows := claim(t, d, "r1", 5)
	settle(t, d, publish(rows[0]), publish(rows[1]), publish(rows[2]), reject(rows[3], "X"))
	purge := func(keep time.Duration, limit int) int {
		n, err := d.Purge(t.Context(), keep, limit)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n := purge(time.Hour, 100); n != 0 {
		t.Errorf("%d rows were young", n)
	}
	a.exec(`UPDATE {schema}.outbox SET settled_at = settled_at - interval '2 hours', staged_at = staged_at - interval '3 hours'`)
	if n := purge(time.Hour, 2); n != 2 {
		t.Errorf("%d of a limit of 2", n)
	}
	if n := purge(time.Hour, 100); n != 1 {
		t.Errorf("%d were left", n)
	}
	if n := value[int](a, "SELECT count(*) FROM {schema}.outbox WHERE state <> 'published'"); n != 3 {
		t.Errorf("%d of 3 rows that are not published are left", n)
	}
	if _, err := d.Purge(t.Context(), -1, 1); abi.CodeOf(err) != job.CodeInvalid {
		t.Error(err)
	}
}

func TestStatsCountWhatWaits(t *testing.T) {
	cfg := installed(t)
	d, a := open(t, cfg), session(t, cfg)
	stats := func() store.OutboxStats {
		s, err := d.OutboxStats(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	if s := stats(); s != (store.OutboxStats{}) {
		t.Errorf("empty: %+v", s)
	}
	a.exec(`SELECT {schema}.enqueue('j', n::text) FROM generate_series(1, 6) n`)
	rows := claim(t, d, "r1", 3)
	settle(t, d, publish(rows[0]), reject(rows[1], "X"))
	a.exec(`UPDATE {schema}.outbox SET staged_at = staged_at - interval '2 hours'`)
	if s := stats(); s.Waiting != 4 || s.Rejected != 1 || s.Oldest < 2*time.Hour || s.Oldest > 3*time.Hour {
		t.Errorf("%+v", s)
	}
}

// The claim reads an index whatever the server knows of the table, so that it
// costs the same with many rows that were dealt with.
func TestClaimReadsTheIndexOfStagedRows(t *testing.T) {
	cfg := installed(t)
	d, a := open(t, cfg), session(t, cfg)
	tx, err := a.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	if _, err := tx.Exec(t.Context(), d.text["plan"]); err != nil {
		t.Fatal(err)
	}
	for name, args := range map[string][]any{
		"claim":   {"r", 100, int64(30000), int64(0), int64(1 << 20)},
		"purge":   {int64(0), 10},
		"stats":   {100},
		"settle":  {[]string{}, []string{}, []int64{}, []string{}, []string{}, []string{}},
		"release": {[]string{}, []string{}, []int64{}},
	} {
		rows, err := tx.Query(t.Context(), "EXPLAIN "+d.text[name], args...)
		if err != nil {
			t.Fatal(err)
		}
		var plan strings.Builder
		var line string
		for rows.Next() {
			if err := rows.Scan(&line); err != nil {
				t.Fatal(err)
			}
			plan.WriteString(line + "\n")
		}
		if strings.Contains(plan.String(), "Seq Scan") {
			t.Errorf("%s:\n%s", name, plan.String())
		}
		if name == "claim" && !strings.Contains(plan.String(), "outbox_staged") {
			t.Errorf("claim:\n%s", plan.String())
		}
	}
}

// No statement looks a row up by hashing the outbox, whatever the server's version.
func TestNoStatementHashesTheOutbox(t *testing.T) {
	cfg := installed(t)
	d := open(t, cfg)
	texts := maps.Clone(d.text)
	delete(texts, "plan")
	texts["list"] = strings.ReplaceAll(texts["list"], "{state}", "TRUE")
	pgtest.NoTableHashed(t, session(t, cfg).Conn, texts)
}

// Every statement prepares, so none waits for its first use to be found wrong.
func TestStatementsPrepare(t *testing.T) {
	cfg := installed(t)
	d, a := open(t, cfg), session(t, cfg)
	for name, text := range d.text {
		texts := []string{text}
		if name == "list" {
			texts = nil
			for _, p := range predicates {
				texts = append(texts, strings.ReplaceAll(text, "{state}", p))
			}
		}
		for _, text := range texts {
			if _, err := a.Prepare(t.Context(), "", text); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}
