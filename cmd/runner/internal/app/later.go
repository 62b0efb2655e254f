package app

import (
	"context"
	"io"
	"sync"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/manifest"
)

// laterGuest is a module that is loaded by the first attempt that runs on it.
// Until then it is taken to have the handlers that the manifest's jobs name, and
// has no digest. It is for a process that runs one job, and what that leads to,
// in memory: a run that others could continue must know its module.
type laterGuest struct {
	m    *manifest.Manifest
	decl manifest.Module
	load Loader

	once  sync.Once
	guest abi.Guest
	bad   *abi.Error
}

// Digest implements abi.Guest.
func (g *laterGuest) Digest() string { return "" }

// Describe implements abi.Guest.
func (g *laterGuest) Describe() abi.Description {
	d := abi.Description{ABI: abi.Version}
	for _, j := range g.m.Jobs {
		if j.Module == g.decl.Name {
			d.Handlers = append(d.Handlers, abi.Handler{Name: j.Handler})
		}
	}
	return d
}

// Run implements abi.Guest. A module that cannot be loaded fails the run for
// good: nothing mends it while the process lasts.
func (g *laterGuest) Run(ctx context.Context, a abi.Attempt, calls abi.Calls) abi.Outcome {
	g.once.Do(func() { g.guest, g.bad = g.open(context.WithoutCancel(ctx)) })
	bad := g.bad
	if bad == nil {
		bad = checkHandler(g.m.Jobs[a.Meta.Job], g.guest)
	}
	if bad != nil {
		return abi.Outcome{Kind: abi.Failed, Failure: abi.Failure{Kind: abi.FailTerminal, Code: bad.Code, Message: bad.Message, Fix: bad.Fix}}
	}
	return g.guest.Run(ctx, a, calls)
}

func (g *laterGuest) open(ctx context.Context) (abi.Guest, *abi.Error) {
	wasm, _, bad := readPinned(g.decl)
	if bad != nil {
		return nil, bad
	}
	guest, err := g.load(ctx, g.decl, wasm)
	if err != nil {
		return nil, refusal(g.decl.Name, g.decl.Path, err)
	}
	return guest, nil
}

// Close implements io.Closer, as a host's guests do.
func (g *laterGuest) Close() error {
	if c, ok := g.guest.(io.Closer); ok {
		return c.Close()
	}
	return nil
}
