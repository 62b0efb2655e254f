package abi

// Code is a negative answer of a host call: an outcome the guest can expect
// and handle.
type Code int32

const (
	// CodeDenied: the manifest does not grant it.
	CodeDenied Code = -1
	// CodeLimit: a limit of limits.go or of the manifest is exceeded.
	CodeLimit Code = -2
	// CodeTimeout: the wait ended without its event.
	CodeTimeout Code = -3
	// CodeFailed: it was tried and failed; the last result is a JSON Failure.
	CodeFailed Code = -4
	// CodeInsideStepOnly: legal between step_begin and step_end only.
	CodeInsideStepOnly Code = -5
	// CodeOutsideStepOnly: legal outside steps only.
	CodeOutsideStepOnly Code = -6
	// CodeUnsupported: this host does not serve the function; see Features.
	CodeUnsupported Code = -7
	// CodeInvalid: the argument is well-formed bytes but not a valid request
	// (unknown job, input against its schema); the last result is a JSON Failure.
	CodeInvalid Code = -8
	// CodeUnwinding: the run is being undone, and nothing new begins. The guest
	// ends its handler and then undoes what compensate names.
	CodeUnwinding Code = -9
)

// Features are bits that say which optional functions a host serves. One that
// it does not serve answers CodeUnsupported.
type Features uint64

const (
	FeatureCompensate Features = 1 << iota
	FeatureHTTP
	FeatureInvoke
	FeaturePublish
	FeatureSecret
	FeatureSQL
	FeatureWaitEvent
)

// Answers of runner_run. Any other is a Violation.
const (
	RunDone   = 0 // output was called
	RunFailed = 1 // fail was called
)

// StepState is the answer of step_begin.
type StepState int32

const (
	// StepRun: the step has no record; the guest runs its body.
	StepRun StepState = 0
	// StepDone: the step's recorded output is the last result.
	StepDone StepState = 1
	// StepFailed: the step failed for good; its recorded Failure is the last result.
	StepFailed StepState = 2
)

// StepFlags change what step_begin promises.
type StepFlags uint32

// StepOnce records the step's start before the body runs: found started but
// unfinished by a later attempt, the run stops with X_STEP_OUTCOME_UNKNOWN.
const StepOnce StepFlags = 1

// StepCompensated says that the guest can undo the step: if the run fails for
// good, compensate names it.
const StepCompensated StepFlags = 2

// FailureKind says how a failure is treated.
type FailureKind uint32

const (
	// FailRetry: try again while the policy allows.
	FailRetry FailureKind = 0
	// FailTerminal: never try again.
	FailTerminal FailureKind = 1
	// FailRetryAfter: as FailRetry, after the wait the failure states.
	FailRetryAfter FailureKind = 2
	// FailRateLimited: hand back after the wait, without counting the attempt.
	FailRateLimited FailureKind = 3
)

// Valid reports whether k is one of the four kinds.
func (k FailureKind) Valid() bool { return k <= FailRateLimited }

// Level is the severity of a guest's log line; the values are slog's divided by 4, plus 1.
type Level uint32

const (
	LevelDebug Level = 0
	LevelInfo  Level = 1
	LevelWarn  Level = 2
	LevelError Level = 3
)
