package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/jobrunner/runner/abi"
)

type enqueueJSON struct {
	Job       string          `json:"job"`
	Input     json.RawMessage `json:"input"`
	Key       string          `json:"key"`
	Tenant    string          `json:"tenant"`
	DelayMS   *int64          `json:"delay_ms"`
	RunAt     *time.Time      `json:"run_at"`
	Priority  *int            `json:"priority"`
	Abandon   bool            `json:"abandon"`
	TimeoutMS *int64          `json:"timeout_ms"`
}

// DecodeEnqueue is the argument of enqueue: one EnqueueParams or an array of at
// most abi.MaxEnqueue of them, abi.MaxEnqueueBytes in all. An entry without an
// input has the input null. Which jobs exist, what their inputs look like and
// which keys, tenants and priorities they take is for the queue to check.
//
// What is not strict JSON is a Violation. Too many or too large is a Refusal
// with CodeLimit; an unknown field, a wrong type, a job name that is none, and
// delay_ms together with run_at one with CodeInvalid. Nothing is accepted
// unless all of it is.
func DecodeEnqueue(b []byte) ([]abi.EnqueueParams, error) {
	runs, err := decodeRuns(abi.FuncEnqueue, b)
	for i := range runs {
		if runs[i].Abandon {
			return nil, invalid("leave it out: a run that nobody waits for goes on anyway", "entry %d of the request: abandon is for invoke", i)
		}
		if runs[i].TimeoutMS != 0 {
			return nil, invalid("leave it out: nobody waits for this run; its job has a timeout of its own", "entry %d of the request: timeout_ms is for invoke", i)
		}
	}
	return runs, err
}

// DecodeInvoke is the first argument of invoke, refused as DecodeEnqueue does;
// there an entry may say abandon and timeout_ms. An empty array is refused.
func DecodeInvoke(b []byte) ([]abi.EnqueueParams, error) {
	runs, err := decodeRuns(abi.FuncInvoke, b)
	if err == nil && len(runs) == 0 {
		return nil, invalid("invoke at least one run", "the request names no run")
	}
	return runs, err
}

func decodeRuns(fn string, b []byte) ([]abi.EnqueueParams, error) {
	around := 1 // the input of an entry
	if first := bytes.TrimLeft(b, " \t\r\n"); len(first) > 0 && first[0] == '[' {
		around = 2
	}
	if err := envelope(fn, "the request", b, abi.MaxEnqueueBytes, around); err != nil {
		return nil, err
	}
	b = bytes.TrimLeft(b, " \t\r\n")
	if b[0] != '[' {
		run, err := decodeRun("the request", b)
		if err != nil {
			return nil, err
		}
		return []abi.EnqueueParams{run}, nil
	}
	var entries []json.RawMessage
	if err := json.Unmarshal(b, &entries); err != nil {
		return nil, badShape("the request", err)
	}
	if len(entries) > abi.MaxEnqueue {
		return nil, limit(fmt.Sprintf("send them in calls of at most %d", abi.MaxEnqueue),
			"%d runs in one call, more than the %d allowed", len(entries), abi.MaxEnqueue)
	}
	runs := make([]abi.EnqueueParams, len(entries))
	for i, e := range entries {
		var err error
		if runs[i], err = decodeRun("entry "+strconv.Itoa(i)+" of the request", e); err != nil {
			return nil, err
		}
	}
	return runs, nil
}

func decodeRun(what string, b []byte) (abi.EnqueueParams, error) {
	var j enqueueJSON
	if err := object(b, &j, true); err != nil {
		return abi.EnqueueParams{}, badShape(what, err)
	}
	if detail := badName(j.Job); detail != "" {
		return abi.EnqueueParams{}, invalid(`name a job of the manifest in "job"`, "%s: the job's name %s", what, detail)
	}
	if len(j.Input) > abi.MaxInput {
		return abi.EnqueueParams{}, limit("store the data elsewhere and pass a reference to it",
			"%s: the input for job %q has %d bytes, more than the %d allowed", what, j.Job, len(j.Input), abi.MaxInput)
	}
	run := abi.EnqueueParams{Job: j.Job, Input: j.Input, Key: j.Key, Tenant: j.Tenant, Priority: j.Priority, Abandon: j.Abandon}
	if run.Input == nil {
		run.Input = json.RawMessage("null")
	}
	switch {
	case j.DelayMS != nil && j.RunAt != nil:
		return abi.EnqueueParams{}, invalid("pass one of the two", "%s: both delay_ms and run_at are given", what)
	case j.RunAt != nil:
		run.RunAt = *j.RunAt
	case j.DelayMS != nil && *j.DelayMS < 0:
		return abi.EnqueueParams{}, invalid("leave delay_ms out to run at once", "%s: delay_ms is %d", what, *j.DelayMS)
	case j.DelayMS != nil:
		if _, err := Duration(*j.DelayMS); err != nil {
			return abi.EnqueueParams{}, err
		}
		run.DelayMS = *j.DelayMS
	}
	if j.TimeoutMS != nil {
		if *j.TimeoutMS <= 0 {
			return abi.EnqueueParams{}, invalid("leave timeout_ms out to wait for as long as it takes", "%s: timeout_ms is %d", what, *j.TimeoutMS)
		}
		if _, err := Duration(*j.TimeoutMS); err != nil {
			return abi.EnqueueParams{}, err
		}
		run.TimeoutMS = *j.TimeoutMS
	}
	return run, nil
}

// AppendEnqueue appends runs as the argument of enqueue: an object for one, an
// array otherwise. The inputs must be JSON already.
func AppendEnqueue(dst []byte, runs ...abi.EnqueueParams) []byte {
	if len(runs) == 1 {
		return appendRun(dst, &runs[0])
	}
	dst = append(dst, '[')
	for i := range runs {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendRun(dst, &runs[i])
	}
	return append(dst, ']')
}

func appendRun(dst []byte, r *abi.EnqueueParams) []byte {
	dst = appendString(append(dst, `{"job":`...), r.Job)
	dst = append(dst, `,"input":`...)
	if len(r.Input) == 0 {
		dst = append(dst, "null"...)
	}
	dst = append(dst, r.Input...)
	if r.Key != "" {
		dst = appendString(append(dst, `,"key":`...), r.Key)
	}
	if r.Tenant != "" {
		dst = appendString(append(dst, `,"tenant":`...), r.Tenant)
	}
	if r.DelayMS != 0 {
		dst = strconv.AppendInt(append(dst, `,"delay_ms":`...), r.DelayMS, 10)
	}
	if !r.RunAt.IsZero() {
		dst = append(r.RunAt.UTC().AppendFormat(append(dst, `,"run_at":"`...), time.RFC3339Nano), '"')
	}
	if r.Priority != nil {
		dst = strconv.AppendInt(append(dst, `,"priority":`...), int64(*r.Priority), 10)
	}
	if r.Abandon {
		dst = append(dst, `,"abandon":true`...)
	}
	if r.TimeoutMS != 0 {
		dst = strconv.AppendInt(append(dst, `,"timeout_ms":`...), r.TimeoutMS, 10)
	}
	return append(dst, '}')
}

// AppendEnqueued appends the last result of enqueue: a JSON array with an entry
// for each run that was asked for, in that order.
func AppendEnqueued(dst []byte, results []abi.EnqueueResult) []byte {
	dst = append(dst, '[')
	for i, r := range results {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendString(append(dst, `{"id":`...), r.ID)
		if r.Deduped {
			dst = append(dst, `,"deduped":true`...)
		}
		dst = append(dst, '}')
	}
	return append(dst, ']')
}

// ReadEnqueued reads what AppendEnqueued wrote.
func ReadEnqueued(b []byte) ([]abi.EnqueueResult, error) {
	var rs []abi.EnqueueResult
	err := json.Unmarshal(b, &rs)
	return rs, err
}
