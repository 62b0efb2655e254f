package guest

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/abi/wire"
)

// EventOption says which events of a topic are meant.
type EventOption func(*eventOptions)

type eventOptions struct{ key string }

// EventKey is what an event is about, as an order's number: a wait with a key
// takes events of that key only, one without takes any. It has at most 255
// bytes, without control characters.
func EventKey(key string) EventOption { return func(o *eventOptions) { o.key = key } }

func eventKey(opts []EventOption) string {
	var o eventOptions
	for _, f := range opts {
		f(&o)
	}
	return o.key
}

// WaitEvent returns the payload of an event on topic, or ErrTimeout once timeout
// has passed without one; the answer is the same in every attempt from then on.
// It waits as Sleep sleeps, and goes on in the commit that publishes the event.
//
// A run's first wait for a topic and key takes the first event published after
// it began. A later one goes on where the one before ended: none that came in
// between is missed, and no two waits of a run get the same event. To miss none
// that answers a question, Subscribe before asking it.
func WaitEvent[T any](c *Ctx, name, topic string, timeout time.Duration, opts ...EventOption) (T, error) {
	var v T
	n := c.h.WaitEvent(c.unique(name), topic, eventKey(opts), max(wire.Millis(timeout), 0))
	if n < 0 {
		return v, c.refused(abi.FuncWaitEvent, n)
	}
	if err := json.Unmarshal(c.result(n), &v); err != nil {
		return v, Terminal(fmt.Errorf("the event that %q waited for has another shape: %w", name, err))
	}
	return v, nil
}

// Subscribe has the next WaitEvent for that topic and key count from here: an
// event that is published before the handler gets to wait for it is not missed,
// and one from before is passed over.
//
//	err := guest.Subscribe(c, "approval", guest.EventKey(order))
//	err = guest.Do(c, "ask", func() error { return mail(order) })
//	ok, err := guest.WaitEvent[bool](c, "answer", "approval", 72*time.Hour, guest.EventKey(order))
func Subscribe(c *Ctx, topic string, opts ...EventOption) error {
	n := c.h.WaitEvent(c.unique("subscribe "+topic), topic, eventKey(opts), -1)
	if n < 0 && abi.Code(n) != abi.CodeTimeout {
		return c.refused(abi.FuncWaitEvent, n)
	}
	return nil
}

// Publish sends an event to whoever waits on topic, and to those who will, for
// as long as it is kept. It commits as an Enqueue does: with the step it is
// called in, or once by itself between steps.
func (c *Ctx) Publish(topic string, payload any, opts ...EventOption) error {
	b, err := encode("the payload for "+topic, payload)
	if err != nil {
		return err
	}
	if n := c.h.Publish(topic, eventKey(opts), b); n < 0 {
		return c.refused(abi.FuncPublish, n)
	}
	return nil
}
