package deploy_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/deploy"
	"github.com/jobrunner/runner/engine/internal/enginetest"
	"github.com/jobrunner/runner/engine/internal/leaktest"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/manifest"
)

func TestMain(m *testing.M) { os.Exit(leaktest.Main(m)) }

func guest(name string) *enginetest.Guest {
	return &enginetest.Guest{Name: name, Handlers: map[string]enginetest.Handler{"job": nil}}
}

// rig is a registry that knows what it loaded and closed, by guest name.
type rig struct {
	*testing.T
	*deploy.Registry
	mu     sync.Mutex
	disk   map[string]*enginetest.Guest // by digest
	loads  []string
	closed []string
	gate   chan struct{} // a load waits for it; nil does not
}

func newRig(t *testing.T, keep int, first *enginetest.Guest, change func(*manifest.Manifest)) *rig {
	t.Helper()
	r := &rig{T: t, disk: map[string]*enginetest.Guest{}}
	var err error
	r.Registry, err = deploy.New(deploy.Config{
		Keep: keep,
		Loader: func(_ context.Context, m manifest.Module, digest string) (abi.Guest, error) {
			if r.gate != nil {
				<-r.gate
			}
			r.mu.Lock()
			defer r.mu.Unlock()
			g, ok := r.disk[digest]
			if !ok {
				return nil, errors.New("no such file")
			}
			r.loads = append(r.loads, g.Name)
			return g, nil
		},
		Close: func(g abi.Guest) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.closed = append(r.closed, g.(*enginetest.Guest).Name)
		},
	}, enginetest.Serve(first, change))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *rig) put(g *enginetest.Guest) string {
	r.disk[g.Digest()] = g
	return g.Digest()
}

func (r *rig) resolve(digest string) deploy.Lease {
	r.Helper()
	l, err := r.Resolve(r.Context(), "job", digest)
	if err != nil {
		r.Fatal(err)
	}
	return l
}

func (r *rig) to(g *enginetest.Guest, change func(*manifest.Manifest)) {
	r.Helper()
	if _, err := r.Switch(enginetest.Serve(g, change)); err != nil {
		r.Fatal(err)
	}
}

func (r *rig) isClosed(want ...string) {
	r.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Equal(r.closed, want) {
		r.Errorf("closed %v, want %v", r.closed, want)
	}
}

func TestANewRunStartsOnWhatIsDeployedNow(t *testing.T) {
	v1, v2 := guest("v1"), guest("v2")
	r := newRig(t, 1, v1, nil)
	if l := r.resolve(""); l.Guest != abi.Guest(v1) || l.Digest != v1.Digest() || l.Job.Name != "job" {
		t.Errorf("resolved %+v", l)
	}
	before, err := r.Switch(enginetest.Serve(v2, nil))
	if err != nil || before.Guests["m"] != abi.Guest(v1) {
		t.Errorf("the switch answers %+v, %v", before, err)
	}
	if l := r.resolve(""); l.Guest != abi.Guest(v2) {
		t.Errorf("resolved %s", l.Guest.(*enginetest.Guest).Name)
	}
}

func TestAStartedRunGoesOnWhereItStarted(t *testing.T) {
	v1, v2 := guest("v1"), guest("v2")
	r := newRig(t, 1, v1, nil)
	r.to(v2, nil)
	l := r.resolve(v1.Digest())
	if l.Guest != abi.Guest(v1) || len(r.loads) != 0 {
		t.Errorf("resolved %v after %d loads, want the one still open", l.Guest, len(r.loads))
	}
	l.Release()
}

func TestOnDeployLatestIgnoresThePin(t *testing.T) {
	v1, v2 := guest("v1"), guest("v2")
	latest := func(m *manifest.Manifest) { m.Jobs["job"].OnDeploy = manifest.Latest }
	r := newRig(t, 1, v1, latest)
	r.to(v2, latest)
	if l := r.resolve(v1.Digest()); l.Guest != abi.Guest(v2) {
		t.Errorf("resolved %v", l.Guest)
	}
}

func TestAnAttemptKeepsItsGuestOpen(t *testing.T) {
	r := newRig(t, -1, guest("v1"), nil) // keeps nothing unused
	l := r.resolve("")
	r.to(guest("v2"), nil)
	r.isClosed()
	l.Release()
	r.isClosed("v1")
}

func TestAnUnusedGuestIsClosedByTheSwitch(t *testing.T) {
	r := newRig(t, -1, guest("v1"), nil)
	r.to(guest("v2"), nil)
	r.isClosed("v1")
}

func TestAGuestThatBothDeploymentsShareStaysOpen(t *testing.T) {
	v1 := guest("v1")
	r := newRig(t, -1, v1, nil)
	r.to(v1, func(m *manifest.Manifest) { m.Digest = "other" })
	r.isClosed()
	if l := r.resolve(""); l.Guest != abi.Guest(v1) {
		t.Error("the shared guest is not served")
	}
	r.to(guest("v2"), nil)
	r.isClosed() // still held by the lease
}

func TestOnlyTheLatestUnusedGuestsAreKept(t *testing.T) {
	r := newRig(t, 2, guest("v1"), nil)
	for _, v := range []string{"v2", "v3", "v4", "v5"} {
		r.to(guest(v), nil)
	}
	r.isClosed("v1", "v2")
	l := r.resolve(guest("v3").Digest()) // used now, so v4 is the longest unused
	l.Release()
	r.to(guest("v6"), nil)
	r.isClosed("v1", "v2", "v4")
}

func TestAnOlderModuleIsLoadedOnceForAllWhoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1, guest("v9"), nil)
		digest := r.put(guest("v1"))
		r.gate = make(chan struct{})
		leases := make(chan deploy.Lease)
		for range 5 {
			go func() {
				l, err := r.Resolve(t.Context(), "job", digest)
				if err != nil {
					t.Error(err)
				}
				leases <- l
			}()
		}
		impatient, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := r.Resolve(impatient, "job", digest); abi.CodeOf(err) != job.CodeModuleMissing || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("who does not wait is told %v", err)
		}
		close(r.gate)
		for range 5 {
			l := <-leases
			if l.Digest != digest {
				t.Errorf("resolved %s", l.Digest)
			}
			l.Release()
		}
		if len(r.loads) != 1 {
			t.Errorf("%d loads", len(r.loads))
		}
		r.isClosed() // kept for the next
	})
}

func TestALoadThatEveryoneGaveUpOnLeavesAnUnusedGuest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, -1, guest("v9"), nil)
		digest := r.put(guest("v1"))
		r.gate = make(chan struct{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := r.Resolve(ctx, "job", digest); err == nil {
			t.Error("resolved before it was loaded")
		}
		close(r.gate)
		synctest.Wait()
		r.isClosed("v1")
	})
}

func TestADigestThatIsNotToBeHadSaysWhyAndIsAskedForAgain(t *testing.T) {
	r := newRig(t, 1, guest("v2"), nil)
	v1 := guest("v1")
	_, err := r.Resolve(t.Context(), "job", v1.Digest())
	if abi.CodeOf(err) != job.CodeModuleMissing || !strings.Contains(err.Error(), "no such file") || !strings.Contains(err.Error(), v1.Digest()[:12]) {
		t.Errorf("error is %v", err)
	}
	r.put(v1)
	r.resolve(v1.Digest()).Release()
}

func TestAFileOfAnotherDigestIsRefused(t *testing.T) {
	r := newRig(t, 1, guest("v2"), nil)
	r.disk[guest("v1").Digest()] = guest("tampered")
	if _, err := r.Resolve(t.Context(), "job", guest("v1").Digest()); abi.CodeOf(err) != job.CodeModuleMissing {
		t.Errorf("error is %v", err)
	}
	r.isClosed("tampered")
}

func TestALoaderThatPanicsIsAnError(t *testing.T) {
	r, err := deploy.New(deploy.Config{Loader: func(context.Context, manifest.Module, string) (abi.Guest, error) {
		panic("corrupt cache")
	}}, enginetest.Serve(guest("v2"), nil))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Resolve(t.Context(), "job", "ab"); abi.CodeOf(err) != job.CodeModuleMissing || !strings.Contains(err.Error(), "corrupt cache") {
		t.Errorf("error is %v", err)
	}
}

func TestATakenGrantIsTakenFromOlderModulesToo(t *testing.T) {
	v1 := guest("v1")
	grant := func(m *manifest.Manifest) {
		m.Modules["m"] = manifest.Module{Name: "m", Allow: manifest.Allow{HTTP: []string{"https://a/*"}}}
	}
	r := newRig(t, 4, v1, grant)
	r.put(v1)
	r.to(guest("v2"), grant)
	r.resolve(v1.Digest()).Release()
	if len(r.loads) != 0 {
		t.Errorf("%d loads under the same grants", len(r.loads))
	}
	r.to(guest("v3"), nil)
	r.resolve(v1.Digest()).Release()
	if len(r.loads) != 1 {
		t.Errorf("%d loads after a grant was taken away; the older guest still has it", len(r.loads))
	}
	r.isClosed("v1") // the one with the grant
}

func TestAJobThatNobodyDeclaresIsUnknown(t *testing.T) {
	r := newRig(t, 1, guest("v1"), nil)
	_, err := r.Resolve(t.Context(), "nobody", "")
	if abi.CodeOf(err) != job.CodeUnknownJob {
		t.Errorf("error is %v", err)
	}
}

func TestADeploymentThatCannotServeItsJobsIsRefusedWhole(t *testing.T) {
	v1 := guest("v1")
	r := newRig(t, 1, v1, nil)
	for name, d := range map[string]deploy.Deployment{
		"no module": func() deploy.Deployment {
			d := enginetest.Serve(guest("v2"), nil)
			d.Guests = nil
			return d
		}(),
		"no handler": enginetest.Serve(guest("v2"), func(m *manifest.Manifest) { m.Jobs["job"].Handler = "renamed" }),
	} {
		if _, err := r.Switch(d); abi.CodeOf(err) != job.CodeModuleMissing {
			t.Errorf("%s: error is %v", name, err)
		}
	}
	if l := r.resolve(""); l.Guest != abi.Guest(v1) {
		t.Error("a refused switch changed what is served")
	}
}

func TestAnOlderModuleWithoutTheHandlerIsMissing(t *testing.T) {
	old := &enginetest.Guest{Name: "old", Handlers: map[string]enginetest.Handler{"other": nil}}
	r := newRig(t, 1, guest("v2"), nil)
	r.put(old)
	if _, err := r.Resolve(t.Context(), "job", old.Digest()); abi.CodeOf(err) != job.CodeModuleMissing || !strings.Contains(err.Error(), "handler") {
		t.Errorf("error is %v", err)
	}
}

func TestCloseClosesWhatNobodyHoldsAndTheRestLater(t *testing.T) {
	r := newRig(t, 4, guest("v1"), nil)
	r.to(guest("v2"), nil)
	l := r.resolve("")
	r.Close()
	r.isClosed("v1")
	l.Release()
	r.isClosed("v1", "v2")
	if _, err := r.Resolve(t.Context(), "job", ""); err == nil {
		t.Error("resolved after Close")
	}
}

func TestASwitchAfterCloseIsRefusedAndKeepsNoGuest(t *testing.T) {
	r := newRig(t, 4, guest("v1"), nil)
	r.Close()
	if _, err := r.Switch(enginetest.Serve(guest("v2"), nil)); abi.CodeOf(err) != job.CodeModuleMissing {
		t.Errorf("error is %v", err)
	}
	r.isClosed("v1") // v2 is the caller's
	if _, err := r.Resolve(t.Context(), "job", ""); err == nil {
		t.Error("resolved after Close")
	}
}
