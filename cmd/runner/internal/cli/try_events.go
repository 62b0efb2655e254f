package cli

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/abi/wire"
	"github.com/jobrunner/runner/cmd/runner/internal/app"
	"github.com/jobrunner/runner/engine"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/manifest"
)

// eventLine is a line of the file that --events names.
type eventLine struct {
	After  string          `json:"after"`
	Topic  string          `json:"topic"`
	Key    string          `json:"key"`
	Tenant string          `json:"tenant"`
	Data   json.RawMessage `json:"data"`
}

// readEvents reads a file of events to come, one a line. Empty lines are passed
// over.
func readEvents(path string) ([]app.TryEvent, error) {
	if path == "" {
		return nil, nil
	}
	f, err := openFile(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	var events []app.TryEvent
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 2*abi.MaxInput)
	for n := 1; lines.Scan(); n++ {
		line := bytes.TrimSpace(lines.Bytes())
		if len(line) == 0 {
			continue
		}
		e, err := readEvent(line)
		if err != nil {
			return nil, &abi.Error{
				Code: job.CodeInvalid, Message: fmt.Sprintf("%s:%d: %v", path, n, err),
				Fix: `write lines as {"after":"2h","topic":"approval","key":"o-1","data":true}`,
			}
		}
		events = append(events, e)
	}
	if err := lines.Err(); err != nil {
		return nil, &abi.Error{Code: codeFile, Message: fmt.Sprintf("cannot read %s: %v", path, err), Fix: "keep each line under 2 MiB", Err: err}
	}
	return events, nil
}

func readEvent(line []byte) (app.TryEvent, error) {
	if err := wire.CheckJSON(line, 2*abi.MaxInput); err != nil {
		return app.TryEvent{}, err
	}
	var l eventLine
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(&l); err != nil {
		return app.TryEvent{}, err
	}
	after := time.Duration(0)
	if l.After != "" {
		var err error
		if after, err = manifest.ParseDuration(l.After); err != nil {
			return app.TryEvent{}, fmt.Errorf("after: %w", err)
		}
	}
	if after < 0 || l.Topic == "" {
		return app.TryEvent{}, fmt.Errorf("an event has a topic, and comes after the run was enqueued")
	}
	return app.TryEvent{After: after, Event: engine.Event{Topic: l.Topic, Key: l.Key, Tenant: l.Tenant, Payload: l.Data, By: "try"}}, nil
}
