package module

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"
	"strings"

	"github.com/tetratelabs/wazero"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/host/module/wasmbin"
)

// DefaultMaxSize is how many bytes a module may have by default: twenty times
// a large Go handler.
const DefaultMaxSize = 64 << 20

// Params says what to load and for which runtime.
type Params struct {
	// Bytes is the module; if nil, the file Path is read. They must not change
	// while the Module is in use.
	Bytes []byte
	Path  string
	// Digest, if not empty, is the SHA-256 that the bytes must have, in hex.
	Digest string
	// MaxSize bounds the module, in bytes; 0 is DefaultMaxSize. A file that is
	// larger is not read.
	MaxSize int64
	// Runtime compiles and later runs the module. It was made with Features
	// and, if there is a Cache, with its Compilation.
	Runtime wazero.Runtime
	// Cache keeps machine code between starts; nil keeps none.
	Cache *Cache
}

// slots bound how many modules are compiled at the same time in this process:
// compiling keeps a core busy for seconds and cannot be stopped, and whoever
// may upload a module could ask for any number of them. Each module has one
// compiler, on the caller's goroutine: wazero's further ones run on goroutines
// whose panics nobody can contain.
var slots = make(chan struct{}, runtime.GOMAXPROCS(0))

// Load reads, checks, rewrites and compiles a module. What is wrong with the
// module is an *abi.Error or Problems, with the codes of this package; ctx
// ended is its cause. ctx bounds the wait for other compilations, not the
// compilation itself; wasmbin bounds what one function and all of them may take.
//
// The bytes themselves are not compiled, only what wasmbin made of them; its
// package comment says why that is validation enough.
func Load(ctx context.Context, p Params) (*Module, error) {
	b, err := Read(p)
	if err != nil {
		return nil, err
	}
	in := Inspect(b)
	if err := in.Err(); err != nil {
		return nil, err
	}
	rw, err := wasmbin.Rewrite(b, wasmbin.Options{MeterModule: MeterModule, MeterTick: MeterTick})
	if err != nil {
		return nil, invalid(err)
	}
	compiled, err := compile(ctx, p, rw.Bytes)
	if err != nil {
		return nil, err
	}
	return &Module{
		Digest: in.Digest, Size: in.Size, Report: rw.Report,
		Fuel: rw.Fuel, Globals: rw.Globals, Start: rw.Start, Data: rw.Data,
		MemoryMin: rw.Report.MemoryMin, MemoryMax: rw.Report.MemoryMax,
		compiled: compiled,
	}, nil
}

// Read answers the bytes of p, checked against its digest and size. A file is
// asked for its size first, and one that is too large not read.
func Read(p Params) ([]byte, error) {
	limit := p.MaxSize
	if limit <= 0 {
		limit = DefaultMaxSize
	}
	b, size, what := p.Bytes, int64(len(p.Bytes)), "the module"
	if b == nil {
		what = printable(p.Path)
		var err error
		if b, size, err = readFile(p.Path, limit); err != nil {
			return nil, unreadable(what, err)
		}
	}
	if size > limit {
		return nil, &abi.Error{
			Code:    CodeTooLarge,
			Message: fmt.Sprintf("%s has %s, at most %s are allowed", what, megabytes(size), megabytes(limit)),
			Fix:     "strip debug information (Go: -ldflags='-s -w'; others: wasm-strip)",
		}
	}
	if p.Digest != "" {
		if got := Digest(b); !strings.EqualFold(got, p.Digest) {
			return nil, &abi.Error{
				Code:    CodeDigest,
				Message: fmt.Sprintf("%s has SHA-256 %s, expected %s", what, got, show(p.Digest)),
				Fix:     "the file was changed or replaced; publish it again if that was meant",
			}
		}
	}
	return b, nil
}

// readFile answers a file's bytes and their number. If there are more than
// limit, some or all of the bytes are missing.
func readFile(path string, limit int64) ([]byte, int64, error) {
	st, err := os.Stat(path) // before it is opened: a named pipe opens once somebody writes to it
	switch {
	case err != nil:
		return nil, 0, err
	case !st.Mode().IsRegular():
		return nil, 0, errors.New("it is not a file")
	case st.Size() > limit:
		return nil, st.Size(), nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, 0, err
	}
	defer f.Close()
	// In one piece, for a file that keeps its size; it may grow meanwhile.
	b := bytes.NewBuffer(make([]byte, 0, st.Size()+bytes.MinRead))
	n, err := b.ReadFrom(io.LimitReader(f, limit+1))
	return b.Bytes(), n, err
}

func unreadable(what string, err error) error {
	cause := err
	var pe *fs.PathError
	if errors.As(err, &pe) { // the path is said already
		cause = pe.Err
	}
	return &abi.Error{Code: CodeUnreadable, Message: fmt.Sprintf("%s cannot be read: %v", what, cause), Fix: "build the module, or correct its path", Err: err}
}

func megabytes(n int64) string {
	if n < 1<<20 {
		return fmt.Sprintf("%d bytes", n)
	}
	return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
}

// compile compiles b once a slot is free.
func compile(ctx context.Context, p Params, b []byte) (wazero.CompiledModule, error) {
	select {
	case slots <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	defer func() { <-slots }()
	if p.Cache != nil {
		digest := Digest(b)
		entries := p.Cache.check(digest)
		defer p.Cache.note(digest, entries)
	}
	c, err := contained(ctx, p.Runtime, b)
	if err == nil {
		return c, nil
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if p.Cache != nil && validates(ctx, b) {
		// The module is sound, so what failed was reading or writing the cache:
		// a file that is cut short is an error of the compiler, not a miss.
		p.Cache.empty()
		if c, err = contained(ctx, p.Runtime, b); err == nil {
			return c, nil
		}
		return nil, &abi.Error{Code: CodeCache, Message: fmt.Sprintf("cannot use the cache of compiled modules %s: %s", p.Cache.dir, firstLine(err)), Fix: "check that the disk has room and the directory can be written", Err: err}
	}
	return nil, &abi.Error{Code: CodeInvalid, Message: "does not compile: " + firstLine(err), Fix: "the toolchain that built it emits invalid code, or the file is damaged", Err: err}
}

// contained compiles b and turns a panic of the compiler into an error: a
// module that finds a defect there must not end the process.
func contained(ctx context.Context, rt wazero.Runtime, b []byte) (c wazero.CompiledModule, err error) {
	defer func() {
		if x := recover(); x != nil {
			err = fmt.Errorf("the compiler failed: %v", x)
		}
	}()
	return rt.CompileModule(ctx, b)
}

// validates reports whether b is a valid module, without compiling it.
func validates(ctx context.Context, b []byte) bool {
	rt := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigInterpreter().WithCoreFeatures(Features))
	defer rt.Close(ctx)
	_, err := contained(ctx, rt, b)
	return err == nil
}

// firstLine is an error's text, short enough for a message: names in it come
// from the module.
func firstLine(err error) string {
	s, _, _ := strings.Cut(err.Error(), "\n")
	if len(s) > 300 {
		s = strings.ToValidUTF8(s[:300], "") + "…"
	}
	return s
}
