package call

import (
	"github.com/tetratelabs/wazero/api"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/abi/wire"
)

// fail(kind, p, n) -> 0: the attempt failed; runner_run then returns
// abi.RunFailed. The last call wins.
//
// (p, n) is an abi.Failure as JSON, kind an abi.FailureKind:
//
//	{"message":"card declined","code":"X_CARD","fix":"use another card"}
func fail(s *State, mem api.Memory, stack []uint64) {
	s.attempting(abi.FuncFail)
	f := s.readFailure(mem, abi.FuncFail, stack[0], stack[1], stack[2])
	s.failure = &f
	stack[0] = 0
}

// readFailure is the failure at (p, n), without the secrets the guest has read.
func (s *State) readFailure(mem api.Memory, fn string, kind, p, n uint64) abi.Failure {
	b := s.view(mem, fn, p, n)
	// Before the texts are cut, since a cut may go through a secret.
	if len(s.secrets) > 0 && wire.CheckJSON(b, maxFailureJSON) == nil {
		b = s.redactJSON(b)
	}
	f, err := wire.DecodeFailure(fn, uint32(kind), b)
	if err != nil {
		s.unwind(err)
	}
	return f
}

// maxFailureJSON bounds what DecodeFailure reads, in bytes.
const maxFailureJSON = 1 << 20
