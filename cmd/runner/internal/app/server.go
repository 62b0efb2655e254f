package app

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine"
	"github.com/jobrunner/runner/engine/manifest"
	"github.com/jobrunner/runner/engine/schedule"
	"github.com/jobrunner/runner/engine/store"
	"github.com/jobrunner/runner/engine/store/sqlite"
	"github.com/jobrunner/runner/engine/trace"
)

// ServerConfig is fixed at Start.
type ServerConfig struct {
	Manifest string // path
	// Database overrides the manifest's and the environment's; see FindDatabase.
	Database string
	Getenv   func(string) string
	// Roles are what the process does; nil is all of Roles. It relays only where
	// Outbox names something to relay from.
	Roles []Role
	// Outbox is the database that an application stages runs in, for the role
	// relay; "" is none.
	Outbox string
	// Listen is the admin address; "" serves none.
	Listen string
	// Drain is how long attempts may finish when the process is told to stop; 0
	// is the manifest's.
	Drain  time.Duration
	Logger *slog.Logger
}

// Server is a process that works the queue. Reload, Drain and Stop may be called
// from any goroutine.
type Server struct {
	cfg      ServerConfig
	database Database
	tracing  *tracing     // nil if nobody asked for traces
	unlock   func() error // of the embedded database's runs; nil with one that is shared, and without the role worker
	host     *Host        // nil without the role worker, as is the engine
	store    store.Store
	engine   *engine.Engine
	client   *engine.Client
	admin    *admin
	relay    *relay // nil without the role relay, or without an outbox

	scheduler *schedule.Scheduler // nil without the role scheduler

	background  sync.WaitGroup
	stopTidying context.CancelFunc // nil until it has begun

	draining atomic.Bool
	current  atomic.Pointer[manifest.Manifest] // of a process that serves no modules

	mu        sync.Mutex // one reload at a time; guards all below
	loaded    *Loaded
	attempted []string // files of a reload that was refused
}

// StartServer loads the manifest, takes the database, loads the modules and
// begins to work the queue. The database comes before the modules, whose first
// compilation takes seconds: runs can be enqueued meanwhile, and a second server
// is refused at once. Nothing is claimed before everything is checked.
//
// Errors: a *manifest.Report; those of FindDatabase and of opening a store;
// X_DATABASE_BUSY when another process serves the database; X_LISTEN_FAILED.
func StartServer(ctx context.Context, cfg ServerConfig) (s *Server, err error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Roles == nil {
		cfg.Roles = Roles
	}
	s = &Server{cfg: cfg}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
			s = nil
		}
	}()
	m, report := manifest.Load(cfg.Manifest)
	if report != nil {
		return s, report
	}
	if s.database, err = FindDatabase(DatabaseParams{Flag: cfg.Database, Env: cfg.Getenv(EnvDatabase), Manifest: m}); err != nil {
		return s, err
	}
	if err = s.database.checkFolder(); err != nil {
		return s, err
	}
	if !s.database.Shared() && s.has(RoleWorker) {
		if s.unlock, err = sqlite.LockServe(s.database.Path); err != nil {
			return s, err
		}
	}
	if s.store, err = OpenStore(ctx, StoreParams{Database: s.database, Create: true, Logger: cfg.Logger}); err != nil {
		return s, err
	}
	if s.has(RoleWorker) {
		if s.host, err = NewHost(ctx, HostParams{Getenv: cfg.Getenv, CacheDir: CacheDir(m), CPUSlots: m.Runner.CPUSlots, Logger: cfg.Logger}); err != nil {
			return s, err
		}
	}
	if s.loaded, err = s.load(ctx, nil); err != nil {
		return s, err
	}
	s.current.Store(s.loaded.Manifest)
	registry := prometheus.NewRegistry()
	if s.tracing, err = newTracing(ctx, cfg.Getenv, &seldom{log: cfg.Logger}); err != nil {
		return s, err
	}
	if err = s.newEngine(registry); err != nil {
		return s, err
	}
	if s.has(RoleScheduler) {
		if err = s.newScheduler(s.counted(registry)); err != nil {
			return s, err
		}
	}
	if cfg.Outbox != "" && s.has(RoleRelay) {
		if s.relay, err = openRelay(ctx, relayParams{URL: cfg.Outbox, Client: s.client, Registry: registry, Logger: cfg.Logger, Tracer: s.tracer()}); err != nil {
			return s, err
		}
	}
	if cfg.Listen != "" {
		if err = registerProcess(registry); err != nil {
			return s, err
		}
		if s.host != nil {
			if err = registerHost(registry, s.host); err != nil {
				return s, err
			}
		}
		if s.admin, err = startAdmin(adminParams{Addr: cfg.Listen, Gather: registry, Ready: s.notReady, Logger: cfg.Logger}); err != nil {
			return s, err
		}
	}
	if s.engine != nil {
		if err = s.engine.Start(ctx); err != nil {
			return s, err
		}
	}
	if s.scheduler != nil {
		if err = s.scheduler.Start(); err != nil {
			return s, err
		}
	}
	if s.relay != nil {
		if err = s.relay.relay.Start(); err != nil {
			return s, err
		}
	}
	if s.engine != nil {
		var tidying context.Context
		tidying, s.stopTidying = context.WithCancel(context.Background())
		s.background.Go(func() { s.tidyDaily(tidying) })
	}
	s.logStart()
	return s, nil
}

// has reports whether the process has a role.
func (s *Server) has(r Role) bool { return slices.Contains(s.cfg.Roles, r) }

func (s *Server) load(ctx context.Context, before *Loaded) (*Loaded, error) {
	p := LoadParams{Path: s.cfg.Manifest, Before: before}
	if s.host != nil {
		p.Loader, p.Close, p.Keep = s.host.Load, s.host.CloseGuest, true
	}
	return Load(ctx, p)
}

// counted is registry, or nil where nobody can look: gauges cost queries.
func (s *Server) counted(registry *prometheus.Registry) prometheus.Registerer {
	if s.cfg.Listen == "" {
		return nil
	}
	return registry
}

// tracer is nil if the environment asks for no traces.
func (s *Server) tracer() trace.Tracer {
	if s.tracing == nil {
		return nil
	}
	return s.tracing
}

// newEngine makes the engine of a worker, and otherwise only a client, which
// knows the manifest as it is now.
func (s *Server) newEngine(registry *prometheus.Registry) (err error) {
	if !s.has(RoleWorker) {
		s.client, err = engine.NewClient(engine.ClientConfig{Store: s.store, Current: s.Manifest, Logger: s.cfg.Logger, Tracer: s.tracer()})
		return err
	}
	s.engine, err = engine.New(engine.Config{
		Tracer:     s.tracer(),
		Store:      s.store,
		Deployment: s.loaded.Deployment(),
		Loader:     s.older,
		CloseGuest: s.host.CloseGuest,
		Logger:     s.cfg.Logger,
		Registerer: s.counted(registry),
		Drain:      s.cfg.Drain,
		Alone:      s.unlock != nil, // the lock says so

		NoSchedules: true, // they are a role of their own
	})
	if err == nil {
		s.client = s.engine.Client()
	}
	return err
}

// older loads a module that runs are pinned to from the copies kept of it.
func (s *Server) older(ctx context.Context, m manifest.Module, digest string) (abi.Guest, error) {
	wasm, err := copies{dir: modulesDir(s.Manifest())}.get(digest)
	if err != nil {
		return nil, err
	}
	return s.host.Load(ctx, m, wasm)
}

// Deployment is what an engine serves of l.
func (l *Loaded) Deployment() engine.Deployment {
	return engine.Deployment{Manifest: l.Manifest, Guests: l.Guests}
}

// Manifest is the current one.
func (s *Server) Manifest() *manifest.Manifest {
	if s.engine == nil {
		return s.current.Load()
	}
	return s.engine.Deployment().Manifest
}

// Client enqueues and operates in this process.
func (s *Server) Client() *engine.Client { return s.client }

// Addr is where the admin server listens; "" without one.
func (s *Server) Addr() string {
	if s.admin == nil {
		return ""
	}
	return s.admin.addr()
}

// notReady are the reasons why the process should get no traffic.
func (s *Server) notReady(ctx context.Context) []string {
	var reasons []string
	if s.draining.Load() {
		reasons = append(reasons, "draining")
	}
	if _, err := s.store.Now(ctx); err != nil {
		reasons = append(reasons, "the database does not answer: "+cmp.Or(abi.CodeOf(err), err.Error()))
	}
	if s.engine == nil || len(reasons) > 0 {
		return reasons
	}
	// A database may answer and take nothing, for want of space.
	if err := s.engine.Trouble(); err != nil {
		reasons = append(reasons, "the database takes no writes: "+cmp.Or(abi.CodeOf(err), err.Error()))
	}
	// Without a lease it claims nothing, although everything else may be well: it
	// lost the one it had and has not registered anew, or it is only starting.
	if !s.engine.Leased() {
		reasons = append(reasons, "the worker holds no lease")
	}
	return reasons
}

func (s *Server) logStart() {
	m := s.loaded.Manifest
	for _, name := range slices.Sorted(maps.Keys(s.loaded.Guests)) {
		s.cfg.Logger.Info("serve.module", "module", name, "sha256", s.loaded.Guests[name].Digest(), "bytes", s.loaded.Sizes[name])
	}
	s.cfg.Logger.Info("serve.started",
		"pid", os.Getpid(), "database", s.database.String(), "manifest", m.Path, "manifest_sha256", m.Digest,
		"jobs", len(m.Jobs), "schedules", len(m.Schedules), "modules", len(s.loaded.Guests), "roles", s.cfg.Roles, "admin", s.Addr())
	if s.relay != nil {
		s.cfg.Logger.Info("serve.relaying", "outbox", s.relay.database.String())
	}
}

// Drain stops claiming, lets attempts finish as long as the budget allows, and
// closes everything. Stop from another goroutine cuts it short.
func (s *Server) Drain(ctx context.Context) error {
	s.draining.Store(true)
	s.cfg.Logger.Info("serve.draining", "fix", "a second signal stops at once")
	if s.scheduler != nil {
		s.scheduler.Quiesce() // so that another process leads while attempts finish here
	}
	if s.relay != nil {
		s.relay.relay.Quiesce() // at once; close waits for its batch
	}
	var err error
	if s.engine != nil {
		err = s.engine.Drain(ctx)
	}
	err = errors.Join(err, s.close())
	if err == nil {
		s.cfg.Logger.Info("serve.stopped")
	}
	return err
}

// Stop aborts what runs, uncounted, and makes a Drain under way return. It
// closes nothing by itself.
func (s *Server) Stop() error {
	s.draining.Store(true)
	if s.engine == nil {
		return nil // the other roles stop within their own patience
	}
	return s.engine.Stop()
}

// closePatience bounds the wait for guests that ignore that they were stopped.
const closePatience = 5 * time.Second

// close closes what was opened, in the reverse order.
func (s *Server) close() error {
	var errs []error
	if s.stopTidying != nil {
		s.stopTidying()
		s.background.Wait()
	}
	if s.relay != nil {
		errs = append(errs, s.relay.close())
	}
	if s.scheduler != nil {
		errs = append(errs, s.stopScheduler())
	}
	if s.engine != nil {
		errs = append(errs, s.engine.Close())
	} else if s.loaded != nil && s.host != nil {
		s.loaded.Close(s.host.CloseGuest)
	}
	if s.tracing != nil {
		s.tracing.close(s.cfg.Logger)
	}
	if s.store != nil {
		errs = append(errs, s.store.Close())
	}
	if s.host != nil {
		ctx, cancel := context.WithTimeout(context.Background(), closePatience)
		defer cancel()
		if err := s.host.Close(ctx); err != nil {
			s.cfg.Logger.Warn("serve.host-abandoned", "error", err)
		}
	}
	if s.admin != nil {
		s.admin.close()
	}
	if s.unlock != nil {
		errs = append(errs, s.unlock())
	}
	return errors.Join(errs...)
}
