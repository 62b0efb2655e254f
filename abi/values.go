package abi

import (
	"encoding/json"
	"time"
)

// Meta is what a guest may know of the run it serves.
type Meta struct {
	RunID       string    `json:"run_id"`
	Job         string    `json:"job"`
	Queue       string    `json:"queue"`
	Tenant      string    `json:"tenant,omitempty"`
	Attempt     int       `json:"attempt"`      // from 1
	MaxAttempts int       `json:"max_attempts"` // attempts in all
	EnqueuedAt  time.Time `json:"enqueued_at"`
	Deadline    time.Time `json:"deadline,omitzero"` // of this attempt; zero is none
	Traceparent string    `json:"traceparent,omitempty"`
	Module      string    `json:"module"` // SHA-256 of the module, hex
}

// Failure is why a step or a run did not succeed. Message is for the operator;
// Fix is what a caller may be told.
type Failure struct {
	Kind       FailureKind   `json:"-"` // crosses as a parameter
	Message    string        `json:"message"`
	Code       string        `json:"code,omitempty"` // stable, as in X_CARD_DECLINED
	Fix        string        `json:"fix,omitempty"`
	RetryAfter time.Duration `json:"-"` // crosses as retry_after_ms; FailRetryAfter and FailRateLimited
	Stack      string        `json:"stack,omitempty"`
}

// EnqueueParams asks for a run of another job (or of the same).
type EnqueueParams struct {
	Job      string          `json:"job"`
	Input    json.RawMessage `json:"input"`
	Key      string          `json:"key,omitempty"`      // instead of the manifest's template
	Tenant   string          `json:"tenant,omitempty"`   // checked against the manifest's template
	DelayMS  int64           `json:"delay_ms,omitempty"` // from the store's now
	RunAt    time.Time       `json:"run_at,omitzero"`    // excludes DelayMS
	Priority *int            `json:"priority,omitempty"` // instead of the manifest's
	// Abandon, of an invoked run only, lets it go on when the run that waits for
	// it ends before it; it is cancelled otherwise.
	Abandon bool `json:"abandon,omitempty"`
	// TimeoutMS, of an invoked run only, is how long the run that waits for it does,
	// from its start; 0 is for as long as it takes.
	TimeoutMS int64 `json:"timeout_ms,omitempty"`
}

// WaitParams say which event a wait is for. An empty Key takes events of any. A
// negative Timeout takes none: it only has the next wait for the same count from
// here.
type WaitParams struct {
	Name    string // of the wait
	Topic   string
	Key     string
	Timeout time.Duration
}

// PublishParams are an event. Key says what it is about, as an order's number;
// it may be empty.
type PublishParams struct {
	Topic   string
	Key     string
	Payload []byte // JSON
}

// InvokeResult is how a child run ended: Failure is nil if it is done.
type InvokeResult struct {
	Output  []byte
	Failure *Failure
}

// EnqueueResult is the run that an EnqueueParams led to.
type EnqueueResult struct {
	ID      string `json:"id"`
	Deduped bool   `json:"deduped,omitempty"` // a live run already held the key; ID is that run's
}

// Description is what a module says of itself.
type Description struct {
	ABI      int       `json:"abi"`
	SDK      string    `json:"sdk"` // name and version, as in "go/1.0"
	Handlers []Handler `json:"handlers"`
}

// Handler is one job handler of a module; its index in Description.Handlers is
// the argument of runner_run.
type Handler struct {
	Name   string          `json:"name"`
	Schema json.RawMessage `json:"schema,omitempty"` // JSON Schema of its input
}

// HTTPRequest is a request that a guest asks its host to make.
type HTTPRequest struct {
	Method    string            `json:"method"`
	URL       string            `json:"url"`
	Headers   map[string]string `json:"headers,omitempty"`
	Body      string            `json:"body,omitempty"`
	Body64    string            `json:"body64,omitempty"` // instead of Body, base64
	TimeoutMS int64             `json:"timeout_ms,omitempty"`
}

// HTTPResponse is the answer to an HTTPRequest. Body is used when the bytes
// are valid UTF-8, Body64 otherwise.
type HTTPResponse struct {
	Status  int               `json:"status"`
	Headers map[string]string `json:"headers,omitempty"`
	Body    string            `json:"body,omitempty"`
	Body64  string            `json:"body64,omitempty"`
}
