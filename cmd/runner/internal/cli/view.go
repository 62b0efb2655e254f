package cli

import (
	"encoding/json"
	"time"

	"github.com/jobrunner/runner/engine/job"
)

// runView is a run as JSON. Names and meanings are stable; a value that does
// not exist is absent.
type runView struct {
	ID          string          `json:"id"`
	Job         string          `json:"job"`
	Queue       string          `json:"queue"`
	Tenant      string          `json:"tenant,omitempty"`
	Key         string          `json:"key,omitempty"`
	State       job.State       `json:"state"`
	Blocked     string          `json:"blocked,omitempty"` // the limit that a ready run waits for
	Priority    int             `json:"priority"`
	Aged        bool            `json:"aged,omitempty"` // it goes before every priority, whatever its own
	Attempt     int             `json:"attempt"`
	MaxAttempts int             `json:"max_attempts"`
	Claims      int64           `json:"claims"`
	Steps       int             `json:"steps"`
	Module      string          `json:"module,omitempty"`
	Worker      string          `json:"worker,omitempty"`
	Parent      string          `json:"parent,omitempty"`
	EnqueuedBy  string          `json:"enqueued_by,omitempty"`
	Traceparent string          `json:"traceparent,omitempty"`
	Error       *job.Failure    `json:"error,omitempty"`
	Progress    *job.Progress   `json:"progress,omitempty"`
	RunAt       time.Time       `json:"run_at,omitzero"`
	CreatedAt   time.Time       `json:"created_at,omitzero"`
	StartedAt   time.Time       `json:"started_at,omitzero"`
	FinishedAt  time.Time       `json:"finished_at,omitzero"`
	ExpiresAt   time.Time       `json:"expires_at,omitzero"`
	Input       json.RawMessage `json:"input,omitempty"`
	Output      json.RawMessage `json:"output,omitempty"`
	Retry       string          `json:"retry,omitempty"` // of a dead run: the command that runs it again
}

func viewRun(r job.Run, show func([]byte) json.RawMessage) runView {
	v := runView{
		ID: r.ID, Job: r.Job, Queue: r.Queue, Tenant: r.Tenant, Key: r.Key, State: r.State, Blocked: r.Blocked, Aged: r.Aged, Priority: r.Priority,
		Attempt: r.Attempt, MaxAttempts: r.MaxAttempts, Claims: r.Claims, Steps: r.Steps, Module: r.Module,
		Worker: r.Worker, Parent: r.Parent, EnqueuedBy: r.EnqueuedBy, Traceparent: r.Traceparent,
		CreatedAt: r.CreatedAt, StartedAt: r.StartedAt, FinishedAt: r.FinishedAt, ExpiresAt: r.ExpiresAt,
		Input: show(r.Input), Output: show(r.Output),
	}
	if r.State != job.Done { // what an earlier attempt failed of is in its record
		v.Error = viewFailure(r.Error)
	}
	if r.Progress != (job.Progress{}) {
		v.Progress = &r.Progress
	}
	if !forChildren(r) {
		v.RunAt = r.RunAt
	}
	return v
}

// viewRun is viewRun with what would run a dead run again.
func (e *env) viewRun(r job.Run, show func([]byte) json.RawMessage) runView {
	v := viewRun(r, show)
	if r.State == job.Dead {
		v.Retry = elsewhere(e.cmd, retryCommand(r))
	}
	return v
}

// runsPage is a page of runs as JSON.
type runsPage struct {
	Runs []runView `json:"runs"`
	Next string    `json:"next,omitempty"` // what --before of the next page is
}

func viewFailure(f job.Failure) *job.Failure {
	if f == (job.Failure{}) {
		return nil
	}
	return &f
}

// historyView is a run with its timeline as JSON.
type historyView struct {
	runView
	ToUndo []string `json:"to_undo,omitempty"` // steps that are still to be undone, the next first
	logsView
	Attempts []attemptView `json:"attempts"`
	History  []stepView    `json:"history"`
	Audit    []auditView   `json:"audit"`
	Children []runView     `json:"children"` // newest first
	More     bool          `json:"more_children,omitempty"`
}

// attemptView is one settled attempt. A run that completed in its first
// attempt has none.
type attemptView struct {
	Attempt   int          `json:"attempt"`
	Claim     int64        `json:"claim"`
	Worker    string       `json:"worker"`
	Outcome   job.Outcome  `json:"outcome"`
	ClaimedAt time.Time    `json:"claimed_at,omitzero"`
	SettledAt time.Time    `json:"settled_at,omitzero"`
	DueAt     time.Time    `json:"due_at,omitzero"`
	Module    string       `json:"module,omitempty"`
	Steps     int          `json:"steps"`
	Error     *job.Failure `json:"error,omitempty"`
}

// stepView is one record of the run's history.
type stepView struct {
	Name       string          `json:"name"`
	Kind       job.StepKind    `json:"kind"`
	Status     job.StepStatus  `json:"status"`
	Failures   int             `json:"failures"`
	StartedAt  time.Time       `json:"started_at,omitzero"`
	FinishedAt time.Time       `json:"finished_at,omitzero"`
	WakeAt     time.Time       `json:"wake_at,omitzero"`
	Topic      string          `json:"topic,omitempty"`
	EventKey   string          `json:"event_key,omitempty"`
	Child      string          `json:"child,omitempty"`
	Output     json.RawMessage `json:"output,omitempty"`
	Error      *job.Failure    `json:"error,omitempty"`
}

func viewHistory(h history, show func([]byte) json.RawMessage) historyView {
	v := historyView{runView: viewRun(h.run, show), Attempts: []attemptView{}, History: []stepView{}, Audit: []auditView{}, Children: []runView{}, More: h.more}
	for _, a := range h.attempts {
		one := attemptView{
			Attempt: a.Attempt, Claim: a.Claim, Worker: a.Worker, Outcome: a.Outcome, ClaimedAt: a.ClaimedAt,
			SettledAt: a.SettledAt, DueAt: a.RunAt, Module: a.Module, Steps: a.StepsAtEnd, Error: viewFailure(a.Error),
		}
		if parkedForChildren(a) {
			one.DueAt = time.Time{}
		}
		v.Attempts = append(v.Attempts, one)
	}
	for _, s := range h.steps {
		v.History = append(v.History, stepView{
			Name: s.Name, Kind: s.Kind, Status: s.Status, Failures: s.Attempts, StartedAt: s.StartedAt,
			FinishedAt: s.FinishedAt, WakeAt: s.WakeAt, Topic: s.Topic, EventKey: s.EventKey, Child: s.Child, Output: show(s.Output), Error: viewFailure(s.Error),
		})
	}
	v.ToUndo = job.ToUndo(&h.run, h.steps)
	v.Logs, v.Dropped = viewLog(h.log.Lines), h.log.Dropped
	for _, a := range h.audit {
		v.Audit = append(v.Audit, auditView(a))
	}
	for _, r := range h.children {
		v.Children = append(v.Children, viewRun(r, show))
	}
	return v
}

// whole shows a payload as it is, to whoever brought it: what is not JSON
// cannot be embedded and is described.
func whole(payload []byte) json.RawMessage {
	if len(payload) == 0 {
		return nil
	}
	if !json.Valid(payload) {
		return notJSON(payload)
	}
	return payload
}
