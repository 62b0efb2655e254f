package job

import "time"

// Event is something that was published. Seq is its place in the order of its
// topic's events.
type Event struct {
	Seq         int64
	ID          string
	Topic       string
	Key         string // "" is nothing in particular
	Tenant      string // whose runs get it; "" is everybody's
	Payload     []byte // JSON
	Run         string // that published it; "" is none
	By          string
	PublishedAt time.Time
	ExpiresAt   time.Time
}

// DefaultEventKeep is how long an event is kept unless something else is said.
const DefaultEventKeep = 7 * 24 * time.Hour
