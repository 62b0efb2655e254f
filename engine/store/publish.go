package store

import (
	"fmt"
	"time"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/abi/wire"
	"github.com/jobrunner/runner/engine/job"
)

// MaxEventKeep is how long an event can be kept: ten years catches a unit mistake.
const MaxEventKeep = abi.MaxSleep

// PublishParams ask for an event, at whatever door: the client's, a transaction's,
// an outbox's.
type PublishParams struct {
	Topic string
	// Key says what it is about, as an order's number; it may be empty.
	Key string
	// Tenant is whose runs get it, besides those of no tenant; "" is everybody's.
	Tenant  string
	Payload []byte // JSON; empty is null
	// ID is a canonical lower-case UUID. An event of an id that was published
	// before publishes nothing. Empty: one is made.
	ID string
	// Keep is how long waits that begin later may find it, and it is listed; 0 is
	// job.DefaultEventKeep. At most MaxEventKeep.
	Keep time.Duration
	By   string // records who publishes; it confers nothing
}

// Event is what p asks for with its defaults written out, but for an ID that is
// not said. Errors: X_INVALID. Whether the ID is one is for others to check.
func (p PublishParams) Event() (EventParams, error) {
	invalid := func(fix, format string, args ...any) (EventParams, error) {
		return EventParams{}, &abi.Error{Code: job.CodeInvalid, Message: fmt.Sprintf(format, args...), Fix: fix}
	}
	if _, err := wire.Name(abi.FuncPublish, []byte(p.Topic)); err != nil {
		return invalid(fmt.Sprintf("say 1 to %d bytes of UTF-8, without control characters", abi.MaxName), "the topic %s is none", job.Quote(p.Topic))
	}
	if _, err := wire.Key(abi.FuncPublish, []byte(p.Key)); err != nil {
		return invalid(fmt.Sprintf("say at most %d bytes of UTF-8, without control characters", abi.MaxName), "the key %s is none", job.Quote(p.Key))
	}
	if len(p.Payload) == 0 {
		p.Payload = []byte("null")
	}
	if err := wire.CheckJSON(p.Payload, abi.MaxInput); err != nil {
		return invalid("send one JSON value in UTF-8, with each key once and control characters escaped", "the payload for %s is refused: %v", job.Quote(p.Topic), err)
	}
	if p.Keep == 0 {
		p.Keep = job.DefaultEventKeep
	}
	if p.Keep < time.Millisecond || p.Keep > MaxEventKeep {
		return invalid("say 1ms to ten years", "an event cannot be kept for %v", p.Keep)
	}
	if err := job.CheckText(job.CodeInvalid, "tenant", p.Tenant, job.MaxTenant); err != nil {
		return EventParams{}, err
	}
	if err := job.CheckText(job.CodeInvalid, "name of who publishes", p.By, job.MaxTenant); err != nil {
		return EventParams{}, err
	}
	return EventParams{ID: p.ID, Topic: p.Topic, Key: p.Key, Tenant: p.Tenant, Payload: p.Payload, Keep: p.Keep, By: p.By}, nil
}
