package cli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

// history is a run with everything that is known of it.
type history struct {
	run      job.Run
	attempts []job.AttemptRecord
	steps    []job.Step
	log      store.ListLogsResult
	audit    []store.AuditEntry // newest first, the latest 100
	children []job.Run          // newest first, the latest shownChildren
	more     bool               // there are more of them
}

// shownChildren bounds the children that are shown with a run.
const shownChildren = 100

// parkedForChildren reports whether an attempt ended until the run's children have.
func parkedForChildren(a job.AttemptRecord) bool {
	return a.RunAt.Sub(a.SettledAt) > store.InvokeHorizon/2
}

// event is one line of a timeline.
type event struct {
	at     time.Time
	what   string // "attempt 2", "step charge", "run"
	state  string
	took   time.Duration // 0 is not printed
	detail string
	rank   int // order of events of the same instant
}

// events are h's, in the order in which they happened. show is what may be
// seen of a payload.
func (h history) events(show func([]byte) json.RawMessage) []event {
	run := h.run
	evs := []event{{at: run.CreatedAt, what: "run", state: "enqueued", detail: enqueuedDetail(run)}}
	seen := int64(0)
	for _, a := range h.attempts {
		seen = max(seen, a.Claim)
		name := fmt.Sprintf("attempt %d", a.Attempt)
		if !a.ClaimedAt.IsZero() {
			evs = append(evs, event{at: a.ClaimedAt, what: name, state: "claimed", detail: "by " + a.Worker, rank: 2})
		}
		e := event{at: a.SettledAt, what: name, state: string(a.Outcome), took: between(a.ClaimedAt, a.SettledAt), detail: failureText(a.Error), rank: 4}
		if parkedForChildren(a) {
			e.detail = join(e.detail, "until its children have ended")
		} else if !a.RunAt.IsZero() && a.RunAt.After(a.SettledAt) {
			e.detail = join(e.detail, "due again in "+short(a.RunAt.Sub(a.SettledAt)))
		}
		evs = append(evs, e)
	}
	// The attempt that runs now has no record yet, and one that completes at
	// the first try leaves none.
	if !run.ClaimedAt.IsZero() && run.Claims > seen {
		detail := ""
		if run.Worker != "" {
			detail = "by " + run.Worker
		}
		name := fmt.Sprintf("attempt %d", run.Attempt)
		evs = append(evs, event{at: run.ClaimedAt, what: name, state: "claimed", detail: detail, rank: 2})
		if run.State == job.Done {
			evs = append(evs, event{at: run.FinishedAt, what: name, state: string(job.Completed), took: between(run.ClaimedAt, run.FinishedAt), rank: 4})
		}
	}
	for _, s := range h.steps {
		evs = append(evs, stepEvent(s, show))
	}
	for i, l := range h.log.Lines {
		if i == 0 && h.log.Dropped > 0 {
			evs = append(evs, event{at: l.At, what: "log", detail: droppedText(h.log.Dropped), rank: 3})
		}
		detail := l.Text
		if l.Step != "" {
			detail = l.Step + ": " + detail
		}
		evs = append(evs, event{at: l.At, what: "log", state: l.Level, detail: detail, rank: 3})
	}
	for _, a := range h.audit {
		evs = append(evs, event{at: a.At, what: "operator", state: string(a.Verb), detail: join("by "+a.By, a.Detail), rank: 5})
	}
	if !run.FinishedAt.IsZero() {
		e := event{at: run.FinishedAt, what: "run", state: string(run.State), took: between(run.CreatedAt, run.FinishedAt), rank: 6}
		if run.State == job.Done {
			e.detail = string(show(run.Output))
		} else {
			e.detail = failureText(run.Error)
		}
		evs = append(evs, e)
	}
	slices.SortStableFunc(evs, func(a, b event) int {
		return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.rank, b.rank))
	})
	return evs
}

func enqueuedDetail(run job.Run) string {
	d := ""
	if run.EnqueuedBy != "" {
		d = "by " + run.EnqueuedBy
	}
	if run.Parent != "" {
		d = join(d, "from run "+run.Parent)
	}
	if run.RunAt.After(run.CreatedAt) && run.StartedAt.IsZero() {
		d = join(d, "due in "+short(run.RunAt.Sub(run.CreatedAt)))
	}
	return d
}

func stepEvent(s job.Step, show func([]byte) json.RawMessage) event {
	e := event{at: s.FinishedAt, what: string(s.Kind) + " " + s.Name, state: string(s.Status), took: between(s.StartedAt, s.FinishedAt), rank: 3}
	switch s.Kind {
	case "":
		e.what = "step " + s.Name
	case job.KindCompensation:
		e.what = "undo of " + strings.TrimPrefix(s.Name, job.CompensationPrefix)
	case job.KindUnwind:
		return event{at: e.at, what: "run", state: "is undone", detail: failureText(s.Error), rank: 4}
	case job.KindUndoable:
		e.what = "step " + s.Name
	}
	if e.at.IsZero() {
		e.at = s.StartedAt
	}
	switch s.Status {
	case job.StepCompleted:
		e.detail = string(show(s.Output))
	case job.StepSleeping:
		e.took = 0
		e.detail = "until " + instant(s.WakeAt)
	case job.StepWaiting:
		e.took = 0
		if s.Kind == job.KindWait {
			e.detail = "until " + instant(s.WakeAt)
		}
	default:
		e.detail = failureText(s.Error)
	}
	switch s.Kind {
	case job.KindWait:
		if s.Status == job.StepTimedOut && !s.WakeAt.After(s.StartedAt) {
			// It was not to wait: a subscription, or a look for what had come.
			e.took = 0
			if strings.HasPrefix(s.Name, "subscribe ") {
				e.what, e.state, e.detail = s.Name, "subscribed", "" // as the SDK names it
			} else {
				e.state = "nothing yet"
			}
		}
		e.detail = join("for "+subject(s), e.detail)
	case job.KindInvoke:
		if s.Child != "" {
			e.detail = join("run "+s.Child, e.detail)
		}
	}
	if awaited := s.Kind == job.KindWait || s.Kind == job.KindInvoke || s.Kind == job.KindSleep; awaited && s.FinishedAt.After(s.StartedAt) {
		e.rank = 1 // what the attempt that is claimed then waited for
	}
	if s.Attempts > 0 {
		e.detail = join(fmt.Sprintf("%d failed", s.Attempts), e.detail)
	}
	return e
}

// subject is what a wait is for.
func subject(s job.Step) string {
	if s.EventKey == "" {
		return s.Topic
	}
	return s.Topic + " " + s.EventKey
}

func failureText(f job.Failure) string {
	switch {
	case f.Code == "":
		return f.Message
	case f.Message == "":
		return f.Code
	}
	return f.Code + ": " + f.Message
}

func between(a, b time.Time) time.Duration {
	if a.IsZero() || b.IsZero() {
		return 0
	}
	return b.Sub(a)
}

func join(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + ", " + b
}

// detailWidth is how much of a line's detail is printed; --json has all of it.
const detailWidth = 120

// printTimeline writes h for people: what the run is, then what happened.
func printTimeline(w io.Writer, s style, h history, show func([]byte) json.RawMessage) {
	run := h.run
	field := func(name, value string) {
		if value != "" {
			_, _ = fmt.Fprintf(w, "%s %s\n", s.dim(fmt.Sprintf("%-9s", name)), cell(value))
		}
	}
	_, _ = fmt.Fprintf(w, "%s %s  %s\n", s.dim(fmt.Sprintf("%-9s", "run")), s.bold(cell(run.ID)), s.state(string(run.State)))
	field("job", run.Job)
	field("queue", run.Queue)
	field("tenant", run.Tenant)
	field("key", run.Key)
	field("priority", priorityOf(run))
	field("parent", run.Parent)
	field("enqueued", instant(run.CreatedAt))
	field("attempts", fmt.Sprintf("%d of %d", run.Attempt, run.MaxAttempts))
	field("module", run.Module)
	if run.Progress != (job.Progress{}) && run.State != job.Done { // the last report need not have been the end
		field("progress", fmt.Sprintf("%s%% %s", trimZero(fmt.Sprintf("%.1f", float64(run.Progress.Permille)/10)), run.Progress.Note))
	}
	field("input", cut(string(show(run.Input))))
	if run.State.Live() && run.RunAt.After(run.CreatedAt) && run.State != job.Running && run.RunAt.Sub(run.CreatedAt) < store.InvokeHorizon/2 {
		field("due", instant(run.RunAt))
	}
	field("waits for", run.Blocked)
	if run.State != job.Done { // what an earlier attempt failed of is in the timeline
		field("error", failureText(run.Error))
		field("to do", h.toDo())
	}
	if run.State.Live() { // what stopped half undone is to be done by a person
		field("to undo", strings.Join(job.ToUndo(&run, h.steps), ", "))
	}
	_, _ = fmt.Fprintln(w)

	t := table{head: []string{"AT", "WHAT", "STATE", "TOOK", "DETAIL"}}
	for _, e := range h.events(show) {
		took := ""
		if e.took > 0 {
			took = short(e.took)
		}
		t.row(offset(e.at.Sub(run.CreatedAt)), e.what, e.state, took, cut(e.detail))
	}
	t.print(w, s, func(col int, text string) string {
		if col == 2 {
			return s.state(text)
		}
		return text
	})
	printChildren(w, s, h)
}

// toDo is what is left to a person.
func (h history) toDo() string {
	left := job.HalfUndone(&h.run, h.steps)
	if len(left) == 0 {
		return h.run.Error.Fix
	}
	first := ""
	if h.run.Error.Code != job.CodeCompensationFailed && h.run.Error.Fix != "" {
		first = h.run.Error.Fix + "; "
	}
	return first + fmt.Sprintf("not undone: %s. When the cause is mended, `runner jobs retry %s` undoes the rest (--latest: with the module of now); "+
		"--no-compensate leaves it, for a fresh run", strings.Join(left, ", "), h.run.ID)
}

// priorityOf is how a run stands to others, unless that is as most do.
func priorityOf(run job.Run) string {
	switch {
	case run.Aged:
		return strconv.Itoa(run.Priority) + ", but before all others, since it waited long"
	case run.Priority == 0:
		return ""
	}
	return strconv.Itoa(run.Priority)
}

// printChildren writes which runs h's run started, and how they stand.
func printChildren(w io.Writer, s style, h history) {
	if len(h.children) == 0 {
		return
	}
	_, _ = fmt.Fprintln(w)
	t := table{head: []string{"CHILD", "JOB", "STATE", "NOTE"}}
	for _, r := range slices.Backward(h.children) { // as the timeline is: the oldest first
		t.row(r.ID, r.Job, string(r.State), cut(noteOf(r)))
	}
	t.print(w, s, func(col int, text string) string {
		if col == 2 {
			return s.state(text)
		}
		return text
	})
	if h.more {
		_, _ = fmt.Fprintf(w, "and earlier ones: runner jobs ls --parent %s --before %s\n", h.run.ID, h.children[len(h.children)-1].ID)
	}
}

// offset is how long after the enqueue, to the millisecond while that matters.
func offset(d time.Duration) string {
	if d < time.Minute {
		return fmt.Sprintf("+%.3fs", d.Seconds())
	}
	return "+" + short(d)
}

func cut(s string) string {
	s = cell(s)
	if r := []rune(s); len(r) > detailWidth {
		return string(r[:detailWidth-1]) + "…"
	}
	return s
}
