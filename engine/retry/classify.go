package retry

import (
	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/job"
)

// classes are the codes of the engine and of a host whose treatment is
// declared. A code that is not here is unclassified: its attempts are counted.
//
// Lost leases are left out on purpose: the run is already somebody else's, and
// nothing that the loser decides may count. So are X_GUEST_TRAP, X_GUEST_EXIT
// and X_HOST_FAILURE, which a second attempt may well survive.
var classes = map[string]abi.FailureKind{
	abi.CodeABIViolation:        abi.FailTerminal,
	abi.CodeGuestDeadlock:       abi.FailTerminal,
	abi.CodeGuestMemory:         abi.FailTerminal,
	abi.CodeGuestNoOutput:       abi.FailTerminal,
	abi.CodeGuestStack:          abi.FailTerminal,
	job.CodeCompensationUnknown: abi.FailTerminal, // the manifest says so until a person changes it
	job.CodeInputInvalid:        abi.FailTerminal,
	job.CodeKeyInvalid:          abi.FailTerminal, // the same input names no tenant again
	job.CodeReplayDiverged:      abi.FailTerminal,
	job.CodeStepDuplicate:       abi.FailTerminal,
	job.CodeStepOutcomeUnknown:  abi.FailTerminal,
	job.CodeStepOutput:          abi.FailTerminal,
	job.CodeStepsExceeded:       abi.FailTerminal,
	job.CodeTenantMismatch:      abi.FailTerminal,

	job.CodeDatabaseBusy:        abi.FailRetry,
	job.CodeDatabaseUnavailable: abi.FailRetry,
	job.CodeDraining:            abi.FailRetry,
	job.CodeStepTimeout:         abi.FailRetry,
	job.CodeTimeout:             abi.FailRetry,
}

// Classify is the declared treatment of a code of the engine's or a host's
// own; false is unclassified. What a handler reports is not asked here: its
// FailureKind is the author's declaration, whatever code stands beside it.
func Classify(code string) (abi.FailureKind, bool) {
	k, ok := classes[code]
	return k, ok
}
