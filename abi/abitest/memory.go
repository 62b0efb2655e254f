package abitest

import (
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/jobrunner/runner/abi"
)

// Config is what a Memory starts from. The zero value is usable.
type Config struct {
	// MaxAttempts of the run; 3 if 0. A step that fails is final on the last.
	MaxAttempts int
	// Start is the clock at the run's first claim; 2030-01-01 00:00 UTC if zero.
	Start time.Time
	// Job, Queue, Tenant and RunID are what Meta says; "job", "default", none and "run-1" if empty.
	Job, Queue, Tenant, RunID string
	// Jobs are those that can be enqueued and invoked; any if nil.
	Jobs []string
	// Events are what will be published by others, in order.
	Events []Event
	// Invoke runs a child; if nil, a child answers null.
	Invoke func(child abi.EnqueueParams) ([]byte, *abi.Failure)
	// Compensates says that completed steps are undone when the run fails for good.
	Compensates bool
	// Unsupported are optional functions that answer abi.CodeUnsupported.
	Unsupported abi.Features
}

// Event is a payload published on a topic by someone else, After the start.
type Event struct {
	Topic   string
	Payload []byte // JSON
	After   time.Duration
	Key     string
}

// Status is where a Record stands.
type Status string

// The statuses of a Record.
const (
	Started   Status = "started"   // a once step whose outcome is not known
	Completed Status = "completed" // Output replays
	Failed    Status = "failed"    // failed for good; Failure replays
	Retrying  Status = "retrying"  // to be run again
	Waiting   Status = "waiting"   // a sleep, a wait or an invoked child that is not over
)

// Record is one entry of a run's history. Kind is the host function that made
// it: abi.FuncStepBegin, FuncSleep, FuncWaitEvent, FuncInvoke, FuncEnqueue or
// FuncPublish.
type Record struct {
	Name    string
	Kind    string
	Status  Status
	Output  []byte
	Failure abi.Failure
	At      time.Time     // when it took its status
	Wake    time.Time     // of a sleep or wait
	Wait    time.Duration // what a sleep or wait asked for
	Topic   string        // of a wait
	Key     string        // of a wait
	Child   abi.EnqueueParams

	next int // of a wait: the first event that counts
}

// Sent is something that a guest sent and that has been committed.
type Sent struct {
	Topic   string            // of an event
	Key     string            // of an event
	Payload []byte            // of an event
	Run     abi.EnqueueParams // of a run
	ID      string            // of a run
}

// Line is a log line.
type Line struct {
	Level abi.Level
	Text  string
}

// Suspended unwinds a guest that waits: until a time, for an event, or for a
// child run. It is uncounted.
type Suspended struct {
	Name string
	For  string // the host function: abi.FuncSleep, FuncWaitEvent or FuncInvoke
	Wake time.Time
}

func (s *Suspended) Error() string { return s.For + " " + strconv.Quote(s.Name) + " suspends the run" }

// StepRetry unwinds a guest whose step failed while attempts are left.
type StepRetry struct {
	Step    string
	Failure abi.Failure
}

func (s *StepRetry) Error() string {
	return "step " + strconv.Quote(s.Step) + " will be retried: " + s.Failure.Message
}

// Codes of the errors that stop a run whose guest keeps the contract but not
// its promises.
const (
	CodeReplayDiverged     = "X_REPLAY_DIVERGED"
	CodeStepOutcomeUnknown = "X_STEP_OUTCOME_UNKNOWN"
	CodeStepsExceeded      = "X_STEPS_EXCEEDED"
	CodeUnknownJob         = "X_JOB_UNKNOWN"
)

// Memory is one run's durable memory: a reference abi.Calls. Attempt begins an
// attempt on it, Settle ends one. Its methods may be called from any goroutine;
// the fields of its results are copies of slices that only grow.
type Memory struct {
	cfg Config

	mu       sync.Mutex
	clock    time.Time // the store's
	attempt  int
	runs     int // attempts begun, uncounted ones included
	records  []*Record
	sent     []Sent
	nextID   int
	events   []Event // of others and our own, by After
	lines    []Line
	progress int
	note     string
	calls    []string

	unwound *abi.Outcome // how the attempt ended after which the run is undone
	from    int          // its number
	undone  []string     // steps, in that order

	// Of the present attempt.
	undo     []*Record       // completed steps that the guest can undo
	undoing  *Record         // the step whose undoing is open
	undoable bool            // the guest can undo the step that is open
	used     map[string]bool // names asked for
	reached  int             // records passed in order
	open     *Record         // the step whose body runs
	staged   []Sent          // what the open step sent
	sends    map[string]int  // ordinals of sends outside steps
	places   map[place]int   // where the next wait for a topic and key begins
	lost     bool            // the attempt was unwound: no call may follow
}

var _ abi.Calls = (*Memory)(nil)

// memoryStart is the clock of a Memory whose Config says nothing.
var memoryStart = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// NewMemory is the memory of a run that has not begun.
func NewMemory(cfg Config) *Memory {
	if cfg.MaxAttempts == 0 {
		cfg.MaxAttempts = 3
	}
	if cfg.Start.IsZero() {
		cfg.Start = memoryStart
	}
	cfg.Job = or(cfg.Job, "job")
	cfg.Queue = or(cfg.Queue, "default")
	cfg.RunID = or(cfg.RunID, "run-1")
	return &Memory{cfg: cfg, clock: cfg.Start, events: append([]Event(nil), cfg.Events...)}
}

func or(s, fallback string) string {
	if s == "" {
		return fallback
	}
	return s
}

// Attempt begins the next attempt: what Guest.Run starts from.
func (m *Memory) Attempt(handler string, input []byte) abi.Attempt {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.attempt == 0 {
		m.attempt = 1
	}
	m.runs++
	m.used, m.sends = map[string]bool{}, map[string]int{}
	m.reached, m.open, m.staged, m.lost = 0, nil, nil, false
	m.undo, m.undoing = nil, nil
	return abi.Attempt{
		Handler: handler,
		Input:   input,
		Now:     m.cfg.Start,
		Seed:    42,
		Meta: abi.Meta{
			RunID: m.cfg.RunID, Job: m.cfg.Job, Queue: m.cfg.Queue, Tenant: m.cfg.Tenant,
			Attempt: m.attempt, MaxAttempts: m.cfg.MaxAttempts, EnqueuedAt: m.cfg.Start,
		},
	}
}

// Now is the store's clock, which is the real time that a guest sees inside a
// step under virtual time.
func (m *Memory) Now() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.clock
}

// Deliver publishes an event as someone else does, now.
func (m *Memory) Deliver(e abi.PublishParams) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.deliver(e.Topic, e.Key, e.Payload)
}

// Start is the clock at the run's first claim.
func (m *Memory) Start() time.Time { return m.cfg.Start }

// Advance moves the store's clock.
func (m *Memory) Advance(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.clock = m.clock.Add(d)
}

// Number is the number of the present attempt, from 1.
func (m *Memory) Number() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.attempt
}

// Runs is how often the guest was run. Unlike Number it counts the times that
// ended suspended or rate limited.
func (m *Memory) Runs() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.runs
}

// Records are the run's history in the order in which it was first reached.
func (m *Memory) Records() []Record {
	m.mu.Lock()
	defer m.mu.Unlock()
	rs := make([]Record, len(m.records))
	for i, r := range m.records {
		rs[i] = *r
	}
	return rs
}

// Unreached are the names of the records that the present attempt has not asked
// for.
func (m *Memory) Unreached() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var names []string
	for _, r := range m.records[m.reached:] {
		names = append(names, r.Name)
	}
	return names
}

// Sent is what the guest enqueued and published, as far as it is committed.
func (m *Memory) Sent() []Sent {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.sent[:len(m.sent):len(m.sent)]
}

// Undone are the names of the steps that were undone, in that order.
func (m *Memory) Undone() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.undone[:len(m.undone):len(m.undone)]
}

// Lines are the guest's log lines, those of a replayed prefix left out.
func (m *Memory) Lines() []Line {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.lines[:len(m.lines):len(m.lines)]
}

// LatestProgress is what the guest last said of its progress.
func (m *Memory) LatestProgress() (permille int, note string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.progress, m.note
}

// Transcript is every call of every attempt, one line each, log and progress
// included: the function's name, its names quoted, its bytes as they are.
func (m *Memory) Transcript() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.calls[:len(m.calls):len(m.calls)]
}

// said adds a line to the transcript.
func (m *Memory) said(format string, args ...any) {
	m.calls = append(m.calls, fmt.Sprintf(format, args...))
}
