package engine

import (
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/deploy"
	"github.com/jobrunner/runner/engine/store"
	"github.com/jobrunner/runner/engine/trace"
)

// Deployment is one manifest and a loaded guest for each of its modules.
type Deployment = deploy.Deployment

// Loader finds the guest of a digest that is not deployed any more.
type Loader = deploy.Loader

// Config is fixed at New.
type Config struct {
	// Store is used until Stop or Drain has returned, and closed by whoever
	// opened it.
	Store store.Store
	// Deployment is served first.
	Deployment Deployment
	// Loader finds older modules for runs that are pinned to them. Nil: such
	// runs wait, and say why, unless this process has served their module.
	Loader Loader
	// CloseGuest ends a guest that nothing uses any more. Nil does nothing.
	CloseGuest func(abi.Guest)

	Logger     *slog.Logger          // default discards
	Registerer prometheus.Registerer // nil records no metrics
	Tracer     trace.Tracer          // nil makes no spans

	// Lease is how long runs stay this process's without a renewal. 0 takes the
	// manifest's.
	Lease time.Duration
	// Drain is how long Drain lets attempts finish, if its context allows. 0
	// takes the manifest's.
	Drain time.Duration
	// Queues are served; nil serves all of the manifest.
	Queues []string
	// NoSchedules leaves the manifest's schedules to other processes.
	NoSchedules bool
	// Alone says that no other process uses the database, so that what an
	// earlier one held is claimable at once. The caller has proved it, for
	// instance by holding the lock of an embedded database.
	Alone bool
}
