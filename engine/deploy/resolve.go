package deploy

import (
	"context"
	"fmt"
	"reflect"
	"slices"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/manifest"
)

// Lease is the right to run attempts of one job on one guest until Release.
type Lease struct {
	Job    *manifest.Job
	Guest  abi.Guest
	Digest string

	registry *Registry
	held     *opened
}

// Resolve finds what serves a run of jobName that is pinned to digest ("" if it
// has not started). It may wait for a module to load; ctx ends the wait, not
// the load.
// Errors: X_JOB_UNKNOWN when the current manifest has no such job,
// X_MODULE_MISSING when the digest is not to be had or lacks the handler.
// Either may be true of this process only, in the middle of a deploy: the
// caller lets the run wait and looks again later.
func (r *Registry) Resolve(ctx context.Context, jobName, digest string) (Lease, error) {
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return Lease{}, errClosed()
	}
	j, ok := r.current.Manifest.Jobs[jobName]
	if !ok {
		r.mu.Unlock()
		return Lease{}, &abi.Error{
			Code:    job.CodeUnknownJob,
			Message: fmt.Sprintf("job %q is not declared in the manifest that this process serves", jobName),
			Fix:     "deploy the manifest that declares it, or cancel the run",
		}
	}
	if o := r.serving[j.Module]; digest == "" || j.OnDeploy == manifest.Latest || digest == o.key.digest {
		o.refs++
		r.mu.Unlock()
		return Lease{Job: j, Guest: o.guest, Digest: o.key.digest, registry: r, held: o}, nil
	}
	o := r.older(key{j.Module, digest}, r.current.Manifest.Modules[j.Module])
	r.mu.Unlock()

	if err := o.wait(ctx); err != nil {
		r.release(o)
		return Lease{}, &abi.Error{
			Code: job.CodeModuleMissing,
			Message: fmt.Sprintf("the run is pinned to module %q at %.12s, which could not be loaded: %v",
				j.Module, digest, err),
			Fix: "put the module's file back, or set on_deploy = \"latest\" for the job",
			Err: err,
		}
	}
	if !o.handlers[j.Handler] {
		r.release(o)
		return Lease{}, noHandler(j, digest)
	}
	return Lease{Job: j, Guest: o.guest, Digest: digest, registry: r, held: o}, nil
}

// older holds the guest of k, starting to load it unless it is open under the
// same grants. With mu held.
func (r *Registry) older(k key, decl manifest.Module) *opened {
	if o, ok := r.open[k]; ok && sameGrants(o.decl, decl) {
		o.refs++
		if i := slices.Index(r.unused, o); i >= 0 {
			r.unused = slices.Delete(r.unused, i, i+1)
		}
		return o
	}
	o := &opened{key: k, decl: decl, refs: 1, ready: make(chan struct{})}
	r.open[k] = o
	go r.load(o)
	return o
}

// sameGrants reports whether a guest loaded under a may serve b: a grant that
// was taken away must not live on in an older module.
func sameGrants(a, b manifest.Module) bool {
	return a.Memory == b.Memory && reflect.DeepEqual(a.Allow, b.Allow)
}

// load fills o in.
func (r *Registry) load(o *opened) {
	g, err := r.callLoader(o)

	r.mu.Lock()
	if err != nil {
		o.err = err
		if r.open[o.key] == o {
			delete(r.open, o.key)
		}
	} else {
		o.set(g)
		if o.refs == 0 { // everyone who waited has left
			r.retire(o)
		}
	}
	close(o.ready)
	closing := r.trim()
	r.mu.Unlock()
	r.close(closing)
}

// callLoader calls the loader without trusting it.
func (r *Registry) callLoader(o *opened) (g abi.Guest, err error) {
	if r.cfg.Loader == nil {
		return nil, fmt.Errorf("this process has no older modules")
	}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic while loading: %v", p)
		}
	}()
	g, err = r.cfg.Loader(context.Background(), o.decl, o.key.digest)
	if err != nil {
		return nil, err
	}
	if got := g.Digest(); got != o.key.digest {
		if r.cfg.Close != nil {
			r.cfg.Close(g)
		}
		return nil, fmt.Errorf("its file has digest %.12s", got)
	}
	return g, nil
}

// wait waits until o is loaded.
func (o *opened) wait(ctx context.Context) error {
	if o.ready == nil {
		return nil
	}
	select {
	case <-o.ready:
		return o.err
	default:
	}
	select {
	case <-o.ready:
		return o.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Release gives the guest back. Call it once.
func (l Lease) Release() {
	if l.registry != nil {
		l.registry.release(l.held)
	}
}

func (r *Registry) release(o *opened) {
	r.mu.Lock()
	o.refs--
	r.retire(o)
	var closing []*opened
	if !o.deployed {
		closing = r.trim()
	}
	r.mu.Unlock()
	r.close(closing)
}
