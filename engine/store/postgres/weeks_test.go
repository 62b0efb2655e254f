package postgres

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

// idAt is an id as a runner mints it at that time.
func idAt(t time.Time, n int) string {
	return fmt.Sprintf("%08x-%04x-7000-8000-%012x", t.UnixMilli()>>16, t.UnixMilli()&0xffff, n)
}

// end enqueues a run under an id and settles it with a retention.
func (d db) end(tb testing.TB, id string, retention time.Duration) {
	tb.Helper()
	ctx := context.Background()
	_, err := d.Enqueue(ctx, []store.EnqueueParams{{ID: id, Job: "j", Queue: "q", Input: make([]byte, 2000), MaxAttempts: 3}})
	if err != nil {
		tb.Fatal(err)
	}
	r := d.claimOne(tb, id)
	_, err = d.SaveSteps(ctx, []store.StepParams{{Ref: refOf(r), Name: "s", Kind: job.KindStep, Status: job.StepCompleted}})
	if err != nil {
		tb.Fatal(err)
	}
	_, err = d.Settle(ctx, []store.SettleParams{{Ref: refOf(r), Outcome: job.DeadLettered, To: job.Dead, Retention: retention,
		Log: []job.LogLine{{Seq: 1, Level: "info", Text: "line"}}}})
	if err != nil {
		tb.Fatal(err)
	}
}

func (d db) claimOne(tb testing.TB, id string) job.Run {
	tb.Helper()
	res, err := d.Claim(context.Background(), store.ClaimParams{Worker: "w", Queues: []store.QueueLimit{{Queue: "q", Limit: 1}}})
	if err != nil || len(res.Runs) != 1 || res.Runs[0].ID != id {
		tb.Fatalf("claimed %+v, %v, want %s", res, err, id)
	}
	return res.Runs[0]
}

func (d db) weekTables(tb testing.TB) (n int) {
	tb.Helper()
	err := d.pool.QueryRow(context.Background(), `SELECT count(*) FROM pg_tables WHERE schemaname = $1 AND tablename ~ '_\d{4}w\d{2}$'`, d.cfg.Schema).Scan(&n)
	if err != nil {
		tb.Fatal(err)
	}
	return n
}

// midweek waits until a week that is about to end is over: its tables are made,
// and others dropped, when it ends.
func midweek(tb testing.TB) {
	tb.Helper()
	const week = 7 * 24 * time.Hour
	for {
		now := time.Now().UTC()
		left := now.Truncate(week).Add(week).Sub(now) // since the year 1, which began on a Monday
		if left > 5*time.Minute {
			return
		}
		if err := pauseFor(tb.Context(), time.Second); err != nil {
			tb.Fatal(err)
		}
	}
}

func openWithWorker(tb testing.TB) db {
	d := openOwned(tb)
	if err := d.Register(context.Background(), store.RegisterParams{ID: "w", Lease: 365 * 24 * time.Hour}); err != nil {
		tb.Fatal(err)
	}
	return d
}

// A week goes at once when it is over and everything in it has expired; not while
// a run of it is kept, or lives on.
func TestWeeksAreDroppedWhenAllHasExpired(t *testing.T) {
	midweek(t)
	d := openWithWorker(t)
	ctx := context.Background()
	// The partitions are those of the server's weeks, whatever the test's clock says.
	this := time.Now()
	gone, kept, alive := idAt(this, 1), idAt(this.AddDate(0, 0, 7), 1), idAt(this.AddDate(0, 0, 14), 1)
	d.end(t, gone, time.Hour)
	d.end(t, idAt(this, 2), 2*time.Hour)
	d.end(t, kept, 0)
	d.end(t, idAt(this.AddDate(0, 0, 7), 2), time.Hour)
	d.end(t, alive, time.Hour)
	if _, err := d.Requeue(ctx, store.RequeueParams{ID: alive}); err != nil {
		t.Fatal(err)
	}
	before := d.weekTables(t)
	if n, err := d.tendWeeks(ctx); n != 0 || err != nil || d.weekTables(t) != before {
		t.Fatalf("dropped %d runs before their time, %v", n, err)
	}
	d.Advance(40 * 24 * time.Hour)
	n, err := d.tendWeeks(ctx)
	if n != 2 || err != nil {
		t.Fatalf("dropped %d runs, %v, want the 2 of the first week", n, err)
	}
	// That one, and two that were empty and are over by the test's clock.
	if after := d.weekTables(t); after != before-3*4 {
		t.Fatalf("%d tables of weeks are left of %d", after, before)
	}
	if _, err := d.Get(ctx, gone); abi.CodeOf(err) != job.CodeNotFound {
		t.Fatal(err)
	}
	// The lines that its runs logged go with it, and those of others stay.
	var logs, left int
	err = d.pool.QueryRow(ctx, "SELECT count(*), count(*) FILTER (WHERE run_id = ANY ($1::uuid[])) FROM "+pgx.Identifier{d.cfg.Schema, "logs"}.Sanitize(),
		[]string{gone, idAt(this, 2)}).Scan(&logs, &left)
	if err != nil || logs != 3 || left != 0 {
		t.Fatalf("%d rows of lines are kept, %d of them of what is gone, %v", logs, left, err)
	}
	for _, id := range []string{kept, alive} {
		if _, err := d.Get(ctx, id); err != nil {
			t.Fatal(err)
		}
	}
	st, err := d.Stats(ctx)
	if err != nil || st.Queues[0].Dead != 2 || st.Queues[0].Ready != 1 {
		t.Fatalf("counted %+v, %v", st.Queues, err)
	}
	// An id of a week that is gone is as new as any.
	d.claimOne(t, alive)
	d.end(t, gone, time.Hour)
}

// Who reads a week keeps it, and nobody waits for either.
func TestAWeekInUseIsLeftForAnotherTime(t *testing.T) {
	midweek(t)
	d := openWithWorker(t)
	ctx := context.Background()
	d.end(t, idAt(time.Now(), 1), time.Hour)
	d.Advance(40 * 24 * time.Hour)
	connected(t, d.cfg.URL, func(c *pgx.Conn) {
		tx, err := c.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(ctx, d.cfg.dialect().fill("SELECT * FROM {schema}.finished")); err != nil {
			t.Fatal(err)
		}
		if n, err := d.tendWeeks(ctx); n != 0 || err != nil {
			t.Fatalf("dropped %d runs of a week that is being read, %v", n, err)
		}
		if st, err := d.Stats(ctx); err != nil || st.Queues[0].Dead != 1 {
			t.Fatalf("counted %+v, %v", st.Queues, err)
		}
		if err := tx.Rollback(ctx); err != nil {
			t.Fatal(err)
		}
	})
	if n, err := d.tendWeeks(ctx); n != 1 || err != nil {
		t.Fatalf("dropped %d runs, %v", n, err)
	}
}

// Weeks to come are there before they begin.
func TestWeeksToComeAreMade(t *testing.T) {
	midweek(t)
	d := openOwned(t)
	ctx := context.Background()
	before := d.weekTables(t)
	for _, table := range []string{"finished", "inputs", "steps", "attempts"} {
		d.exec(t, `DROP TABLE {schema}.`+table+`_`+weekName(time.Now().AddDate(0, 0, 28)))
	}
	for range 2 {
		if _, err := d.tendWeeks(ctx); err != nil {
			t.Fatal(err)
		}
		if n := d.weekTables(t); n != before {
			t.Fatalf("%d tables of weeks, want %d", n, before)
		}
	}
}

func weekName(t time.Time) string {
	y, w := t.UTC().ISOWeek()
	return fmt.Sprintf("%04dw%02d", y, w)
}
