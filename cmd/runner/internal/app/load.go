package app

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/manifest"
	"github.com/jobrunner/runner/host"
)

// Codes of what can be wrong between a manifest and its modules.
const (
	CodeModuleUnreadable = "X_MODULE_UNREADABLE"
	CodeModulePin        = "X_MODULE_PIN_MISMATCH"
	CodeModuleRefused    = "X_MODULE_REFUSED" // by a host that gave no code of its own
	CodeHandlerUnknown   = "X_HANDLER_UNKNOWN"
)

// Loader makes a guest of a module's bytes under what the manifest grants it.
type Loader func(ctx context.Context, m manifest.Module, wasm []byte) (abi.Guest, error)

// LoadParams are what Load starts from.
type LoadParams struct {
	Path   string          // of the manifest
	Loader Loader          // nil loads no module: for a process that only enqueues
	Close  func(abi.Guest) // of guests loaded in vain; nil does nothing
	Before *Loaded         // its guests are used again where nothing changed; may be nil
	Keep   bool            // keep a copy of each module in the data folder
	// Later, when not nil, says which modules are loaded when an attempt first
	// needs them. What is wrong with one fails that attempt instead of the Load.
	Later func(module string) bool
}

// Loaded is a manifest with a guest for each of its modules. It does not change.
type Loaded struct {
	Manifest *manifest.Manifest
	Guests   map[string]abi.Guest
	Sizes    map[string]int // of the modules, in bytes
	Files    []string       // everything it was read from
	stamps   map[string]stamp
	fresh    []abi.Guest // those that Before did not have
}

// Load reads a manifest and loads its modules, in parallel. The error is a
// *manifest.Report of every problem, or that of a ctx that ended; nothing is
// left open then.
func Load(ctx context.Context, p LoadParams) (*Loaded, error) {
	m, report := manifest.Load(p.Path)
	if report != nil {
		return nil, report
	}
	l := &loading{p: p, m: m, out: &Loaded{
		Manifest: m, Guests: map[string]abi.Guest{}, Sizes: map[string]int{},
	}}
	if p.Loader != nil {
		l.modules(ctx)
		l.handlers()
	}
	if err := ctx.Err(); err != nil {
		l.discard()
		return nil, context.Cause(ctx)
	}
	if len(l.problems) > 0 {
		l.discard()
		slices.SortStableFunc(l.problems, func(a, b manifest.Problem) int { return a.Line - b.Line })
		return nil, &manifest.Report{File: p.Path, Problems: l.problems}
	}
	l.out.Files = filesOf(m)
	l.out.stamps = map[string]stamp{}
	for _, f := range m.Files {
		l.out.stamps[f] = stampOf(f)
	}
	return l.out, nil
}

// filesOf are the files that m was read from and those of its modules.
func filesOf(m *manifest.Manifest) []string {
	files := slices.Clone(m.Files)
	for _, name := range slices.Sorted(maps.Keys(m.Modules)) {
		files = append(files, m.Modules[name].Path)
	}
	slices.Sort(files)
	return slices.Compact(files)
}

// loading is one Load under way. mu guards problems and out while modules load.
type loading struct {
	p LoadParams
	m *manifest.Manifest

	mu       sync.Mutex
	problems []manifest.Problem
	out      *Loaded
}

func (l *loading) problem(code, message, fix string, keys ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.problems = append(l.problems, l.m.Problem(code, message, fix, keys...))
}

// modules loads every module of the manifest, as many at a time as there are
// processors: compiling is what takes long.
func (l *loading) modules(ctx context.Context) {
	slots := make(chan struct{}, runtime.GOMAXPROCS(0))
	var wg sync.WaitGroup
	for _, name := range slices.Sorted(maps.Keys(l.m.Modules)) {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			l.module(ctx, name)
		})
	}
	wg.Wait()
}

func (l *loading) module(ctx context.Context, name string) {
	decl := l.m.Modules[name]
	if ctx.Err() != nil {
		return
	}
	if l.p.Later != nil && l.p.Later(name) {
		l.mu.Lock()
		defer l.mu.Unlock()
		g := &laterGuest{m: l.m, decl: decl, load: l.p.Loader}
		l.out.Guests[name], l.out.fresh = g, append(l.out.fresh, g)
		return
	}
	wasm, digest, bad := readPinned(decl)
	if bad != nil {
		key := "path"
		if bad.Code == CodeModulePin {
			key = "sha256"
		}
		l.problem(bad.Code, bad.Message, bad.Fix, "modules", name, key)
		return
	}
	guest := l.again(name, digest)
	if guest == nil {
		var err error
		if guest, err = l.p.Loader(ctx, decl, wasm); err != nil {
			if ctx.Err() == nil {
				l.refused(name, decl.Path, err)
			}
			return
		}
		l.mu.Lock()
		l.out.fresh = append(l.out.fresh, guest)
		l.mu.Unlock()
	}
	if l.p.Keep {
		if _, err := (copies{dir: modulesDir(l.m)}).put(wasm); err != nil {
			l.problem(CodeModuleUnreadable, fmt.Sprintf("module %q: no copy can be kept in %s: %v", name, modulesDir(l.m), plain(err)),
				"make data_dir a folder that the runner may write to, on a disk with room", "runner", "data_dir")
			return
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.out.Guests[name], l.out.Sizes[name] = guest, len(wasm)
}

// readPinned reads the module that decl declares and answers its digest.
// Errors: those of host.ReadModule, X_MODULE_PIN_MISMATCH.
func readPinned(decl manifest.Module) (wasm []byte, digest string, bad *abi.Error) {
	wasm, err := host.ReadModule(decl.Path)
	if err != nil {
		bad = &abi.Error{Code: CodeModuleUnreadable, Message: err.Error()}
		var coded *abi.Error
		if errors.As(err, &coded) {
			*bad = *coded
		}
		bad.Message = fmt.Sprintf("module %q: %s", decl.Name, bad.Message)
		return nil, "", bad
	}
	digest = digestOf(wasm)
	if decl.SHA256 != "" && decl.SHA256 != digest {
		return nil, "", &abi.Error{
			Code:    CodeModulePin,
			Message: fmt.Sprintf("module %q: %s is not the file that sha256 pins; its digest is %s", decl.Name, decl.Path, digest),
			Fix:     "put the pinned file back, or, if the change is meant, pin " + digest,
		}
	}
	return wasm, digest, nil
}

// modulesDir is where copies of m's modules are kept.
func modulesDir(m *manifest.Manifest) string { return filepath.Join(m.Runner.DataDir, "modules") }

// again is the guest of the load before, if it was loaded from the same bytes
// under the same grants.
func (l *loading) again(name, digest string) abi.Guest {
	if l.p.Before == nil {
		return nil
	}
	g, before := l.p.Before.Guests[name], l.p.Before.Manifest.Modules[name]
	now := l.m.Modules[name]
	if g == nil || g.Digest() != digest || before.Memory != now.Memory || !reflect.DeepEqual(before.Allow, now.Allow) {
		return nil
	}
	return g
}

// refused turns what a host says of a module into problems, one for each that
// it names.
func (l *loading) refused(name, path string, err error) {
	for _, one := range flat(err) {
		e := refusal(name, path, one)
		l.problem(e.Code, e.Message, e.Fix, "modules", name, "path")
	}
}

// refusal is one thing that a host says of a module.
func refusal(name, path string, err error) *abi.Error {
	e := &abi.Error{Code: CodeModuleRefused, Message: err.Error()}
	var coded *abi.Error
	if errors.As(err, &coded) {
		e.Code, e.Message, e.Fix = coded.Code, coded.Message, coded.Fix
	}
	e.Message = fmt.Sprintf("module %q (%s): %s", name, path, e.Message)
	return e
}

// flat is the errors that err joins, or err alone.
func flat(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var all []error
		for _, e := range joined.Unwrap() {
			all = append(all, flat(e)...)
		}
		return all
	}
	return []error{err}
}

// handlers checks that each job's handler is in its module.
func (l *loading) handlers() {
	for _, name := range slices.Sorted(maps.Keys(l.m.Jobs)) {
		j := l.m.Jobs[name]
		guest, ok := l.out.Guests[j.Module]
		if !ok {
			continue // the module's own problem has been said
		}
		if bad := checkHandler(j, guest); bad != nil {
			l.problem(bad.Code, bad.Message, bad.Fix, "jobs", name, "handler")
		}
	}
}

// checkHandler refuses a guest without the handler of j: X_HANDLER_UNKNOWN.
func checkHandler(j *manifest.Job, guest abi.Guest) *abi.Error {
	var known []string
	for _, h := range guest.Describe().Handlers {
		known = append(known, h.Name)
	}
	if slices.Contains(known, j.Handler) {
		return nil
	}
	fix := "register a handler of that name in the module and build it again"
	if len(known) > 0 {
		fix = "set handler to one of: " + strings.Join(known, ", ")
	}
	return &abi.Error{Code: CodeHandlerUnknown, Message: fmt.Sprintf("job %q: module %q has no handler %q", j.Name, j.Module, j.Handler), Fix: fix}
}

// discard closes the guests that were loaded in vain.
func (l *loading) discard() {
	if l.p.Close == nil {
		return
	}
	for _, g := range l.out.fresh {
		l.p.Close(g)
	}
}

// plain is err without the path that the message around it names already.
func plain(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}

// Close closes the guests of l that the load before did not have. For a Loaded
// that nothing serves.
func (l *Loaded) Close(closeGuest func(abi.Guest)) {
	for _, g := range l.fresh {
		closeGuest(g)
	}
}
