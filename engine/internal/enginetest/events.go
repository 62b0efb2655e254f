package enginetest

import (
	"context"
	"log/slog"
	"sync"
)

// Events is a slog.Handler that keeps what was logged. Its zero value is ready;
// it is safe for concurrent use.
type Events struct {
	mu      sync.Mutex
	records []slog.Record
}

// Logger writes to e.
func (e *Events) Logger() *slog.Logger { return slog.New(e) }

// Count is how many records have the message.
func (e *Events) Count(message string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := 0
	for _, r := range e.records {
		if r.Message == message {
			n++
		}
	}
	return n
}

// Attr is the text of an attribute of the last record with the message, or "".
func (e *Events) Attr(message, key string) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	text := ""
	for _, r := range e.records {
		if r.Message != message {
			continue
		}
		r.Attrs(func(a slog.Attr) bool {
			if a.Key == key {
				text = a.Value.String()
			}
			return true
		})
	}
	return text
}

// Messages are the messages in order.
func (e *Events) Messages() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	out := make([]string, len(e.records))
	for i, r := range e.records {
		out[i] = r.Level.String() + " " + r.Message
		r.Attrs(func(a slog.Attr) bool {
			out[i] += " " + a.String()
			return true
		})
	}
	return out
}

// Enabled, Handle, WithAttrs and WithGroup implement slog.Handler.
func (e *Events) Enabled(context.Context, slog.Level) bool { return true }

func (e *Events) Handle(_ context.Context, r slog.Record) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.records = append(e.records, r.Clone())
	return nil
}

func (e *Events) WithAttrs([]slog.Attr) slog.Handler { return e }
func (e *Events) WithGroup(string) slog.Handler      { return e }
