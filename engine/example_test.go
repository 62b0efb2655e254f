package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"

	"github.com/jackc/pgx/v5"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine"
	"github.com/jobrunner/runner/engine/internal/enginetest"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/manifest"
	"github.com/jobrunner/runner/engine/store"
	"github.com/jobrunner/runner/engine/store/postgres"
)

// open opens the queue's database, whose schema `runner migrate up` has made,
// and makes a client of it: what a program does once, when it starts.
func open(ctx context.Context) (*postgres.Store, *engine.Client) {
	databaseURL = newDatabase() // from your configuration
	db, err := postgres.Open(ctx, postgres.Config{URL: databaseURL})
	if err != nil {
		log.Fatal(err)
	}
	m, report := manifest.Load("testdata/client/jobs.toml") // the jobs.toml that the workers serve
	if err := report.Err(); err != nil {
		log.Fatal(err)
	}
	client, err := engine.NewClient(engine.ClientConfig{Store: db, Manifest: m})
	if err != nil {
		log.Fatal(err)
	}
	return db, client
}

// A program that only enqueues. The workers are other processes, on other
// machines or none yet: an acknowledged run waits for them.
func ExampleClient() {
	ctx := context.Background()
	db, client := open(ctx)
	defer db.Close()

	run, err := client.Enqueue(ctx, engine.Request{Job: "welcome", Input: []byte(`{"org":"acme","user":1}`)})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(run.State, "deduped:", run.Deduped)

	// The key that jobs.toml makes of the input is held by the run above, so this
	// is the same one.
	again, err := client.Enqueue(ctx, engine.Request{Job: "welcome", Input: []byte(`{"org":"acme","user":1}`)})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("the same:", again.ID == run.ID, "deduped:", again.Deduped)

	r, err := client.Get(ctx, run.ID)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(r.Tenant, r.Key, string(r.Input))

	if r, err = client.Cancel(ctx, run.ID, "the customer left"); err != nil {
		log.Fatal(err)
	}
	fmt.Println(r.State, r.Error.Message)

	// Output:
	// ready deduped: false
	// the same: true deduped: true
	// acme welcome:acme/1 {"org":"acme","user":1}
	// cancelled the customer left
}

// Ten thousand runs in one call, which makes ten writes of it. Every entry is
// checked before the first is written: a bad one names itself, and nothing is.
func ExampleClient_EnqueueMany() {
	ctx := context.Background()
	db, client := open(ctx)
	defer db.Close()

	requests := make([]engine.Request, 10_000)
	for i := range requests {
		input, err := json.Marshal(map[string]any{"org": "acme", "user": i})
		if err != nil {
			log.Fatal(err)
		}
		requests[i] = engine.Request{Job: "welcome", Input: input}
	}
	requests[42].Input = []byte(`{"org":"acme"}`)
	_, err := client.EnqueueMany(ctx, requests)
	fmt.Println(err)

	requests[42].Input = []byte(`{"org":"acme","user":42}`)
	runs, err := client.EnqueueMany(ctx, requests)
	if err != nil {
		log.Fatal(err)
	}
	s, err := client.Stats(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(runs), "runs,", s.Queues[0].Ready, "ready in queue", s.Queues[0].Queue)

	// Output:
	// X_JOB_INPUT_INVALID: entry 42: the input of job "welcome" is refused: the input does not fit welcome.json: it lacks user (change the input, or the schema if it is too narrow)
	// 10000 runs, 10000 ready in queue default
}

// With OnConflict Fail a batch is one write, all or nothing, and the error names
// every entry that another run stands for.
func ExampleConflictError() {
	ctx := context.Background()
	db, client := open(ctx)
	defer db.Close()

	welcome := func(user int) engine.Request {
		return engine.Request{Job: "welcome", Input: fmt.Appendf(nil, `{"org":"acme","user":%d}`, user), OnConflict: engine.Fail}
	}
	if _, err := client.Enqueue(ctx, welcome(2)); err != nil {
		log.Fatal(err)
	}
	_, err := client.EnqueueMany(ctx, []engine.Request{welcome(1), welcome(2), welcome(3), welcome(1)})
	var conflict *engine.ConflictError
	fmt.Println(abi.CodeOf(err), errors.As(err, &conflict))
	for _, c := range conflict.Conflicts {
		fmt.Println("entry", c.Index, "is held by a run:", c.Holder != "", "by an entry before:", c.Before)
	}
	s, err := client.Stats(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(s.Queues[0].Ready, "run, the one of before")

	// Output:
	// X_JOB_DUPLICATE true
	// entry 1 is held by a run: true by an entry before: 0
	// entry 3 is held by a run: false by an entry before: 0
	// 1 run, the one of before
}

// A run that is enqueued in the application's own transaction is there if that
// commits, and never was if it does not.
func ExampleEnqueueTx() {
	ctx := context.Background()
	db, client := open(ctx)
	defer db.Close()
	conn, err := pgx.Connect(ctx, databaseURL)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, "CREATE TABLE users (id int, org text)"); err != nil {
		log.Fatal(err)
	}

	signUp := func(user int, failure error) (id string, err error) {
		err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "INSERT INTO users VALUES ($1, 'acme')", user); err != nil {
				return err
			}
			runs, err := engine.EnqueueTx(ctx, client, db, tx, engine.Request{
				Job: "welcome", Input: fmt.Appendf(nil, `{"org":"acme","user":%d}`, user),
			})
			if err != nil {
				return err
			}
			id = runs[0].ID
			return failure
		})
		return id, err
	}
	for user, failure := range []error{errors.New("the card was declined"), nil} {
		id, err := signUp(user, failure)
		_, gone := client.Get(ctx, id)
		fmt.Println("signed up:", err, "/ run:", abi.CodeOf(gone))
	}

	// Output:
	// signed up: the card was declined / run: X_JOB_NOT_FOUND
	// signed up: <nil> / run:
}

// An event that is published with the application's own transaction is there, and
// has woken who waits for it, when that commits.
func ExamplePublishTx() {
	ctx := context.Background()
	db, client := open(ctx)
	defer db.Close()
	conn, err := pgx.Connect(ctx, databaseURL)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, "CREATE TABLE orders (id text, paid bool); INSERT INTO orders VALUES ('o-1', false)"); err != nil {
		log.Fatal(err)
	}

	pay := func(order string, failure error) error {
		return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "UPDATE orders SET paid = true WHERE id = $1", order); err != nil {
				return err
			}
			if _, err := engine.PublishTx(ctx, db, tx, engine.Event{Topic: "paid", Key: order, Tenant: "acme"}); err != nil {
				return err
			}
			return failure
		})
	}
	for _, failure := range []error{errors.New("the card was declined"), nil} {
		err := pay("o-1", failure)
		events, _ := client.Events(ctx, store.ListEventsParams{Topic: "paid"})
		fmt.Println("paid:", err, "/ events:", len(events))
	}

	// Output:
	// paid: the card was declined / events: 0
	// paid: <nil> / events: 1
}

// Wait follows a run that a worker of another process works.
func ExampleClient_Wait() {
	ctx := context.Background()
	db, client := open(ctx)
	defer db.Close()
	defer worker(ctx, func(t *enginetest.Task) (any, error) { return "hello", nil }).Close()

	run, err := client.Enqueue(ctx, engine.Request{Job: "welcome", Input: []byte(`{"org":"acme","user":1}`)})
	if err != nil {
		log.Fatal(err)
	}
	done, err := client.Wait(ctx, run.ID)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(done.State == job.Done, string(done.Output))

	// Output:
	// true "hello"
}
