package outbox

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

// Event asks for something to be published; see store.PublishParams.
type Event = store.PublishParams

// PublishTx publishes an event with the caller's transaction, by the function
// publish of its database, and answers the event's id. In the queue's own database
// the event is there, and who waits for it is ready, when the transaction commits;
// with an outbox it is staged, and a relay publishes it after that.
//
// What can be told is checked before the transaction is touched, so that it stays
// usable after a refusal. Errors: X_ID_INVALID, X_INVALID; X_DATABASE_SCHEMA where
// the function is missing, X_DATABASE_DENIED, and the driver's. After these the
// transaction can only be rolled back.
func PublishTx(ctx context.Context, tx pgx.Tx, e Event) (id string, err error) {
	return Schema(DefaultSchema).PublishTx(ctx, tx, e)
}

// PublishManyTx publishes up to MaxStage events in one round trip, in order, and
// answers their ids. Every one is checked before the first is published; the error
// names a bad one by its index. Otherwise it is as PublishTx.
func PublishManyTx(ctx context.Context, tx pgx.Tx, events []Event) (ids []string, err error) {
	return Schema(DefaultSchema).PublishManyTx(ctx, tx, events)
}

// PublishTx is PublishTx for an outbox, or a queue, in s.
func (s Schema) PublishTx(ctx context.Context, tx pgx.Tx, e Event) (string, error) {
	ids, err := s.PublishManyTx(ctx, tx, []Event{e})
	if err != nil {
		return "", err
	}
	return ids[0], nil
}

// publishSQL calls publish for each event, in order.
const publishSQL = `SELECT {schema}.publish(u.topic, u.payload, u.key, u.tenant, u.keep * interval '1 millisecond', u.published_by, u.id)::text
FROM (SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::text[], $7::uuid[]) WITH ORDINALITY
  u(topic, payload, key, tenant, keep, published_by, id, ord) ORDER BY ord) u`

// PublishManyTx is PublishManyTx for an outbox, or a queue, in s.
func (s Schema) PublishManyTx(ctx context.Context, tx pgx.Tx, events []Event) ([]string, error) {
	if len(events) > MaxStage {
		return nil, errInvalid("a batch has %d events; at most %d go in one", len(events), MaxStage)
	}
	if err := checkSchema(string(s)); err != nil {
		return nil, err
	}
	if len(events) == 0 {
		return []string{}, nil
	}
	var topics, payloads []string
	var keys, tenants, by []*string
	var keeps []int64
	var ids []pgtype.UUID
	for i := range events {
		p, err := events[i].Event()
		var id pgtype.UUID
		if err == nil && p.ID != "" {
			id, err = parseID(p.ID)
		}
		if err != nil {
			if e, ok := err.(*abi.Error); ok && len(events) > 1 {
				e.Message = fmt.Sprintf("entry %d: %s", i, e.Message)
			}
			return nil, err
		}
		topics, payloads = append(topics, p.Topic), append(payloads, string(p.Payload))
		keys, tenants, by = append(keys, optional(p.Key)), append(tenants, optional(p.Tenant)), append(by, optional(p.By))
		keeps, ids = append(keeps, p.Keep.Milliseconds()), append(ids, id)
	}
	at := where{schema: string(s), target: "the database of the transaction"}
	rows, err := tx.Query(ctx, dialect{schema: string(s)}.fill(publishSQL), topics, payloads, keys, tenants, keeps, by, ids)
	if err != nil {
		return nil, at.published(err)
	}
	out, err := pgx.CollectRows(rows, pgx.RowTo[string])
	return out, at.published(err)
}

// published is translate, in a database that may be the queue's.
func (w where) published(err error) error {
	err = w.translate(err, false)
	if e, ok := err.(*abi.Error); ok && e.Code == job.CodeDatabaseSchema {
		e.Fix = "run `runner migrate up` where the queue is, or `runner migrate outbox --database-url …` with the URL of that database"
	}
	return err
}
