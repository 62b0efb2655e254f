package deploy

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/manifest"
)

// Deployment is one manifest and what serves it. Guests has a guest of its own
// for each module that a job of the manifest names.
type Deployment struct {
	Manifest *manifest.Manifest
	Guests   map[string]abi.Guest // by module name
}

// Loader finds a module that is not deployed any more. It is called for one
// (module, digest) at a time, without locks held, and may take seconds. Its
// error reaches the operator as the reason why a run waits.
type Loader func(ctx context.Context, module manifest.Module, digest string) (abi.Guest, error)

// Config is fixed at New.
type Config struct {
	// Loader is asked for digests that are not open. Nil: only deployments of
	// this process's lifetime can be resumed.
	Loader Loader
	// Close ends a guest that nothing uses or will find again. Nil does nothing.
	Close func(abi.Guest)
	// Keep is how many unused older guests stay open. Default 4; -1 keeps none.
	// Each holds its compiled code, which for a Go module is tens of megabytes.
	Keep int
}

// Registry is safe for concurrent use.
type Registry struct {
	cfg Config

	mu      sync.Mutex // guards all below, and every opened's refs and deployed
	current Deployment
	serving map[string]*opened // by module, of the current deployment
	open    map[key]*opened    // the newest guest of a key, deployed or not
	unused  []*opened          // refs 0 and not deployed; longest unused first
	closed  bool
}

// key is what a pinned run asks for.
type key struct{ module, digest string }

// opened is one guest and who holds it.
type opened struct {
	key      key
	decl     manifest.Module // what it was loaded under
	guest    abi.Guest
	handlers map[string]bool
	refs     int
	deployed bool
	ready    chan struct{} // closed once guest or err is set; nil if it never had to be loaded
	err      error
}

// New returns a registry that serves first.
// Errors: X_MODULE_MISSING for a job that first's guests cannot serve.
func New(cfg Config, first Deployment) (*Registry, error) {
	if cfg.Keep == 0 {
		cfg.Keep = 4
	}
	r := &Registry{cfg: cfg, open: map[key]*opened{}}
	if _, err := r.Switch(first); err != nil {
		return nil, err
	}
	return r, nil
}

// Manifest is the current one.
func (r *Registry) Manifest() *manifest.Manifest {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.current.Manifest
}

// Current is the deployment that new runs start on.
func (r *Registry) Current() Deployment {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.current
}

// Switch makes next the current deployment at once and answers the one before.
// Attempts under way go on with the guest they have. A guest that both
// deployments share is not closed.
// Errors: X_MODULE_MISSING for a job that next's guests cannot serve, and after
// Close; nothing has changed then, and next's guests are still the caller's.
func (r *Registry) Switch(next Deployment) (Deployment, error) {
	if err := check(next); err != nil {
		return Deployment{}, err
	}
	entries := make([]*opened, 0, len(next.Guests))
	for _, name := range slices.Sorted(maps.Keys(next.Guests)) {
		entries = append(entries, newOpened(next.Manifest.Modules[name], name, next.Guests[name]))
	}

	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return Deployment{}, errClosed()
	}
	before := r.current
	old := r.deployed()
	r.current = next
	r.serving = make(map[string]*opened, len(entries))
	for _, o := range old {
		o.deployed = false
	}
	for _, e := range entries {
		if have := sameGuest(old, e); have != nil {
			have.decl = e.decl
			e = have
		}
		e.deployed = true
		r.open[e.key] = e
		r.serving[e.key.module] = e
	}
	for _, o := range old {
		r.retire(o)
	}
	closing := r.trim()
	r.mu.Unlock()

	r.close(closing)
	return before, nil
}

func errClosed() error {
	return &abi.Error{Code: job.CodeModuleMissing, Message: "no module is served any more: this process is stopping"}
}

// check reports the first job that d cannot serve.
func check(d Deployment) error {
	for _, name := range slices.Sorted(maps.Keys(d.Manifest.Jobs)) {
		j := d.Manifest.Jobs[name]
		g, ok := d.Guests[j.Module]
		if !ok {
			return &abi.Error{
				Code:    job.CodeModuleMissing,
				Message: fmt.Sprintf("job %q names module %q, which is not loaded", name, j.Module),
				Fix:     "declare it under [modules] and build its file",
			}
		}
		if !serves(g, j.Handler) {
			return noHandler(j, g.Digest())
		}
	}
	return nil
}

func serves(g abi.Guest, handler string) bool {
	return slices.ContainsFunc(g.Describe().Handlers, func(h abi.Handler) bool { return h.Name == handler })
}

func noHandler(j *manifest.Job, digest string) error {
	return &abi.Error{
		Code:    job.CodeModuleMissing,
		Message: fmt.Sprintf("module %q (%.12s) has no handler %q, which job %q names", j.Module, digest, j.Handler, j.Name),
		Fix:     "register the handler in the module, or set handler = … for the job",
	}
}

func newOpened(decl manifest.Module, module string, g abi.Guest) *opened {
	o := &opened{key: key{module, g.Digest()}, decl: decl}
	o.set(g)
	return o
}

func (o *opened) set(g abi.Guest) {
	o.guest = g
	o.handlers = map[string]bool{}
	for _, h := range g.Describe().Handlers {
		o.handlers[h.Name] = true
	}
}

func (r *Registry) deployed() []*opened {
	var out []*opened
	for _, o := range r.open {
		if o.deployed {
			out = append(out, o)
		}
	}
	return out
}

// sameGuest finds the entry of e's guest, so that a module which did not change
// between two deployments stays open.
func sameGuest(among []*opened, e *opened) *opened {
	for _, o := range among {
		if o.key == e.key && o.guest == e.guest {
			return o
		}
	}
	return nil
}

// retire puts o among the unused if nothing holds it. With mu held.
func (r *Registry) retire(o *opened) {
	if o.deployed || o.refs > 0 || o.guest == nil || slices.Contains(r.unused, o) {
		return
	}
	r.unused = append(r.unused, o)
}

// trim takes out what must be closed: unused guests beyond Keep, and those that
// a newer guest of their key has replaced, which no run will find. With mu held.
func (r *Registry) trim() []*opened {
	keep := max(r.cfg.Keep, 0)
	if r.closed {
		keep = 0
	}
	var closing []*opened
	r.unused = slices.DeleteFunc(r.unused, func(o *opened) bool {
		if r.open[o.key] == o {
			return false
		}
		closing = append(closing, o)
		return true
	})
	if n := len(r.unused) - keep; n > 0 {
		for _, o := range r.unused[:n] {
			delete(r.open, o.key)
			closing = append(closing, o)
		}
		r.unused = slices.Delete(r.unused, 0, n)
	}
	return closing
}

func (r *Registry) close(closing []*opened) {
	if r.cfg.Close == nil {
		return
	}
	for _, o := range closing {
		r.cfg.Close(o.guest)
	}
}

// Close closes the guests that no attempt holds, those of the current
// deployment included; the rest follow as their attempts end. Resolve fails
// afterwards.
func (r *Registry) Close() {
	r.mu.Lock()
	r.closed = true
	for _, o := range r.deployed() {
		o.deployed = false
		r.retire(o)
	}
	closing := r.trim()
	r.mu.Unlock()
	r.close(closing)
}
