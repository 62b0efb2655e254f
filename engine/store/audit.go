package store

import (
	"context"
	"strconv"
	"strings"
	"time"
)

// Auditor tells who did what. Each verb of an operator writes its entry in the
// commit that does it: what was refused or rolled back left none.
type Auditor interface {
	// Audit returns entries, newest first. Errors: X_JOB_PAGE_INVALID, X_INVALID (Verb).
	Audit(ctx context.Context, p AuditParams) ([]AuditEntry, error)
}

// AuditRetention is how long an entry is kept: Purge deletes older ones, a
// bounded number at a time.
const AuditRetention = 90 * 24 * time.Hour

// AuditVerb is what an operator did.
type AuditVerb string

const (
	AuditCancel  AuditVerb = "cancel"
	AuditRetry   AuditVerb = "retry"
	AuditPromote AuditVerb = "promote"
	AuditDelete  AuditVerb = "delete"
	AuditPause   AuditVerb = "pause"
	AuditResume  AuditVerb = "resume"
	AuditForget  AuditVerb = "forget"
)

// AuditVerbs are all of them, in the order in which people list them.
var AuditVerbs = []AuditVerb{AuditCancel, AuditRetry, AuditPromote, AuditDelete, AuditPause, AuditResume, AuditForget}

// AuditKind is what it was done to.
type AuditKind string

// AuditRun entries have the id of a run as their subject, AuditSchedule entries
// the name of a schedule, AuditRow entries, which are an outbox's, the id of a row.
const (
	AuditRun      AuditKind = "run"
	AuditSchedule AuditKind = "schedule"
	AuditRow      AuditKind = "row"
)

// Audit answers the entry of a pause.
func (p PauseParams) Audit() AuditEntry {
	e := AuditEntry{By: p.By, Verb: AuditPause, Kind: AuditKind(p.Kind), Subject: p.Name, Detail: p.Reason}
	if p.Resume {
		e.Verb = AuditResume
	}
	return e
}

// AuditEntry is one thing that was done.
type AuditEntry struct {
	ID      int64 // rises with time
	At      time.Time
	By      string // "" is unnamed
	Verb    AuditVerb
	Kind    AuditKind
	Subject string
	Detail  string // a reason, or what was asked for besides; never a payload
}

// Detail says what of a requeue is not the usual.
func (p RequeueParams) Detail() string {
	var parts []string
	if p.FromStep != "" {
		parts = append(parts, "from step "+p.FromStep)
	}
	if p.Attempts > 0 {
		parts = append(parts, "attempts "+strconv.Itoa(p.Attempts))
	}
	if p.NoCompensate {
		parts = append(parts, "nothing undone")
	}
	if p.Latest {
		parts = append(parts, "on the latest module")
	}
	return strings.Join(parts, ", ")
}

// AuditParams filters. Zero values filter nothing.
type AuditParams struct {
	Kind    AuditKind
	Subject string // only with Kind
	By      string
	Verb    AuditVerb
	Since   time.Time // done then or later
	Until   time.Time // done before
	Before  int64     // id of an entry: only older ones, exclusive
	Limit   int       // 0 is 100; at most 1,000
}
