package postgres

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jobrunner/runner/engine/job"
)

// row reads one result row in the binary format, column after column. It knows
// the few types that the statements return, and nothing of the server's: that
// costs a third of the driver's general way, and a claim reads 500 rows.
type row struct {
	vals [][]byte
	i    int
	err  error
	// The last texts of the columns that repeat from row to row.
	job, queue, tenant, worker, module string
}

// begin points r at the next row.
func (r *row) begin(vals [][]byte) { r.vals, r.i = vals, 0 }

func (r *row) next() []byte {
	v := r.vals[r.i]
	r.i++
	return v
}

func (r *row) text() string { return dec(r.next()) }

// same is text, sharing the string with the row before when it is equal.
func (r *row) same(last *string) string {
	if v := r.next(); string(v) != *last {
		*last = dec(v)
	}
	return *last
}

func (r *row) int() int64 {
	v := r.next()
	switch len(v) {
	case 0:
		return 0 // NULL
	case 2:
		return int64(int16(binary.BigEndian.Uint16(v)))
	case 4:
		return int64(int32(binary.BigEndian.Uint32(v)))
	case 8:
		return int64(binary.BigEndian.Uint64(v))
	}
	r.fail("an integer", v)
	return 0
}

func (r *row) bool() bool {
	v := r.next()
	return len(v) == 1 && v[0] == 1
}

// epoch is the server's, in microseconds of Unix time.
const epoch = 946684800 * 1_000_000

// The first and last instants that a row is read to have. The server knows others
// (infinity, years before Christ), and an enqueuer's role may write them. JSON has
// no such years, and one such row must not keep a listing from the others.
var (
	firstTime = time.Date(1, 1, 1, 0, 0, 0, int(time.Millisecond), time.UTC) // not the zero one, which is none
	lastTime  = time.Date(9999, 12, 31, 23, 59, 59, int(999*time.Millisecond), time.UTC)

	firstMicro, lastMicro = firstTime.UnixMicro() - epoch, lastTime.UnixMicro() - epoch
)

func (r *row) time() time.Time {
	v := r.next()
	switch len(v) {
	case 0:
		return time.Time{}
	case 8:
		at := min(max(int64(binary.BigEndian.Uint64(v)), firstMicro), lastMicro)
		return time.UnixMicro(at + epoch).UTC()
	}
	r.fail("an instant", v)
	return time.Time{}
}

func (r *row) uuid() string { return formatUUID(r.next()) }

func (r *row) id() (u uuid) {
	if v := r.next(); copy(u[:], v) != len(u) {
		r.fail("an id", v)
	}
	return u
}

// bytes is a copy, nil for NULL.
func (r *row) bytes() []byte {
	v := r.next()
	if v == nil {
		return nil
	}
	return append(make([]byte, 0, len(v)), v...)
}

func (r *row) failure() job.Failure {
	var f job.Failure
	if v := r.next(); v != nil && json.Unmarshal(v, &f) != nil {
		// Somebody else wrote it. One such row must not keep the claim of a whole
		// queue, or a listing, from the others.
		return job.Failure{Code: job.CodeInternal, Message: "the error in the database is no record of one"}
	}
	return f
}

func (r *row) fail(what string, v []byte) {
	if r.err == nil {
		r.err = fmt.Errorf("column %d of a row is not %s but %d bytes", r.i, what, len(v))
	}
}

// stateBlocked is the text of a ready run that waits behind a gate: a state of its
// own here, so that the index of ready runs has only what a claim may take.
const stateBlocked = "blocked"

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

// identity reads id, job, queue, tenant and key.
func (r *row) identity(run *job.Run) {
	run.ID, run.Job, run.Queue, run.Tenant = r.uuid(), r.same(&r.job), r.same(&r.queue), r.same(&r.tenant)
	switch key := r.next(); {
	case len(key) > 0:
		run.Key = dec(key)
	case key != nil:
		run.Key = run.ID // which is not written twice
	}
}

// counts reads priority, attempt, max_attempts, claims and orphans.
func (r *row) counts(run *job.Run) {
	run.Priority, run.Attempt, run.MaxAttempts = int(r.int()), int(r.int()), int(r.int())
	run.Claims, run.Orphans = r.int(), int(r.int())
}

// aged reads asked_priority.
func (r *row) aged(run *job.Run) {
	if v := r.next(); v != nil {
		r.i--
		run.Priority, run.Aged = int(r.int()), true
	}
}

// history reads module, parent, enqueued_by, traceparent, error and progress.
func (r *row) history(run *job.Run) {
	run.Module, run.Parent, run.EnqueuedBy, run.Traceparent = r.same(&r.module), r.uuid(), r.text(), r.text()
	run.Error = r.failure()
	if v := r.next(); v != nil && json.Unmarshal(v, &run.Progress) != nil {
		run.Progress = job.Progress{} // as for an error
	}
}

// run reads the columns of a run, without input and output. A state of another
// build is an error that names the row.
func (r *row) run() (job.Run, error) {
	var run job.Run
	r.identity(&run)
	state := r.next()
	for _, st := range job.States {
		if string(st) == string(state) {
			run.State = st
		}
	}
	r.counts(&run)
	run.RunAt = r.time()
	run.CreatedAt = r.time()
	run.StartedAt = r.time()
	run.ClaimedAt = r.time()
	run.FinishedAt = r.time()
	run.ExpiresAt = r.time()
	run.Worker = r.same(&r.worker)
	r.history(&run)
	run.Steps = int(r.int())
	run.Gate = r.text()
	at := r.text()
	r.aged(&run)
	if string(state) == stateBlocked {
		run.State, run.Blocked = job.Ready, at
	}
	if r.err != nil {
		return run, r.err
	}
	if run.State == "" {
		return run, errRowStatus("state", string(state), run.ID)
	}
	return run, nil
}

// failureText is how a failure is stored; nil for none.
func failureText(f *job.Failure) *string {
	if f == nil {
		return nil
	}
	return jsonText(*f)
}

// jsonText is v as JSON. Texts that are not UTF-8, or hold a NUL, become what
// the database can store.
func jsonText(v any) *string {
	b, err := json.Marshal(v)
	if err != nil {
		return nil // strings and integers only: it cannot happen
	}
	s := string(b)
	return &s
}

// millis truncates t to what the store keeps.
func millis(t time.Time) time.Time { return t.UTC().Truncate(time.Millisecond) }

// timeOrNull is t for a nullable column.
func timeOrNull(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = millis(t)
	return &t
}
