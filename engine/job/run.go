package job

import (
	"cmp"
	"strings"
	"time"
)

// Ref names one claim of a run and is its fencing token: Worker is the claiming
// worker and Claim the run's claim ordinal, which nothing ever resets. A write
// that names a Ref lands only while the run is running under exactly that
// claim.
type Ref struct {
	RunID  string
	Worker string
	Claim  int64
}

// Run is one run as a store keeps it: all its attempts under one id. Instants
// are the store's clock, in UTC, to the millisecond.
type Run struct {
	ID          string
	Job         string
	Queue       string
	Tenant      string // "" is untenanted
	Key         string
	Gate        string // limit that its enqueuer put it under, as package limit names it; "" is none
	Blocked     string // gate that a ready run waits behind; "" is none
	State       State
	Priority    int  // that it was enqueued with: lower first, -100 to 100
	Aged        bool // it goes before every priority, since it has been ready for long
	Attempt     int  // counted attempts, the current one included
	MaxAttempts int
	Claims      int64 // claim ordinal; never reset
	Orphans     int   // leases lapsed in a row without a report
	Steps       int   // records in the step history
	Input       []byte
	Output      []byte // of a done run
	Module      string // digest it is pinned to; "" until its first attempt left a trace
	Worker      string // while running
	Parent      string // run that enqueued it; "" is none
	EnqueuedBy  string
	Traceparent string
	Error       Failure // of the last attempt that failed
	Progress    Progress
	RunAt       time.Time // when it is or was due
	CreatedAt   time.Time
	StartedAt   time.Time // first claim; zero until then
	ClaimedAt   time.Time // latest claim; zero until then
	FinishedAt  time.Time // zero while live
	ExpiresAt   time.Time // when a finished run may be purged; zero while live
}

// Rank is the priority by which a ready run is claimed.
func (r *Run) Rank() int {
	if r.Aged {
		return AgedPriority
	}
	return r.Priority
}

// ClaimOrder is the order in which the ready runs of a tenant are claimed.
func ClaimOrder(a, b *Run) int {
	return cmp.Or(cmp.Compare(a.Rank(), b.Rank()), a.RunAt.Compare(b.RunAt), strings.Compare(a.ID, b.ID))
}

// Begin makes a ready run one that worker has claimed at an instant.
func (r *Run) Begin(worker string, at time.Time) {
	r.State, r.Worker, r.ClaimedAt, r.Blocked, r.Aged = Running, worker, at, "", false
	r.Attempt++
	r.Claims++
	if r.StartedAt.IsZero() {
		r.StartedAt = at
	}
}

// Failure is what a store keeps of a failed attempt.
type Failure struct {
	Code    string `json:"code,omitempty"`
	Message string `json:"message,omitempty"` // for the operator
	Fix     string `json:"fix,omitempty"`     // for the caller
	Stack   string `json:"stack,omitempty"`
}

// Progress is the latest a handler reported.
type Progress struct {
	Permille int    `json:"permille"`
	Note     string `json:"note,omitempty"`
}

// AttemptRecord is one settled attempt in a run's timeline. A run that
// completes in its first attempt leaves none: its Run says the same.
type AttemptRecord struct {
	Claim      int64
	Attempt    int
	Worker     string
	Outcome    Outcome
	ClaimedAt  time.Time
	SettledAt  time.Time
	RunAt      time.Time // when it was due again; zero if terminal
	Error      Failure
	Module     string
	StepsAtEnd int
}

// Limits of what a run may carry, beside those of package abi.
const (
	MaxKey         = 512 // bytes of an idempotency key
	MaxTenant      = 255
	MaxTraceparent = 255 // bytes; a valid one has 55
	MaxErrorText   = 16 << 10
	MaxStack       = 8 << 10
	MinPriority    = -100
	MaxPriority    = 100
	// AgedPriority is that of a run which has been ready for its queue's age_after:
	// before every priority that can be asked for, so that it is known from them.
	AgedPriority = MinPriority - 1
	MostAttempts = 10_000
)
