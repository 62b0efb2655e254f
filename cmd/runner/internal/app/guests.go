package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/manifest"
	"github.com/jobrunner/runner/host"
)

// HostParams are what a process gives to the guests it runs.
type HostParams struct {
	// Getenv is where the secrets that a manifest grants are looked up, each
	// under its own name.
	Getenv func(string) string
	// Logger gets what an operator should know; nil discards.
	Logger *slog.Logger
	// CacheDir keeps compiled modules between starts; "" keeps none.
	CacheDir string
	// CPUSlots is how many guests run at a time; 0 is one for each processor.
	CPUSlots int
}

// Host is a host whose guests are loaded as a manifest declares them. It is
// safe for concurrent use.
type Host struct{ host *host.Host }

// NewHost makes a host; Close it at last.
func NewHost(ctx context.Context, p HostParams) (*Host, error) {
	if p.Logger == nil {
		p.Logger = slog.New(slog.DiscardHandler)
	}
	c := host.Config{CacheDir: p.CacheDir, CPUSlots: p.CPUSlots, Logger: p.Logger}
	c.Outside.Secrets = func(_ context.Context, name string) (string, error) {
		if p.Getenv == nil {
			return "", errors.New("no secrets here")
		}
		return p.Getenv(name), nil
	}
	h, err := host.New(ctx, c)
	var coded *abi.Error
	switch {
	case errors.As(err, &coded) && coded.Err == nil:
		return nil, err // it says which permission to mend
	case coded != nil && p.CacheDir != "":
		return nil, &abi.Error{Code: coded.Code, Message: coded.Message, Fix: "make data_dir in the manifest a folder that this user may write to", Err: err}
	case err != nil:
		return nil, fmt.Errorf("start the host: %w", err)
	}
	return &Host{h}, nil
}

// CacheDir is where m's modules are kept once compiled.
func CacheDir(m *manifest.Manifest) string { return filepath.Join(m.Runner.DataDir, "cache") }

// Load loads a module under what m grants it.
func (h *Host) Load(ctx context.Context, m manifest.Module, wasm []byte) (abi.Guest, error) {
	p := host.LoadParams{Bytes: wasm, Path: m.Path, MemoryLimit: m.Memory}
	p.Grants.HTTP, p.Grants.Secrets, p.Grants.Env = m.Allow.HTTP, m.Allow.Secrets, m.Allow.Env
	return h.host.Load(ctx, p)
}

// CloseGuest gives a guest of this host up; attempts it runs go on to their end.
func (h *Host) CloseGuest(g abi.Guest) {
	if c, ok := g.(io.Closer); ok {
		_ = c.Close() // a guest's Close does not fail
	}
}

// ExpireCache removes what was compiled and not used since before.
func (h *Host) ExpireCache(before time.Time) (removed int, err error) {
	return h.host.ExpireCache(before)
}

// Stats counts what is there now.
func (h *Host) Stats() host.Stats { return h.host.Stats() }

// Close waits for attempts under way until ctx ends, and frees everything.
func (h *Host) Close(ctx context.Context) error { return h.host.Close(ctx) }
