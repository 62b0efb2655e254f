package host_test

import (
	"context"
	"io"
	"log/slog"
	"testing"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/abi/abitest"
	"github.com/jobrunner/runner/host"
)

// The contract's own kit, over this host.
func TestGuest(t *testing.T) {
	h, err := host.New(t.Context(), host.Config{MemoryLimit: 64 << 20, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	abitest.TestGuest(t, func(tb testing.TB, wasm []byte) (abi.Guest, error) {
		g, err := h.Load(context.Background(), host.LoadParams{Bytes: wasm})
		if err == nil {
			tb.Cleanup(func() { g.(io.Closer).Close() })
		}
		return g, err
	})
}
