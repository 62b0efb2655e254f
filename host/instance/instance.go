package instance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"

	"github.com/jobrunner/runner/abi"
)

// Export is a function that a host calls in a guest.
type Export int

const (
	Start      Export = iota // what was the module's start function
	Initialize               // abi.ExportInitialize
	Warm                     // abi.ExportWarm
	Describe                 // abi.ExportDescribe
	Run                      // abi.ExportRun
	exports
)

// Instance is one instance of a template's module. It is used by one goroutine
// at a time.
type Instance struct {
	t       *Template
	mod     api.Module
	mem     *memory
	globals []api.MutableGlobal
	fuel    api.MutableGlobal
	funcs   [exports]api.Function
	stack   [1]uint64 // parameter and result of a call

	resident  int       // private pages that stayed mapped, after the last reset
	idleSince time.Time // under the pool's lock
	trimmed   bool      // under the pool's lock
}

// instantiate makes an instance whose memory holds the module's data, and
// nothing has run in it.
func (t *Template) instantiate(ctx context.Context) (*Instance, error) {
	mem, err := newMemory(t.mode, t.limit)
	if err != nil {
		return nil, err
	}
	ctx = experimental.WithMemoryAllocator(ctx, experimental.MemoryAllocatorFunc(func(_, _ uint64) experimental.LinearMemory { return mem }))
	mod, err := t.runtime.InstantiateModule(ctx, t.mod.Compiled(), anonymous)
	if err != nil {
		mem.Free()
		return nil, fmt.Errorf("instantiate: %w", err)
	}
	in := &Instance{t: t, mod: mod, mem: mem, globals: make([]api.MutableGlobal, len(t.mod.Globals))}
	var ok bool
	for i, name := range t.mod.Globals {
		if in.globals[i], ok = mod.ExportedGlobal(name).(api.MutableGlobal); !ok {
			in.close(ctx)
			return nil, fmt.Errorf("instantiate: global %q is not a mutable export", name)
		}
	}
	if in.fuel, ok = mod.ExportedGlobal(t.mod.Fuel).(api.MutableGlobal); !ok {
		in.close(ctx)
		return nil, fmt.Errorf("instantiate: fuel %q is not a mutable export", t.mod.Fuel)
	}
	return in, nil
}

// applyData copies the segments that the host keeps out of the compiled module.
func (in *Instance) applyData() error {
	for _, s := range in.t.mod.Data {
		if !in.mod.Memory().Write(s.Offset, s.Bytes) {
			return fmt.Errorf("data segment of %d bytes at %d lies outside memory", len(s.Bytes), s.Offset)
		}
	}
	return nil
}

// spawn makes an instance from the image.
func (t *Template) spawn(ctx context.Context) (*Instance, error) {
	in, err := t.instantiate(ctx)
	if err != nil {
		return nil, err
	}
	if err := in.become(t.image, t.globals); err != nil {
		in.close(ctx)
		return nil, err
	}
	return in, nil
}

// become gives a new instance the image and the globals that go with it.
func (in *Instance) become(im *image, globals []uint64) error {
	if at := uint64(in.mod.Memory().Size()); at < im.size {
		if _, ok := in.mod.Memory().Grow(uint32((im.size - at) / wasmPage)); !ok {
			return errors.New("memory cannot grow to the size of its image")
		}
	}
	if err := im.lay(in.mem); err != nil {
		return err
	}
	in.mem.peak = im.size
	for i, g := range in.globals {
		g.Set(globals[i])
	}
	return nil
}

// Has reports whether the module has that export.
func (in *Instance) Has(e Export) bool { return in.t.names[e] != "" }

// Call calls e with arg, if it takes one, and answers its result, if it has
// one. fuel is what the guest burns before its first tick. An error is
// wazero's: a trap, or what a host function panicked with.
//
// The function keeps its native stack for the next call; after a trap
// DropFuncs frees it.
func (in *Instance) Call(ctx context.Context, e Export, arg uint64, fuel uint32) (uint64, error) {
	f := in.funcs[e]
	if f == nil {
		if !in.Has(e) {
			return 0, fmt.Errorf("the module does not export %s", exportNames[e])
		}
		f = in.mod.ExportedFunction(in.t.names[e])
		in.funcs[e] = f
	}
	in.fuel.Set(uint64(fuel))
	in.stack[0] = arg
	in.mem.running.Store(true)
	err := f.CallWithStack(ctx, in.stack[:])
	in.mem.running.Store(false) // not deferred: should a panic pass, the memory stays mapped
	if err != nil {
		return 0, err // the stack still has the argument
	}
	return in.stack[0], nil
}

// String is the export's name.
func (e Export) String() string { return exportNames[e] }

var exportNames = [exports]string{Start: "a start function", Initialize: abi.ExportInitialize, Warm: abi.ExportWarm, Describe: abi.ExportDescribe, Run: abi.ExportRun}

// DropFuncs frees the native stacks, which a deep recursion may leave grown to
// 100 MB and more.
func (in *Instance) DropFuncs() { clear(in.funcs[:]) }

// MemoryBytes is the current size of linear memory.
func (in *Instance) MemoryBytes() uint64 { return uint64(in.mod.Memory().Size()) }

// MemoryLimit is the most it may grow to.
func (in *Instance) MemoryLimit() uint64 { return in.mem.limit }

// Refused is how often the limit refused a growth since the last reset.
func (in *Instance) Refused() int { return in.mem.refused }

// instanceBytes is about what an instance keeps on the Go heap: wazero's
// tables and globals, and the stack of one function. Measured for a Go guest
// with 2,400 table entries; smaller guests keep less.
const instanceBytes = 150 << 10

// bytes is about what the instance keeps.
func (in *Instance) bytes() int64 {
	n := int64(instanceBytes) + int64(in.resident)*int64(osPage)
	if !in.mem.mapped {
		n += int64(len(in.mem.b))
	}
	return n
}

// close frees everything. The instance must not be running.
func (in *Instance) close(ctx context.Context) {
	_ = in.mod.Close(ctx) // an anonymous module without files has nothing to fail
	in.mem.Free()
	in.DropFuncs()
}
