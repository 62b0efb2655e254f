package instance

import (
	"bytes"
	"context"
	"fmt"
	"strings"

	"github.com/tetratelabs/wazero"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/host/module"
)

// CodeModuleMemory: the module asks for more memory than its limit.
const CodeModuleMemory = "X_MODULE_MEMORY"

// anonymous instantiates without a name, so that there can be many, and
// without running anything: Boot does that, on the host's clock.
var anonymous = wazero.NewModuleConfig().WithName("").WithStartFunctions()

// TemplateParams is what NewTemplate makes a template of.
type TemplateParams struct {
	Runtime wazero.Runtime // with every host module that Module imports
	Module  *module.Module // loaded for Runtime
	// MemoryLimit bounds linear memory, in bytes; it is rounded down to whole
	// wasm pages, and the module's own maximum holds if it is lower. It must
	// be below 4 GiB.
	MemoryLimit uint64
	// Boot brings a new instance, whose data is in place, to the state that
	// attempts start from: start function, _initialize, warm-up. It must do
	// the same for every instance, whatever the time.
	Boot func(context.Context, *Instance) error
	// Probe runs something harmless in a booted instance and answers a
	// transcript of what the guest asked for and gave. The self-test expects
	// the same transcript after a reset.
	Probe func(context.Context, *Instance) ([]byte, error)
	// Free is called once, when the template is closed and its last instance
	// gone; it may be nil.
	Free func()
}

// Template is a module with everything that makes instances of it. Its methods
// are safe for concurrent use.
type Template struct {
	pool    *Pool
	runtime wazero.Runtime
	mod     *module.Module
	boot    func(context.Context, *Instance) error
	free    func()
	limit   uint64
	names   [exports]string // "" where the module has none
	mode    Mode            // of this template: the pool's, or Fresh
	why     []string        // for Fresh
	image   *image          // nil for Fresh
	globals []uint64        // nil for Fresh

	// Under the pool's lock.
	idle   []*Instance // ready, longest idle first
	used   []*Instance // waiting for their reset, oldest first
	out    int         // with callers, or in a reset
	drains bool        // a goroutine resets the used ones
	closed bool
	freed  bool
}

// NewTemplate boots a first instance of a module and makes a template of it.
// Errors of Boot and Probe come back wrapped; a module that needs more memory
// than it may have is an *abi.Error.
func (p *Pool) NewTemplate(ctx context.Context, in TemplateParams) (*Template, error) {
	t := &Template{pool: p, runtime: in.Runtime, mod: in.Module, boot: in.Boot, free: in.Free, mode: p.cfg.Mode}
	pages := min(in.MemoryLimit/wasmPage, 65535, uint64(in.Module.MemoryMax))
	if uint64(in.Module.MemoryMin) > pages {
		return nil, &abi.Error{
			Code:    CodeModuleMemory,
			Message: fmt.Sprintf("the module starts with %d KiB of memory and may have %d KiB", uint64(in.Module.MemoryMin)*64, pages*64),
			Fix:     "raise the memory limit",
		}
	}
	t.limit = pages * wasmPage
	functions := in.Module.Compiled().ExportedFunctions()
	for e, name := range exportNames {
		if Export(e) == Start {
			name = in.Module.Start
		}
		if _, ok := functions[name]; ok {
			t.names[e] = name
		}
	}
	if why := in.Module.Report.FreshOnly; len(why) > 0 {
		t.mode, t.why = Fresh, why
	} else if t.mode == Fresh {
		t.why = []string{"the configuration says so"}
	}

	first, err := t.newBooted(ctx)
	if err != nil {
		return nil, err
	}
	if t.mode == Fresh {
		first.close(ctx)
		return t, p.add(t)
	}
	if err := t.snapshot(first); err != nil {
		first.close(ctx)
		return nil, err
	}
	if why, err := t.selfTest(ctx, first, in.Probe); err != nil {
		first.close(ctx)
		t.image.close()
		return nil, err
	} else if why != "" {
		first.close(ctx)
		t.image.close()
		t.image, t.globals = nil, nil
		t.mode, t.why = Fresh, []string{why}
		return t, p.add(t)
	}
	if err := p.add(t); err != nil {
		first.close(ctx)
		t.image.close()
		return nil, err
	}
	p.mu.Lock()
	t.out++
	p.mu.Unlock()
	t.put(first)
	return t, nil
}

// newBooted makes an instance without an image.
func (t *Template) newBooted(ctx context.Context) (*Instance, error) {
	in, err := t.instantiate(ctx)
	if err != nil {
		return nil, err
	}
	if err = in.applyData(); err == nil {
		err = t.boot(ctx, in)
	}
	if err != nil {
		in.close(ctx)
		return nil, err
	}
	return in, nil
}

// snapshot makes the instance's state the template's.
func (t *Template) snapshot(in *Instance) error {
	size := in.MemoryBytes()
	im, err := newImage(t.mode, in.mem.b[:size])
	if err != nil {
		return err
	}
	t.image = im
	t.globals = make([]uint64, len(in.globals))
	for i, g := range in.globals {
		t.globals[i] = g.Get()
	}
	if err := in.become(im, t.globals); err != nil {
		im.close()
		return err
	}
	in.DropFuncs()
	return nil
}

// selfTest answers why a reset does not restore the instance, or "". Scans are
// written by people; a mistake there must cost speed, not isolation.
func (t *Template) selfTest(ctx context.Context, in *Instance, probe func(context.Context, *Instance) ([]byte, error)) (string, error) {
	var first []byte
	for i := range 2 {
		got, err := probe(ctx, in)
		if err != nil {
			return "", err
		}
		if err := in.reset(); err != nil {
			return "", err
		}
		if !in.matches() {
			return "its memory or globals differ from the image after a reset", nil
		}
		if i == 0 {
			first = got
		} else if !bytes.Equal(first, got) {
			return "it behaves differently the second time it runs from the same image", nil
		}
	}
	return "", nil
}

// Mode is how this template's instances are made new, and for Fresh why.
func (t *Template) Mode() (Mode, string) { return t.mode, strings.Join(t.why, "; ") }

// Module is what the template was made of.
func (t *Template) Module() *module.Module { return t.mod }
