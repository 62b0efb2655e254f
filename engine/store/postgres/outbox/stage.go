package outbox

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/abi/wire"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

// Request asks for a run; see store.StageParams.
type Request = store.StageParams

// What a live holder of a request's key means.
const (
	Dedupe = store.ConflictDedupe // the holder stands for the request
	Reject = store.ConflictReject // the request is parked as rejected
)

// MaxStage bounds the entries of one EnqueueManyTx.
const MaxStage = 10_000

// EnqueueTx stages a run in the caller's transaction and answers the id that it
// will have: it exists if the transaction commits, and a relay publishes it
// then. With OnConflict Dedupe and a key that a live run holds, that run stands
// for it instead, which the row tells (`runner outbox ls --state published`).
//
// What can be told without the manifest is checked before the transaction is
// touched, so that it stays usable after a refusal. The rest is the relay's: a
// row that it must refuse is parked with the reason.
//
// Errors: X_ID_INVALID, X_JOB_INPUT_INVALID, X_JOB_KEY_INVALID, X_JOB_UNKNOWN for what
// can be the name of none, X_INVALID; X_DATABASE_SCHEMA where
// no outbox is installed, X_DATABASE_DENIED, and the driver's. After these the
// transaction can only be rolled back.
func EnqueueTx(ctx context.Context, tx pgx.Tx, r Request) (id string, err error) {
	return Schema(DefaultSchema).EnqueueTx(ctx, tx, r)
}

// EnqueueManyTx stages up to MaxStage runs in one round trip, in order, and
// answers their ids. Every request is checked before the first is staged; the
// error names a bad one by its index. Otherwise it is as EnqueueTx.
func EnqueueManyTx(ctx context.Context, tx pgx.Tx, requests []Request) (ids []string, err error) {
	return Schema(DefaultSchema).EnqueueManyTx(ctx, tx, requests)
}

// Schema is an outbox that is in another schema than DefaultSchema.
type Schema string

// EnqueueTx is EnqueueTx for an outbox in s.
func (s Schema) EnqueueTx(ctx context.Context, tx pgx.Tx, r Request) (string, error) {
	ids, err := s.stage(ctx, tx, []Request{r})
	if err != nil {
		return "", err
	}
	return ids[0], nil
}

// EnqueueManyTx is EnqueueManyTx for an outbox in s.
func (s Schema) EnqueueManyTx(ctx context.Context, tx pgx.Tx, requests []Request) ([]string, error) {
	if len(requests) > MaxStage {
		return nil, errInvalid("a batch has %d entries; at most %d go in one", len(requests), MaxStage)
	}
	return s.stage(ctx, tx, requests)
}

// stageSQL calls enqueue for each entry, in order.
const stageSQL = `SELECT {schema}.enqueue(u.job, u.input, u.key, u.tenant, u.run_at, u.delay * interval '1 millisecond', u.priority,
  u.max_attempts, u.on_conflict, u.enqueued_by, u.traceparent, u.id)::text
FROM (SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::timestamptz[], $6::bigint[], $7::integer[],
  $8::integer[], $9::text[], $10::text[], $11::text[], $12::uuid[]) WITH ORDINALITY
  u(job, input, key, tenant, run_at, delay, priority, max_attempts, on_conflict, enqueued_by, traceparent, id, ord) ORDER BY ord) u`

func (s Schema) stage(ctx context.Context, tx pgx.Tx, requests []Request) ([]string, error) {
	if err := checkSchema(string(s)); err != nil {
		return nil, err
	}
	if len(requests) == 0 {
		return []string{}, nil
	}
	c := newColumns(len(requests))
	for i := range requests {
		if err := c.add(&requests[i]); err != nil {
			if e, ok := err.(*abi.Error); ok && len(requests) > 1 {
				e.Message = fmt.Sprintf("entry %d: %s", i, e.Message)
			}
			return nil, err
		}
	}
	at := where{schema: string(s), target: "the database of the transaction"}
	rows, err := tx.Query(ctx, dialect{schema: string(s)}.fill(stageSQL), c.args()...)
	if err != nil {
		return nil, at.translate(err, false)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	return ids, at.translate(err, false)
}

// columns are requests as arrays.
type columns struct {
	jobs, inputs                         []string
	keys, tenants, conflicts, by, traces []*string
	runAt                                []*time.Time
	delays                               []*int64
	priorities, attempts                 []*int32
	ids                                  []pgtype.UUID
}

func newColumns(n int) *columns {
	return &columns{jobs: make([]string, 0, n), inputs: make([]string, 0, n)}
}

func (c *columns) args() []any {
	return []any{c.jobs, c.inputs, c.keys, c.tenants, c.runAt, c.delays, c.priorities, c.attempts, c.conflicts, c.by, c.traces, c.ids}
}

// add checks a request as enqueue would, and takes it up.
func (c *columns) add(r *Request) error {
	input := r.Input
	if len(input) == 0 {
		input = []byte("null")
	}
	id, err := checkRequest(r, input)
	if err != nil {
		return err
	}
	c.jobs, c.inputs = append(c.jobs, r.Job), append(c.inputs, string(input))
	c.keys, c.tenants = append(c.keys, optional(r.Key)), append(c.tenants, optional(r.Tenant))
	c.conflicts, c.by, c.traces = append(c.conflicts, optional(string(r.OnConflict))), append(c.by, optional(r.EnqueuedBy)), append(c.traces, optional(r.Traceparent))
	var runAt *time.Time
	if !r.RunAt.IsZero() {
		runAt = &r.RunAt
	}
	var delay *int64
	if r.Delay > 0 {
		ms := r.Delay.Milliseconds()
		delay = &ms
	}
	var priority, attempts *int32
	if r.Priority != nil {
		p := int32(*r.Priority)
		priority = &p
	}
	if r.MaxAttempts > 0 {
		a := int32(r.MaxAttempts)
		attempts = &a
	}
	c.runAt, c.delays = append(c.runAt, runAt), append(c.delays, delay)
	c.priorities, c.attempts = append(c.priorities, priority), append(c.attempts, attempts)
	c.ids = append(c.ids, id)
	return nil
}

func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// checkRequest checks in the order of the queue: of two mistakes each door tells the
// same.
func checkRequest(r *Request, input []byte) (id pgtype.UUID, err error) {
	if r.Job == "" {
		return id, &abi.Error{Code: job.CodeUnknownJob, Message: "a job must be named", Fix: "name one that the queue's jobs.toml declares"}
	}
	if err := job.CheckText(job.CodeUnknownJob, "name of the job", r.Job, abi.MaxName); err != nil {
		return id, err
	}
	if err := wire.CheckJSON(input, abi.MaxInput); err != nil {
		return id, &abi.Error{
			Code:    job.CodeInputInvalid,
			Message: fmt.Sprintf("the input of job %q is refused: %v", r.Job, err),
			Fix:     "send strict JSON",
			Err:     err,
		}
	}
	if r.ID != "" {
		if id, err = parseID(r.ID); err != nil {
			return id, err
		}
	}
	asked := job.Asked{
		Key: r.Key, Tenant: r.Tenant, EnqueuedBy: r.EnqueuedBy, Traceparent: r.Traceparent,
		RunAt: r.RunAt, Delay: r.Delay, Priority: r.Priority, MaxAttempts: r.MaxAttempts,
	}
	if err := asked.Check(); err != nil {
		return id, err
	}
	if r.OnConflict != "" && r.OnConflict != Dedupe && r.OnConflict != Reject {
		return id, &abi.Error{
			Code: job.CodeInvalid, Message: fmt.Sprintf("%s says nothing about a conflict", job.Quote(string(r.OnConflict))), Fix: fmt.Sprintf("say %s or %s", Dedupe, Reject),
		}
	}
	return id, nil
}
