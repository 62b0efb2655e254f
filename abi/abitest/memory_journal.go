package abitest

import (
	"context"

	"github.com/jobrunner/runner/abi"
)

// allFeatures are the optional functions that Memory serves.
const allFeatures = abi.FeatureInvoke | abi.FeaturePublish | abi.FeatureWaitEvent

// Log implements abi.Journal. Outside steps, what an earlier attempt has said
// already is dropped: that is, until the run passes its last record.
func (m *Memory) Log(_ context.Context, level abi.Level, line string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.said("%s %d %s", abi.FuncLog, level, line)
	if m.open == nil && m.reached < len(m.records) {
		return
	}
	m.lines = append(m.lines, Line{level, line})
}

// Progress implements abi.Journal.
func (m *Memory) Progress(_ context.Context, permille int, note string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.said("%s %d %s", abi.FuncProgress, permille, note)
	m.progress, m.note = permille, note
}

// Features implements abi.Extras.
func (m *Memory) Features() abi.Features {
	f := allFeatures
	if m.cfg.Compensates {
		f |= abi.FeatureCompensate
	}
	return f &^ m.cfg.Unsupported
}

// SQL implements abi.Extras; it is not served.
func (m *Memory) SQL(context.Context, []byte) ([]byte, error) {
	return nil, &abi.Refusal{Code: abi.CodeUnsupported}
}
