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

// ShipOrder marks an order as shipped, and tells who waits for that.
func ShipOrder(ctx context.Context, db *pgx.Conn, order int) error {
	return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `update shop_orders set shipped = true where id = $1`, order); err != nil {
			return err
		}
		_, err := outbox.PublishTx(ctx, tx, outbox.Event{Topic: "order-shipped", Key: fmt.Sprint(order)})
		return err
	})
}

// The event of an order is published if the order is committed, and not otherwise.
func ExamplePublishTx() {
	ctx := context.Background()
	db, err := pgx.Connect(ctx, "postgres://shop@db.example.com/shop")
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close(ctx)
	if err := ShipOrder(ctx, db, 42); err != nil {
		log.Fatal(err)
	}
}
