package host

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/host/call"
	"github.com/jobrunner/runner/host/capability"
	"github.com/jobrunner/runner/host/instance"
	"github.com/jobrunner/runner/host/module"
)

// LoadParams says what to load and what it may use.
type LoadParams struct {
	// Bytes is the module; if nil, Path is read.
	Bytes []byte
	Path  string
	// Digest, if not empty, is the SHA-256 in hex that the bytes must have.
	Digest string
	// MemoryLimit bounds linear memory, in bytes; 0 is Config.MemoryLimit.
	MemoryLimit uint64
	Grants      capability.Grants
}

// ReadModule reads a module's file for LoadParams.Bytes. Its error is an
// *abi.Error that names the file: one that is larger than any module may be is
// refused unread.
func ReadModule(path string) ([]byte, error) { return module.Read(module.Params{Path: path}) }

// templateKey is what makes two loads share a template.
type templateKey struct {
	digest string
	memory uint64
	grants string
}

// loaded is a template and what its module says of itself.
type loaded struct {
	template *instance.Template
	desc     abi.Description
	handlers map[string]int // index in desc.Handlers
	caps     *capability.Set
}

// Load checks, compiles and boots a module. The Guest is an io.Closer: closing
// it lets attempts in flight finish. Errors are *abi.Error with the codes of
// package module, instance.CodeModuleMemory, call.CodeModuleInit (also for a
// module that takes longer than Config.InitTimeout) and
// capability.CodeGrantInvalid; ErrClosed; and ctx's cause.
func (h *Host) Load(ctx context.Context, p LoadParams) (abi.Guest, error) {
	if !h.begin() {
		return nil, ErrClosed
	}
	defer h.end()
	if p.MemoryLimit == 0 {
		p.MemoryLimit = h.cfg.MemoryLimit
	}
	caps, err := h.outside.Grant(p.Grants)
	if err != nil {
		return nil, err
	}
	bytes, err := module.Read(module.Params{Bytes: p.Bytes, Path: p.Path, Digest: p.Digest})
	if err != nil {
		return nil, err
	}
	digest := module.Digest(bytes)
	key := templateKey{digest, p.MemoryLimit, p.Grants.Key()}
	l, release, err := h.templates.get(ctx, key, func() (*loaded, error) {
		m, releaseModule, err := h.modules.get(ctx, digest,
			func() (*module.Module, error) {
				return module.Load(ctx, module.Params{Bytes: bytes, Runtime: h.runtime, Cache: h.cache})
			},
			func(m *module.Module) { _ = m.Close(context.WithoutCancel(ctx)) })
		if err != nil {
			return nil, err
		}
		l, err := h.boot(ctx, m, p.MemoryLimit, caps, releaseModule)
		if err != nil {
			releaseModule()
			return nil, err
		}
		return l, nil
	}, func(l *loaded) { l.template.Close() })
	if err != nil {
		return nil, err
	}
	return &Guest{h: h, loaded: l, digest: digest, release: release}, nil
}

// boot makes a template of m.
func (h *Host) boot(ctx context.Context, m *module.Module, limit uint64, caps *capability.Set, free func()) (*loaded, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, h.cfg.InitTimeout, errInitTimeout)
	defer cancel()
	l := &loaded{caps: caps, handlers: map[string]int{}}
	var described sync.Once
	var err error
	l.template, err = h.pool.NewTemplate(ctx, instance.TemplateParams{
		Runtime:     h.runtime,
		Module:      m,
		MemoryLimit: limit,
		Boot: func(ctx context.Context, in *instance.Instance) error {
			desc, err := bringUp(ctx, in, caps)
			if err == nil {
				described.Do(func() { l.desc = desc }) // later boots say the same
			}
			return err
		},
		Probe: func(ctx context.Context, in *instance.Instance) ([]byte, error) { return probe(ctx, in, caps) },
		Free:  free,
	})
	switch {
	case errors.Is(err, errInitTimeout):
		return nil, &abi.Error{Code: call.CodeModuleInit, Message: fmt.Sprintf("the module did not start within %s", h.cfg.InitTimeout),
			Fix: "do less before the first run", Err: err}
	case err != nil:
		return nil, err
	}
	for i, handler := range l.desc.Handlers {
		l.handlers[handler.Name] = i
	}
	if mode, why := l.template.Mode(); mode == instance.Fresh {
		h.cfg.Logger.Warn("host: every attempt of this module boots a new instance, which is slow", logModule, m.Digest, logReason, why)
	}
	return l, nil
}

var errInitTimeout = errors.New("host: time for starting a module is up")
