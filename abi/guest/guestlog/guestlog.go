// Package guestlog makes a *slog.Logger that writes through a handler's Ctx. It
// is apart from package guest because log/slog adds about 100 KB to a module.
package guestlog

import (
	"bytes"
	"context"
	"log/slog"

	"github.com/jobrunner/runner/abi/guest"
)

// New is a logger whose records become lines of the run's log: the message,
// then the attributes as key=value. The host adds the time. Like ctx it is for
// the handler's goroutine.
func New(ctx *guest.Ctx, least slog.Leveler) *slog.Logger { return slog.New(Handler(ctx, least)) }

// Handler is what New is made of.
func Handler(ctx *guest.Ctx, least slog.Leveler) slog.Handler {
	h := &handler{ctx: ctx, line: new(bytes.Buffer)}
	h.text = slog.NewTextHandler(h.line, &slog.HandlerOptions{
		Level: least,
		ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
			if len(groups) == 0 && (a.Key == slog.TimeKey || a.Key == slog.LevelKey || a.Key == slog.MessageKey) {
				return slog.Attr{}
			}
			return a
		},
	})
	return h
}

type handler struct {
	ctx  *guest.Ctx
	text slog.Handler  // writes attributes to line
	line *bytes.Buffer // shared with the handlers made of this one
}

func (h *handler) Enabled(ctx context.Context, l slog.Level) bool { return h.text.Enabled(ctx, l) }

func (h *handler) Handle(ctx context.Context, r slog.Record) error {
	h.line.Reset()
	h.line.WriteString(r.Message)
	h.line.WriteByte(' ')
	err := h.text.Handle(ctx, r)
	h.ctx.LogAt(level(r.Level), string(bytes.TrimRight(h.line.Bytes(), " \n")))
	return err
}

func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &handler{h.ctx, h.text.WithAttrs(attrs), h.line}
}

func (h *handler) WithGroup(name string) slog.Handler {
	return &handler{h.ctx, h.text.WithGroup(name), h.line}
}

func level(l slog.Level) guest.Level {
	switch {
	case l < slog.LevelInfo:
		return guest.LevelDebug
	case l < slog.LevelWarn:
		return guest.LevelInfo
	case l < slog.LevelError:
		return guest.LevelWarn
	}
	return guest.LevelError
}
