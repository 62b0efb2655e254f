package enginetest

import (
	"encoding/json"
	"time"

	"github.com/jobrunner/runner/abi"
)

// Wait suspends the run for an event on the topic, with the key unless it is "".
// A Refusal with CodeTimeout says that there was none.
func (t *Task) Wait(name, topic, key string, timeout time.Duration) (json.RawMessage, error) {
	t.stop()
	payload, at, err := t.Calls.WaitEvent(t.Context, abi.WaitParams{Name: name, Topic: topic, Key: key, Timeout: timeout})
	if !at.IsZero() {
		t.Now = at
	}
	return payload, t.check(err)
}

// Publish publishes an event.
func (t *Task) Publish(topic, key string, payload any) error {
	t.stop()
	return t.check(t.Calls.Publish(t.Context, abi.PublishParams{Topic: topic, Key: key, Payload: encode(payload)}))
}

// Invoke makes child runs, at most limit at a time, and answers how they ended.
func (t *Task) Invoke(limit int, runs ...abi.EnqueueParams) ([]abi.InvokeResult, error) {
	t.stop()
	results, at, err := t.Calls.Invoke(t.Context, runs, limit)
	if err := t.check(err); err != nil {
		return nil, err
	}
	t.Now = at
	return results, nil
}
