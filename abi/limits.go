package abi

import "time"

// Limits that both sides keep. A host may lower those that its configuration
// names; it never raises them beyond these.
const (
	// MaxName bounds the names of steps, sleeps, jobs and topics, in bytes.
	MaxName = 255
	// MaxInput bounds a run's input, in bytes.
	MaxInput = 1 << 20
	// MaxOutput bounds a step's or a run's output, in bytes.
	MaxOutput = 1 << 20
	// MaxFailure bounds a Failure as JSON, in bytes; longer texts are cut.
	MaxFailure = 16 << 10
	// MaxLogLine bounds one log line, in bytes; the rest is cut.
	MaxLogLine = 8 << 10
	// MaxLog bounds what one attempt may log, in bytes, with LogLineCost more for
	// each line; the rest is dropped.
	MaxLog = 1 << 20
	// LogLineCost is about what a runner writes beside each line, in bytes.
	LogLineCost = 128
	// MaxStdio bounds what one attempt may write to stdout and stderr together
	// before the rest is counted and dropped, in bytes.
	MaxStdio = 64 << 10
	// MaxSteps bounds the records of one run.
	MaxSteps = 10_000
	// MaxRecorded bounds what is recorded of one run, in bytes, since a replay has
	// it all in memory. The step that reaches it is still recorded; the next does
	// not begin.
	MaxRecorded = 64 << 20
	// MaxEnqueue bounds the entries of one enqueue call.
	MaxEnqueue = 1_000
	// MaxEnqueueBytes bounds the argument of one enqueue call, in bytes.
	MaxEnqueueBytes = 16 << 20
	// MaxInvoke bounds the children of one run that are live at a time.
	MaxInvoke = 256
	// MaxInvokeDepth bounds the runs that wait for one another in a row, so that
	// one which invokes itself comes to an end.
	MaxInvokeDepth = 100
	// MaxProgressNote bounds a progress note, in bytes.
	MaxProgressNote = 200
	// MaxJSONDepth bounds the nesting of any JSON that crosses the boundary.
	MaxJSONDepth = 1_000
	// MaxSleep bounds one sleep: ten years catches a unit mistake and overflows nothing.
	MaxSleep = 10 * 365 * 24 * time.Hour
)
