package postgres

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
	"github.com/jobrunner/runner/engine/store/postgres/pgtest"
)

// Plans are made once and kept. Those made when every table had just been found
// empty must not read whole tables once they are full: of 5,000 rows in each, a
// statement about 50 runs reads a few hundred at most.
func TestPlansMadeOnEmptyTablesSuitFullOnes(t *testing.T) {
	const rows, batch, most = 5000, 50, 400
	ctx := context.Background()
	s := open(t, migrated(t, Config{MaxConns: 1})) // one connection, one set of plans
	if err := s.Register(ctx, store.RegisterParams{ID: "w", Lease: time.Hour}); err != nil {
		t.Fatal(err)
	}
	exec := func(sql string) {
		t.Helper()
		if _, err := s.pool.Exec(ctx, s.cfg.dialect().fill(sql), pgx.QueryExecModeSimpleProtocol); err != nil {
			t.Fatal(err)
		}
	}
	tables := []string{"waiting", "running", "finished", "live_keys", "steps", "attempts", "inputs"}
	for _, table := range tables {
		exec("VACUUM ANALYZE {schema}." + table)
	}
	none := []pgtype.UUID{}
	var texts []string
	// Every statement about many runs, as it is run for none.
	for _, st := range []struct {
		*statement
		args []any
	}{
		{qClaim, []any{"w", []string{"q"}, []int32{batch}, []*string{nil}, beginning}},
		{qPromote, []any{[]string{"q"}, beginning, batch}},
		{qSettleDone, []any{none, texts, []int64{}, [][]byte{}, []int64{}, texts, texts}},
		{qSettleAlike, []any{"w", none, []int64{}, [][]byte{}, int64(0), nil}},
		{qSettle, (&endings{}).args()},
		{qSettledBefore, []any{none, texts, []int64{}}},
		{qHold, []any{none, texts, []int64{}}},
		{qSaveSteps, []any{none, texts, []int64{}, texts, texts, texts, []int32{}, []*int64{}, []*time.Time{}, []int64{}, texts, [][]byte{}, texts}},
		{qRenew, []any{"w", int64(3600_000), none, []int64{}}},
		{qHeldProgress, []any{"w", none, []int64{}, []*string{}}},
		{qCheckNew, []any{none, uuid{}.param(), uuid{}.param(), none, texts, texts, texts}},
		{qFindStates, []any{none}},
		{qFindHolders, []any{texts, texts, texts}},
		{qFindIDHolders, []any{none, texts, texts, none}},
		{qInputs, []any{none, [][]byte{}}},
		{qPurge, []any{batch}},
	} {
		if err := s.write(ctx, func(q queryer) error { return s.run(ctx, q, call{st: st.statement, args: st.args}) }); err != nil {
			t.Fatalf("%s: %v", st.name, err)
		}
	}

	// Full, and no statistics of it.
	enqueueN(t, s, 3*rows, 5000, noTenant)
	work(t, s, rows, 1000)
	fill, err := s.Claim(ctx, store.ClaimParams{Worker: "w", Queues: []store.QueueLimit{{Queue: "q", Limit: rows}}})
	if err != nil || len(fill.Runs) != rows {
		t.Fatal(len(fill.Runs), err)
	}
	exec("UPDATE {schema}.finished SET expires_at = now()")
	exec("INSERT INTO {schema}.steps SELECT id, 's', 1, 'step', 'completed', 0, NULL, now(), now() FROM {schema}.finished")
	exec("INSERT INTO {schema}.attempts SELECT id, 1, 1, 'w', 'retried', true, now(), now(), now(), NULL, 0 FROM {schema}.finished")

	// reads are the rows that this connection has read, of each table.
	reads := func(tx pgx.Tx) (map[string]int64, error) {
		out := map[string]int64{}
		rows, err := tx.Query(ctx, `SELECT relname, coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0) FROM pg_stat_xact_user_tables WHERE schemaname = $1`, s.cfg.Schema)
		if err != nil {
			return nil, err
		}
		var table string
		var read int64
		_, err = pgx.ForEachRow(rows, []any{&table, &read}, func() error {
			out[table] = read
			return nil
		})
		return out, err
	}
	run := func(what string, f func(tx pgx.Tx) error) {
		t.Helper()
		err := s.inTx(ctx, func(tx pgx.Tx) error {
			before, err := reads(tx)
			if err != nil {
				return err
			}
			if err := f(tx); err != nil {
				return err
			}
			after, err := reads(tx)
			for table, n := range after {
				if n -= before[table]; n > most {
					t.Errorf("%s reads %d rows of %s", what, n, table)
				}
			}
			return err
		})
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	held := fill.Runs[:3*batch]
	var ids []pgtype.UUID
	var settles []store.SettleParams
	var steps []store.StepParams
	for _, r := range held {
		ids = append(ids, idParam(r.ID))
		settles = append(settles, store.SettleParams{Ref: refOf(r), Outcome: job.Completed, To: job.Done})
		steps = append(steps, store.StepParams{Ref: refOf(r), Name: "a", Kind: job.KindStep, Status: job.StepCompleted, Module: "m"})
	}
	rest := settles[2*batch:]
	for i := range rest {
		rest[i].Outcome, rest[i].To = job.Retried, job.Ready
	}
	out := make([]store.SettleResult, len(settles))
	run("claim", func(tx pgx.Tx) error {
		return s.run(ctx, tx, call{st: qClaim, args: []any{"w", []string{"q"}, []int32{batch}, []*string{nil}, beginning}})
	})
	run("save steps", func(tx pgx.Tx) error {
		return s.saveRound(ctx, tx, steps[:batch], inOrder(batch), make([]store.StepResult, batch))
	})
	run("settle done", func(tx pgx.Tx) error {
		return s.runAll(ctx, tx, s.newSettling(settles, inOrder(batch), out).calls()...)
	})
	run("settle mixed", func(tx pgx.Tx) error {
		mixed := settles[batch : 2*batch]
		mixed[0].Retention = time.Hour
		return s.runAll(ctx, tx, s.newSettling(mixed, inOrder(batch), out).calls()...)
	})
	run("settle", func(tx pgx.Tx) error { return s.runAll(ctx, tx, s.newSettling(rest, inOrder(batch), out).calls()...) })
	run("check new", func(tx pgx.Tx) error {
		fresh := make([]pgtype.UUID, batch)
		for i := range fresh {
			fresh[i] = idParam(newID())
		}
		return s.run(ctx, tx, call{st: qCheckNew, args: []any{fresh, fresh[0], fresh[batch-1], none, texts, texts, texts}})
	})
	run("find states", func(tx pgx.Tx) error { return s.run(ctx, tx, call{st: qFindStates, args: []any{ids[:batch]}}) })
	run("settled before", func(tx pgx.Tx) error {
		return s.run(ctx, tx, call{st: qSettledBefore, args: []any{ids[:batch], make([]string, batch), make([]int64, batch)}})
	})
	run("renew", func(tx pgx.Tx) error {
		return s.run(ctx, tx, call{st: qRenew, args: []any{"w", int64(3600_000), ids[:batch], make([]int64, batch)}})
	})
	run("held progress", func(tx pgx.Tx) error {
		return s.run(ctx, tx, call{st: qHeldProgress, args: []any{"w", ids[:batch], make([]int64, batch), make([]*string, batch)}})
	})
	run("purge", func(tx pgx.Tx) error { return s.run(ctx, tx, call{st: qPurge, args: []any{batch}}) })
}

// No statement looks a row up by hashing a table, whatever the server's version.
func TestNoStatementHashesATable(t *testing.T) {
	s := open(t, migrated(t, Config{}))
	texts := map[string]string{}
	for name, st := range statements {
		texts[name] = s.text[st.index]
	}
	connected(t, s.cfg.URL, func(c *pgx.Conn) { pgtest.NoTableHashed(t, c, texts) })
}
