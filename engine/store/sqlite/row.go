package sqlite

import "github.com/jobrunner/runner/engine/job"

// columns of {run}, before those a statement adds
const runColumns = 33

// stateBlocked is the text of a ready run that waits behind a gate: a state of its
// own here, so that the index of ready runs has only what a claim may take.
const stateBlocked = "blocked"

// Columns of {run}, by place.
const (
	gateColumn   = 30
	atGateColumn = 31
	askedColumn  = 32
)

// parseState is the state that a row's text stands for.
func parseState(text string) (job.State, error) {
	if text == stateBlocked {
		return job.Ready, nil
	}
	return job.ParseState(text)
}

// seenState is parseState of a text that may be another build's.
func seenState(text string) job.State {
	if text == stateBlocked {
		return job.Ready
	}
	return job.State(text)
}

// scanRun reads the {run} columns of the current row, without input and output.
// A state of another build is an error that names the row.
func scanRun(q *call) (r job.Run, seq int64, err error) {
	seq = q.colInt(0)
	r = job.Run{
		ID:          formatUUID(q.s.ColumnRawBlob(1)),
		Job:         q.colText(2),
		Queue:       q.colText(3),
		Tenant:      q.colText(4),
		Key:         q.colText(5),
		Priority:    int(q.colInt(7)),
		Attempt:     int(q.colInt(8)),
		MaxAttempts: int(q.colInt(9)),
		Claims:      q.colInt(10),
		Orphans:     int(q.colInt(11)),
		Steps:       int(q.colInt(12)),
		RunAt:       q.colTime(14),
		CreatedAt:   q.colTime(15),
		StartedAt:   q.colTime(16),
		ClaimedAt:   q.colTime(17),
		FinishedAt:  q.colTime(18),
		ExpiresAt:   q.colTime(19),
		Module:      q.colText(20),
		Parent:      formatUUID(q.s.ColumnRawBlob(21)),
		EnqueuedBy:  q.colText(22),
		Traceparent: q.colText(23),
		Error:       scanFailure(q, 24),
		Progress:    job.Progress{Permille: int(q.colInt(28)), Note: q.colText(29)},
		Gate:        q.colText(gateColumn),
	}
	if r.Priority == job.AgedPriority {
		r.Priority, r.Aged = int(q.colInt(askedColumn)), true
	}
	text := q.s.ColumnRawText(6)
	if string(text) == stateBlocked {
		r.State, r.Blocked = job.Ready, q.colText(atGateColumn)
		return r, seq, nil
	}
	for _, st := range job.States {
		if string(st) == string(text) {
			r.State = st
		}
	}
	if r.State == "" {
		return r, seq, errRowStatus("runs", "state", string(text), r.ID)
	}
	if r.State == job.Running {
		r.Worker = q.colText(13)
	}
	return r, seq, nil
}

// scanFailure reads four error columns beginning at i.
func scanFailure(q *call, i int) job.Failure {
	return job.Failure{Code: q.colText(i), Message: q.colText(i + 1), Fix: q.colText(i + 2), Stack: q.colText(i + 3)}
}

// bindFailure binds four error columns, NULL where there is nothing.
func bindFailure(q *call, f *job.Failure) {
	if f == nil {
		f = &job.Failure{}
	}
	q.textOrNull(f.Code)
	q.textOrNull(f.Message)
	q.textOrNull(f.Fix)
	q.textOrNull(f.Stack)
}
