package engine

import (
	"context"

	"github.com/jobrunner/runner/engine/queue"
)

// Verdict answers one request of EnqueueEach.
type Verdict = queue.Verdict

// EnqueueEach inserts a batch whose entries do not stand for each other, as a
// relay has them; see queue.Queue.EnqueueEach. It makes a client the queue of an
// outbox.Config.
func (c *Client) EnqueueEach(ctx context.Context, requests []Request) ([]Verdict, error) {
	return c.queue.EnqueueEach(ctx, requests)
}

// PublishEach publishes events that do not stand for each other, as a relay has
// them; see queue.Queue.PublishEach.
func (c *Client) PublishEach(ctx context.Context, events []Event) ([]Verdict, error) {
	return c.queue.PublishEach(ctx, events)
}
