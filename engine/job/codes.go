package job

// Stable codes of the engine, each with one owner and one meaning. Those of a
// guest's end are in package abi, those of a manifest in engine/manifest.
const (
	CodeCancelled           = "X_JOB_CANCELLED"
	CodeChildFailed         = "X_CHILD_FAILED"  // a child without words of its own
	CodeChildTimeout        = "X_CHILD_TIMEOUT" // a child that was not waited for any longer
	CodeClaimQueuesEmpty    = "X_JOB_CLAIM_QUEUES_EMPTY"
	CodeCompensationFailed  = "X_JOB_COMPENSATION_FAILED"
	CodeCompensationUnknown = "X_JOB_COMPENSATION_UNDECLARED" // a step is undone by a job that does not say so
	CodeDatabaseBusy        = "X_DATABASE_BUSY"
	CodeDatabaseCorrupt     = "X_DATABASE_CORRUPT"
	CodeDatabaseDenied      = "X_DATABASE_DENIED" // the role lacks a privilege
	CodeDatabaseFull        = "X_DATABASE_FULL"
	CodeDatabaseMissing     = "X_DATABASE_MISSING"
	CodeDatabaseReadOnly    = "X_DATABASE_READONLY"
	CodeDatabaseSchema      = "X_DATABASE_SCHEMA" // older or newer than this build knows
	CodeDatabaseUnavailable = "X_DATABASE_UNAVAILABLE"
	CodeDraining            = "X_DRAINING"
	CodeDuplicate           = "X_JOB_DUPLICATE"
	CodeIDInvalid           = "X_ID_INVALID"
	CodeInputInvalid        = "X_JOB_INPUT_INVALID"
	CodeInternal            = "X_INTERNAL"
	CodeInvalid             = "X_INVALID"      // an argument out of its range
	CodeKeyBusy             = "X_JOB_KEY_BUSY" // another run holds the key of a limit that does not wait
	CodeKeyInvalid          = "X_JOB_KEY_INVALID"
	CodeLeaseLost           = "X_JOB_LEASE_LOST"
	CodeMaxAttempts         = "X_JOB_MAX_ATTEMPTS"
	CodeModuleMissing       = "X_MODULE_MISSING"
	CodeNotCancellable      = "X_JOB_NOT_CANCELLABLE"
	CodeNotFound            = "X_JOB_NOT_FOUND"
	CodeNotPromotable       = "X_JOB_NOT_PROMOTABLE"
	CodeNotRemovable        = "X_JOB_NOT_REMOVABLE"
	CodeNotRequeueable      = "X_JOB_NOT_REQUEUEABLE"
	CodeOutboxNotFound      = "X_OUTBOX_NOT_FOUND"
	CodeOutboxNotRejected   = "X_OUTBOX_NOT_REJECTED" // only what was rejected is staged again
	CodePageInvalid         = "X_JOB_PAGE_INVALID"
	CodeReplayDiverged      = "X_REPLAY_DIVERGED"
	CodeRowStatusUnknown    = "X_JOB_ROW_STATUS_UNKNOWN"
	CodeScheduleLed         = "X_SCHEDULE_LED" // by a process that is alive
	CodeScheduleNotFound    = "X_SCHEDULE_NOT_FOUND"
	CodeStepDuplicate       = "X_STEP_DUPLICATE"
	CodeStepFailed          = "X_STEP_FAILED"
	CodeStepOutcomeUnknown  = "X_STEP_OUTCOME_UNKNOWN"
	CodeStepOutput          = "X_STEP_OUTPUT_INVALID"
	CodeStepTimeout         = "X_STEP_TIMEOUT"
	CodeStepsExceeded       = "X_STEPS_EXCEEDED"
	CodeTenantMismatch      = "X_JOB_TENANT_MISMATCH"
	CodeTimeout             = "X_JOB_TIMEOUT"
	CodeUnknownJob          = "X_JOB_UNKNOWN"
	CodeWorkerLost          = "X_JOB_WORKER_LOST"
)
