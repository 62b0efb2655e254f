package step

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/metrics"
	"github.com/jobrunner/runner/engine/queue"
	"github.com/jobrunner/runner/engine/store"
	"github.com/jobrunner/runner/engine/trace"
)

// Queue is what an attempt asks of the queue.
type Queue interface {
	ListSteps(ctx context.Context, runID string) ([]job.Step, error)
	SaveStep(ctx context.Context, p store.StepParams) (store.StepResult, error)
	Prepare(requests []queue.Request) ([]store.EnqueueParams, error)
	FindLive(ctx context.Context, p *store.EnqueueParams) (string, error)
	InvokeDepth(ctx context.Context, runID string, most int) (int, error)
	PendingEvent(ctx context.Context, tenant string, p store.WaitParams) (bool, error)
	Retention(jobName string) time.Duration
}

// Params describe the attempt. Nothing in them changes after New.
type Params struct {
	Queue Queue
	Run   *job.Run // as claimed; not written to
	Ref   job.Ref
	// Module is the digest that the run becomes pinned to with its first
	// record; "" pins nothing.
	Module string
	// Compensates says that the job undoes completed steps when its run fails for
	// good.
	Compensates bool
	// Policy is that of a step: what cuts it when it takes longer (0 is no limit),
	// and how often it is tried, if not as often as the run. Nil is neither.
	Policy func(name string) (timeout time.Duration, retry *job.RetryPolicy)
	// EventKeep is how long what the run publishes is kept.
	EventKeep time.Duration
	// Claimed is this process's clock when the claim was answered.
	Claimed time.Time
	// Cancel ends the attempt's context.
	Cancel context.CancelCauseFunc
	// Final reports whether a failure with these words would be the run's last,
	// by the same comparison that settles it.
	Final   func(abi.Failure) bool
	Logger  *slog.Logger
	Metrics *metrics.Metrics
	// Tracer, when not nil, is told of steps. Traceparent is the attempt's: "" is
	// the run's.
	Tracer      trace.Tracer
	Traceparent string
}

// Attempt implements abi.Calls for one attempt. Its methods are for one
// goroutine at a time, the guest's; after the guest has ended they are for the
// worker.
type Attempt struct {
	p Params

	records   map[string]*record // of earlier attempts; nil without any
	unvisited int                // records that replay something and were not asked for
	used      map[string]struct{}
	count     int // records the run will have
	recorded  int // bytes of them, as abi.MaxRecorded counts

	pinned bool       // a record of this attempt has pinned the run's module
	undo   []undoable // completed steps that the guest can undo
	unwind *unwinding // nil while the run goes forward

	open     openStep
	clock    time.Time                    // the run's
	sends    map[string]int               // by what they begin with
	places   map[subject]int64            // where waits go on
	children int                          // records of live ones
	progress atomic.Pointer[job.Progress] // read from outside while the guest runs
	logged   int                          // bytes, as abi.MaxLog counts them
	log      logBuffer
	ceiling  ceiling
}

// record is one record of an earlier attempt.
type record struct {
	job.Step
	visited bool
}

// replays reports whether asking for the record answers something, so that a
// handler which does not ask for it has left its path.
func (r *record) replays() bool { return r.Status != job.StepRetrying && !engines(r.Kind) }

// openStep is the step between its begin and its end.
type openStep struct {
	span     trace.Span // nil without a tracer
	name     string     // "" is none
	kind     job.StepKind
	once     bool
	fresh    bool             // nothing is recorded of it
	undoable bool             // the guest can undo it
	retry    *job.RetryPolicy // its own; nil is the run's
	attempts int              // bodies that failed before
	unsure   bool             // its end was written and the answer lost: it may be recorded
	began    time.Time
	enqueue  []store.EnqueueParams
	publish  []store.EventParams
	bytes    int // of both
}

var _ abi.Calls = (*Attempt)(nil)

// New returns the attempt's memory. Hydrate before its guest starts.
func New(p Params) *Attempt {
	a := &Attempt{p: p, clock: p.Run.StartedAt}
	a.ceiling.cancel = p.Cancel
	return a
}

// Hydrates reports whether there may be anything for Hydrate to read.
func (a *Attempt) Hydrates() bool {
	return a.p.Run.Steps > 0 || a.p.Compensates && a.p.Run.Attempt > a.p.Run.MaxAttempts
}

// Hydrate reads what earlier attempts recorded, in one query, if there is
// anything. Errors: the store's; nothing has begun then.
func (a *Attempt) Hydrate(ctx context.Context) error {
	if !a.Hydrates() {
		return nil
	}
	steps, err := a.p.Queue.ListSteps(ctx, a.p.Run.ID)
	if err != nil {
		return err
	}
	a.records = make(map[string]*record, len(steps))
	all := make([]record, len(steps))
	for i := range steps {
		all[i].Step = steps[i]
		a.records[steps[i].Name] = &all[i]
		a.recorded += weight(steps[i].Name, steps[i].Output, &steps[i].Error)
		if all[i].replays() {
			a.unvisited++
		}
		if steps[i].Kind == job.KindInvoke && steps[i].Status == job.StepWaiting {
			a.children++
		}
	}
	a.count = len(steps)
	if slices.ContainsFunc(steps, func(s job.Step) bool { return s.Kind == job.KindUnwind }) {
		a.p.Compensates = true // what was decided stays, whatever the manifest says now
	}
	if a.p.Compensates {
		return a.hydrateUnwind(ctx)
	}
	return nil
}

// Features are the optional functions that this memory serves.
func (a *Attempt) Features() abi.Features {
	f := abi.FeatureInvoke | abi.FeaturePublish | abi.FeatureWaitEvent
	if a.p.Compensates {
		f |= abi.FeatureCompensate
	}
	return f
}

// Replaying reports whether the guest is still on ground that an earlier
// attempt covered.
func (a *Attempt) Replaying() bool { return a.unvisited > 0 }

// Steps is how many records the run has.
func (a *Attempt) Steps() int { return a.count }

// enter checks what holds for every durable call: the attempt lives, and the
// name is new in it.
func (a *Attempt) enter(ctx context.Context, fn, name string) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if _, again := a.used[name]; again {
		return duplicate(fn, name)
	}
	if a.used == nil {
		a.used = make(map[string]struct{})
	}
	a.used[name] = struct{}{}
	return a.reserved(fn, name)
}

// duplicate is a Violation for the host and a code of its own for people.
func duplicate(fn, name string) error {
	return &abi.Error{
		Code:    job.CodeStepDuplicate,
		Message: fmt.Sprintf("the name %q was used twice in one attempt", name),
		Fix:     "give each step, sleep and wait of a handler its own name, for instance with a number",
		Err:     &abi.Violation{Func: fn, Detail: fmt.Sprintf("the name %q was used before", name)},
	}
}

// visit finds the record of name. Without one it checks that something new is
// in order.
func (a *Attempt) visit(name string, kind job.StepKind) (*record, error) {
	r := a.records[name]
	if a.unwind != nil && !a.over(r) {
		if r != nil && r.replays() && !r.visited { // where a cancel found it
			r.visited = true
			a.unvisited--
		}
		return nil, a.refuseForward(name)
	}
	if r == nil {
		return nil, a.newRecord(name)
	}
	if r.Kind != kind && !(kind == job.KindStep && r.Kind == job.KindUndoable) {
		return nil, a.diverged(fmt.Sprintf("%q was recorded as a %s and is asked for as a %s", name, r.Kind, kind))
	}
	r.visited = true
	if r.replays() {
		a.unvisited--
	}
	return r, nil
}

// newRecord reports why a record of that name cannot begin.
func (a *Attempt) newRecord(name string) error {
	if a.unvisited > 0 {
		return a.diverged(fmt.Sprintf("it asks for %q, which has no record, before %s", name, a.missing()))
	}
	if a.count >= abi.MaxSteps {
		return &abi.Error{
			Code:    job.CodeStepsExceeded,
			Message: fmt.Sprintf("a run has at most %d steps, and %q would be one more", abi.MaxSteps, name),
			Fix:     "do more in one step, or enqueue runs that share the work",
		}
	}
	if a.recorded >= abi.MaxRecorded {
		return &abi.Error{
			Code:    job.CodeStepsExceeded,
			Message: fmt.Sprintf("the steps of a run may leave %d MiB in all, and it has that before %q", abi.MaxRecorded>>20, name),
			Fix:     "keep large data elsewhere and return its address, or enqueue runs that share the work",
		}
	}
	return nil
}

// weight is about what a record takes, in bytes.
func weight(name string, output []byte, f *job.Failure) int {
	n := len(name) + len(output)
	if f != nil {
		n += len(f.Message) + len(f.Fix) + len(f.Stack)
	}
	return n
}

// Diverged reports whether a handler that returned now has left the path it
// recorded. Errors: X_REPLAY_DIVERGED.
func (a *Attempt) Diverged() error {
	if a.unvisited == 0 {
		return nil
	}
	return a.diverged("it returned without asking for " + a.missing())
}

// missing names a few records that were not asked for, the earliest first.
func (a *Attempt) missing() string {
	first := make([]string, 3)
	for _, r := range a.records {
		if !r.visited && r.replays() {
			for i, n := range first {
				if n == "" || a.records[n].Seq > r.Seq {
					copy(first[i+1:], first[i:])
					first[i] = r.Name
					break
				}
			}
		}
	}
	var names []string
	for _, n := range first {
		if n != "" {
			names = append(names, fmt.Sprintf("%q", n))
		}
	}
	text := strings.Join(names, ", ")
	if more := a.unvisited - len(names); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

func (a *Attempt) diverged(what string) error {
	a.p.Metrics.ReplayDiverged(a.p.Run.Job)
	return &abi.Error{
		Code:    job.CodeReplayDiverged,
		Message: "the handler took another path than an earlier attempt recorded: " + what,
		Fix: "deploy the module that recorded the steps, or retry the run from the first step that differs; " +
			"outside steps a handler may depend on its input and on steps only",
	}
}

// pin is the digest that a record has to pin: the first one of the attempt does.
func (a *Attempt) pin() string {
	if a.pinned {
		return ""
	}
	return a.p.Module
}

// lost is the answer to a write whose claim is someone else's. It ends the
// attempt.
func (a *Attempt) lost() error {
	err := &abi.Error{
		Code:    job.CodeLeaseLost,
		Message: "the run's claim is no longer this attempt's",
	}
	a.p.Cancel(err)
	return err
}

// now is the store's clock as far as this process can tell.
func (a *Attempt) now() time.Time {
	return a.p.Run.ClaimedAt.Add(time.Since(a.p.Claimed))
}

// at sets the run's clock.
func (a *Attempt) at(t time.Time) time.Time {
	a.clock = t
	return t
}
