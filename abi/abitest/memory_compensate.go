package abitest

import (
	"context"
	"slices"
	"time"

	"github.com/jobrunner/runner/abi"
)

// Codes of a saga.
const (
	CodeCompensationUndeclared = "X_JOB_COMPENSATION_UNDECLARED"
	CodeCompensationFailed     = "X_JOB_COMPENSATION_FAILED"
)

// Compensate implements abi.Extras.
func (m *Memory) Compensate(ctx context.Context) (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.said("%s", abi.FuncCompensate)
	if !m.cfg.Compensates || m.cfg.Unsupported&abi.FeatureCompensate != 0 {
		return "", &abi.Refusal{Code: abi.CodeUnsupported}
	}
	if err := m.enter(ctx, abi.FuncCompensate); err != nil {
		return "", err
	}
	if m.open != nil || m.undoing != nil {
		return "", m.lose(violation(abi.FuncCompensate, "a step is open"))
	}
	if m.unwound == nil {
		return "", nil
	}
	for _, r := range slices.Backward(m.undo) {
		if !slices.Contains(m.undone, r.Name) {
			m.undoing = r
			return r.Name, nil
		}
	}
	return "", nil
}

// undid ends the undoing that is open.
func (m *Memory) undid() (time.Time, error) {
	m.undone = append(m.undone, m.undoing.Name)
	m.undoing = nil
	m.commit(m.staged)
	m.staged = nil
	return m.clock, nil
}

// forward refuses what would begin while the run is undone.
func (m *Memory) forward() error {
	if m.unwound == nil {
		return nil
	}
	return &abi.Refusal{Code: abi.CodeUnwinding, Failure: abi.Failure{
		Kind: abi.FailTerminal, Code: CodeCompensationFailed, Message: "the run is being undone",
	}}
}

// unwinds decides, of an attempt that failed for good, whether what it did is
// undone first.
func (m *Memory) unwinds(out abi.Outcome) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.cfg.Compensates || m.unwound != nil || len(m.undo) == 0 {
		return false
	}
	m.unwound, m.from = &out, m.attempt
	m.attempt++
	return true
}

// ended reports whether a handler that failed is one whose run has been undone.
func (m *Memory) ended() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.unwound != nil && len(m.undone) == len(m.undo)
}

// final is how a run ended whose last attempt ended so: with what it failed of
// before it was undone, unless a step could not be.
func (m *Memory) final(out abi.Outcome) abi.Outcome {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.unwound == nil || len(m.undone) < len(m.undo) || out.Kind != abi.Done && out.Kind != abi.Failed {
		return out
	}
	return *m.unwound
}
