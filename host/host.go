package host

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tetratelabs/wazero"

	"github.com/jobrunner/runner/host/call"
	"github.com/jobrunner/runner/host/capability"
	"github.com/jobrunner/runner/host/instance"
	"github.com/jobrunner/runner/host/module"
)

// ErrClosed is what Load answers after Close.
var ErrClosed = errors.New("host: closed")

// errNotMade marks a shared value whose making panicked.
var errNotMade = errors.New("host: making a shared value did not finish")

// Host loads modules and runs attempts of them. It is safe for concurrent use.
type Host struct {
	cfg     Config
	runtime wazero.Runtime
	cache   *module.Cache // nil without CacheDir
	pool    *instance.Pool
	slots   *call.Slots
	outside *capability.Outside

	modules   share[string, *module.Module]
	templates share[templateKey, *loaded]

	mu     sync.Mutex
	runs   int           // attempts and loads in flight
	idle   chan struct{} // closed when closing and runs is 0
	closed bool

	stop func()         // ends the trimming
	work sync.WaitGroup // the trimming
}

// New makes a host; Close it at last. ctx bounds only New itself.
func New(ctx context.Context, c Config) (*Host, error) {
	c, err := c.withDefaults()
	if err != nil {
		return nil, err
	}
	pool, err := instance.New(c.Pool)
	if err != nil {
		return nil, err
	}
	rc := wazero.NewRuntimeConfig().WithCoreFeatures(module.Features)
	h := &Host{cfg: c, pool: pool, slots: call.NewSlots(c.CPUSlots), outside: capability.NewOutside(c.Outside), idle: make(chan struct{})}
	if c.CacheDir != "" {
		if h.cache, err = module.OpenCache(c.CacheDir); err != nil {
			return nil, err
		}
		rc = rc.WithCompilationCache(h.cache.Compilation())
	}
	h.runtime = wazero.NewRuntimeWithConfig(ctx, rc)
	if err := call.Register(ctx, h.runtime, module.MeterModule, module.MeterTick); err != nil {
		return nil, errors.Join(err, h.free(ctx))
	}
	trimCtx, stop := context.WithCancel(context.WithoutCancel(ctx))
	h.stop = stop
	if c.TrimEvery > 0 {
		h.work.Add(1)
		go h.trim(trimCtx)
	}
	return h, nil
}

// trim gives back what idle instances keep, until ctx ends.
func (h *Host) trim(ctx context.Context) {
	defer h.work.Done()
	t := time.NewTicker(h.cfg.TrimEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-t.C:
			h.pool.Trim(now)
		}
	}
}

// Trim gives back what instances idle at now keep; the host does so itself
// unless Config.TrimEvery is negative.
func (h *Host) Trim(now time.Time) instance.TrimResult { return h.pool.Trim(now) }

// begin counts an attempt or a load; end counts it off.
func (h *Host) begin() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return false
	}
	h.runs++
	return true
}

func (h *Host) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.runs--
	if h.closed && h.runs == 0 {
		close(h.idle)
	}
}

// ExpireCache removes from the cache of compiled modules what was not used since
// before, and answers how many modules those were. Without a cache there are none.
func (h *Host) ExpireCache(before time.Time) (removed int, err error) {
	if h.cache == nil {
		return 0, nil
	}
	return h.cache.Expire(before)
}

// Close refuses new attempts and loads, waits for those in flight, and frees
// everything. If ctx ends first it frees nothing, since a guest's memory must
// not go while it runs, and answers the context's cause; it may be called
// again.
func (h *Host) Close(ctx context.Context) error {
	h.mu.Lock()
	if !h.closed {
		h.closed = true
		if h.runs == 0 {
			close(h.idle)
		}
	}
	h.mu.Unlock()
	select {
	case <-h.idle:
	default:
		select {
		case <-h.idle:
		case <-ctx.Done():
			return fmt.Errorf("host: closing while attempts run: %w", context.Cause(ctx))
		}
	}
	h.stop()
	h.work.Wait()
	return h.free(context.WithoutCancel(ctx))
}

func (h *Host) free(ctx context.Context) error {
	h.pool.Close()
	h.outside.Close()
	err := h.runtime.Close(ctx)
	if h.cache != nil {
		err = errors.Join(err, h.cache.Close(ctx))
	}
	return err
}
