package outbox

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// What one enqueue adds to a transaction that inserts a row of its own, and what
// staging many at once costs each.
func BenchmarkStage(b *testing.B) {
	cfg := installed(b)
	a := session(b, cfg)
	a.exec(`CREATE TABLE {schema}.orders (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, body text)`)
	enqueue := a.sql(`SELECT {schema}.enqueue('mail', '{"order":12345,"to":"someone@example.org","items":[1,2,3]}')`)
	order := a.sql(`INSERT INTO {schema}.orders (body) VALUES ('{"order":12345,"to":"someone@example.org","items":[1,2,3]}')`)
	transaction := func(b *testing.B, statements ...string) {
		for b.Loop() {
			var batch pgx.Batch
			for _, s := range statements {
				batch.Queue(s)
			}
			if err := a.SendBatch(context.Background(), &batch).Close(); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.Run("order alone", func(b *testing.B) { transaction(b, order) })
	b.Run("order and enqueue", func(b *testing.B) { transaction(b, order, enqueue) })
	b.Run("order and 10 enqueues", func(b *testing.B) {
		transaction(b, order, enqueue, enqueue, enqueue, enqueue, enqueue, enqueue, enqueue, enqueue, enqueue, enqueue)
	})
	b.Run("1000 in one statement", func(b *testing.B) {
		for b.Loop() {
			a.exec(`SELECT count({schema}.enqueue('mail', '{"order":12345,"to":"someone@example.org","items":[1,2,3]}')) FROM generate_series(1, 1000)`)
		}
	})
	requests := make([]Request, 1000)
	for i := range requests {
		requests[i] = Request{Job: "mail", Input: []byte(`{"order":12345,"to":"someone@example.org","items":[1,2,3]}`)}
	}
	b.Run("1000 with EnqueueManyTx", func(b *testing.B) {
		for b.Loop() {
			a.tx(func(tx pgx.Tx) {
				if _, err := a.schema.EnqueueManyTx(context.Background(), tx, requests); err != nil {
					b.Fatal(err)
				}
			})
		}
	})
}

// Sixteen sessions that each commit one order after the other: with and without
// an enqueue, and with a notification in every commit, as it would be without the
// throttle.
func BenchmarkStageConcurrently(b *testing.B) {
	cfg := installed(b)
	a := session(b, cfg)
	a.exec(`CREATE TABLE {schema}.orders (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, body text)`)
	const order = `INSERT INTO {schema}.orders (body) VALUES ('{"order":12345}')`
	for _, c := range []struct{ name, second string }{
		{"order alone", `SELECT 1`},
		{"order and enqueue", `SELECT {schema}.enqueue('mail', '{"order":12345}')`},
		{"order and notify", `SELECT pg_notify('everyone', '')`},
	} {
		b.Run(c.name, func(b *testing.B) {
			var sessions []*app
			for range 16 {
				sessions = append(sessions, session(b, cfg))
			}
			work := make(chan struct{})
			var wg sync.WaitGroup
			for _, s := range sessions {
				wg.Go(func() {
					for range work {
						var batch pgx.Batch
						batch.Queue(s.sql(order))
						batch.Queue(s.sql(c.second))
						if err := s.SendBatch(context.Background(), &batch).Close(); err != nil {
							b.Error(err)
						}
					}
				})
			}
			for b.Loop() {
				work <- struct{}{}
			}
			close(work)
			wg.Wait()
		})
	}
}

// What a batch costs after 100,000 rows were dealt with while a snapshot stayed
// open, with the floor and without.
func BenchmarkClaimUnderAnOpenSnapshot(b *testing.B) {
	for _, floored := range []bool{true, false} {
		b.Run(fmt.Sprintf("floor %v", floored), func(b *testing.B) {
			cfg := installed(b)
			d, a, report := open(b, cfg), session(b, cfg), session(b, cfg)
			report.exec(`BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM {schema}.outbox`)
			defer report.exec(`ROLLBACK`)
			now := time.Unix(1_000_000, 0)
			d.floor.now = func() time.Time { return now }
			batch := func() {
				rows := claim(b, d, "r1", 100)
				settles := settlesOf(rows)
				if len(rows) != 100 {
					b.Fatalf("%d rows", len(rows))
				}
				settle(b, d, settles...)
			}
			for range 100 {
				a.exec(`SELECT count({schema}.enqueue('mail', '{"order":12345}')) FROM generate_series(1, 1000)`)
				for range 10 {
					batch()
				}
				now = now.Add(time.Second)
			}
			for b.Loop() {
				b.StopTimer()
				a.exec(`SELECT count({schema}.enqueue('mail', '{"order":12345}')) FROM generate_series(1, 100)`)
				if !floored {
					d.floor.fail()
				}
				b.StartTimer()
				batch()
			}
		})
	}
}
