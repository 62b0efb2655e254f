package queue

import (
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/abi/wire"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/manifest"
	"github.com/jobrunner/runner/engine/store"
)

// Request asks for a run.
type Request struct {
	Job string
	// Input is JSON; empty is null. It is not copied: a write that outlives the
	// call's context may still read it.
	Input []byte
	// ID is the run's id, for a caller who must know it beforehand: a canonical
	// lower-case UUID. Empty: one is minted. An id that names a run already, in
	// any state, inserts nothing.
	ID string
	// Key is the idempotency key. Empty: the job's template renders it.
	Key string
	// KeyPrefix goes before the key, whoever gave it: a schedule's runs have a key
	// for each occurrence.
	KeyPrefix string
	// Tenant is whose run it is. Empty: the job's template renders it. Where
	// both speak they must agree. A job with none takes it as it is.
	Tenant string
	// RunAt is when it becomes due; zero is at once. It excludes Delay, which
	// counts from the store's now and is preferable where clocks may differ.
	RunAt time.Time
	Delay time.Duration
	// Priority overrides the job's. Lower first.
	Priority *int
	// MaxAttempts overrides the job's retry policy; 0 does not.
	MaxAttempts int
	// EnqueuedBy records who asked. It confers nothing.
	EnqueuedBy  string
	Parent      string // run that asks
	Traceparent string
	OnConflict  OnConflict
}

// OnConflict says what a live holder of the key means.
type OnConflict int

const (
	// Dedupe answers the holder.
	Dedupe OnConflict = iota
	// Fail answers X_JOB_DUPLICATE, which names the holder.
	Fail
)

// Result is the run that a Request led to.
type Result struct {
	ID      string
	Deduped bool      // a live run (or one of that ID) stands for the request
	State   job.State // of the run that stands for it
}

// MaxDelay bounds how far ahead a run may be due.
const MaxDelay = abi.MaxSleep

// Prepare checks requests, all of them, and turns them into what a store
// inserts. It writes nothing. The error is that of the first bad request; with
// more than one request it names the index.
//
// Errors: X_JOB_UNKNOWN, X_JOB_INPUT_INVALID, X_JOB_KEY_INVALID,
// X_JOB_TENANT_MISMATCH, X_ID_INVALID, X_INVALID.
func (q *Queue) Prepare(requests []Request) ([]store.EnqueueParams, error) {
	prepared := make([]store.EnqueueParams, len(requests))
	for i := range requests {
		if err := q.prepare(&requests[i], &prepared[i]); err != nil {
			if len(requests) > 1 {
				err = at(i, err)
			}
			return nil, err
		}
	}
	return prepared, nil
}

// EntryError is an error about one entry of a batch, inside the error that tells
// of it by its index: for callers who know the entry by another name.
type EntryError struct {
	Index int
	Err   error
}

func (e *EntryError) Error() string { return fmt.Sprintf("entry %d: %v", e.Index, e.Err) }
func (e *EntryError) Unwrap() error { return e.Err }

// at names the entry that err is about, keeping its code.
func at(i int, err error) error {
	var e *abi.Error
	if !errors.As(err, &e) {
		return &EntryError{i, err}
	}
	return &abi.Error{Code: e.Code, Message: fmt.Sprintf("entry %d: %s", i, e.Message), Fix: e.Fix, Err: &EntryError{i, err}}
}

// prepare checks one request and fills p in.
func (q *Queue) prepare(r *Request, p *store.EnqueueParams) error {
	j, err := q.declared(r.Job)
	if err != nil {
		return err
	}
	input := r.Input
	if len(input) == 0 {
		input = []byte("null")
	}
	if err := CheckInput(j, input); err != nil {
		return err
	}
	id, err := mintOrCheck(r.ID)
	if err != nil {
		return err
	}
	asked := job.Asked{
		Key: r.Key, Tenant: r.Tenant, EnqueuedBy: r.EnqueuedBy, Traceparent: r.Traceparent,
		RunAt: r.RunAt, Delay: r.Delay, Priority: r.Priority, MaxAttempts: r.MaxAttempts,
	}
	if err := asked.Check(); err != nil {
		return err
	}
	tenant, err := tenantFor(j, r.Tenant, input, id)
	if err != nil {
		return err
	}
	key, err := keyFor(j, r.Key, input, id)
	if err == nil && r.KeyPrefix != "" {
		key = r.KeyPrefix + key
		err = job.CheckText(job.CodeKeyInvalid, "idempotency key", key, job.MaxKey)
	}
	if err != nil {
		return err
	}
	gate, err := gateFor(j, input, id)
	if err != nil {
		return err
	}
	*p = store.EnqueueParams{
		ID: id, Job: j.Name, Queue: j.Queue, Tenant: tenant, Key: key, Gate: gate, Input: input,
		Priority: j.Priority, MaxAttempts: max(j.Retry.Attempts, 1),
		RunAt: r.RunAt, Delay: r.Delay,
		Parent: r.Parent, EnqueuedBy: r.EnqueuedBy, Traceparent: r.Traceparent, Minted: r.ID == "",
	}
	overrides(r, p)
	return nil
}

// overrides applies what the request says instead of the declaration.
func overrides(r *Request, p *store.EnqueueParams) {
	if r.Priority != nil {
		p.Priority = *r.Priority
	}
	if r.MaxAttempts > 0 {
		p.MaxAttempts = r.MaxAttempts
	}
}

func invalid(fix, format string, args ...any) error {
	return &abi.Error{Code: job.CodeInvalid, Message: fmt.Sprintf(format, args...), Fix: fix}
}

// CheckInput reports why input cannot be a run's of j: it is not strict JSON of
// at most abi.MaxInput bytes, or it breaks the job's schema. It is checked when
// a run is enqueued, and again when it is claimed, because the manifest or the
// row may have changed in between.
// Errors: X_JOB_INPUT_INVALID.
func CheckInput(j *manifest.Job, input []byte) error {
	fix := "send one JSON value in UTF-8, with each key once and control characters escaped"
	err := wire.CheckJSON(input, abi.MaxInput)
	if err == nil {
		fix = "send an input that the job's schema accepts"
		err = j.Input.Validate(input)
	}
	if err == nil {
		return nil
	}
	refused := &abi.Error{
		Code:    job.CodeInputInvalid,
		Message: fmt.Sprintf("the input of job %q is refused: %v", j.Name, err),
		Fix:     fix,
		Err:     err,
	}
	var why *abi.Error // says it once, without a code in the middle
	if errors.As(err, &why) {
		refused.Message = fmt.Sprintf("the input of job %q is refused: %s", j.Name, why.Message)
		if why.Fix != "" {
			refused.Fix = why.Fix
		}
	}
	return refused
}

// mintOrCheck answers id if it is a canonical UUID, or a new one.
func mintOrCheck(id string) (string, error) {
	if id == "" {
		u, err := uuid.NewV7() // time-ordered, so that ids sort as runs were created
		if err != nil {
			return "", &abi.Error{Code: job.CodeInternal, Message: "no random bytes for an id", Err: err}
		}
		return u.String(), nil
	}
	if u, err := uuid.Parse(id); err != nil || u.String() != id {
		return "", &abi.Error{
			Code:    job.CodeIDInvalid,
			Message: fmt.Sprintf("id %q is not a canonical UUID", clip(id, 64)),
			Fix:     "write it in lower case with hyphens, as in 01890a5d-ac96-774b-bcce-b302099a8057",
		}
	}
	return id, nil
}
