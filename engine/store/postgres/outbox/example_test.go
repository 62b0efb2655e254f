package outbox_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"

	"github.com/jackc/pgx/v5"

	"github.com/jobrunner/runner/engine/store/postgres/outbox"
)

// PlaceOrder answers the order, and the run that will send its mail.
func PlaceOrder(ctx context.Context, db *pgx.Conn, customer string) (order int, run string, err error) {
	err = pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		if err := tx.QueryRow(ctx, `insert into shop_orders (customer) values ($1) returning id`, customer).Scan(&order); err != nil {
			return err
		}
		input, err := json.Marshal(map[string]any{"order": order, "to": customer})
		if err != nil {
			return err
		}
		run, err = outbox.EnqueueTx(ctx, tx, outbox.Request{Job: "send-mail", Input: input})
		return err
	})
	return order, run, err
}

// The mail of an order is enqueued if the order is committed, and not otherwise.
func ExampleEnqueueTx() {
	ctx := context.Background()
	db, err := pgx.Connect(ctx, "postgres://shop@db.example.com/shop")
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close(ctx)
	order, run, err := PlaceOrder(ctx, db, "ann@example.org")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("order", order, "sends its mail in run", run)
}
