package app

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/jobrunner/runner/engine/metrics"
	"github.com/jobrunner/runner/engine/schedule"
)

// newScheduler makes what fires the manifest's schedules, and begins nothing.
func (s *Server) newScheduler(counted prometheus.Registerer) error {
	m, err := metrics.NewSchedules(counted)
	if err != nil {
		return err
	}
	s.scheduler, err = schedule.New(schedule.Config{
		Store: s.store, Queue: s.client, Manifest: s.Manifest, Logger: s.cfg.Logger, Metrics: m, Tracer: s.tracer(),
		Alone: s.unlock != nil, // of workers, one of which led before, most likely
	})
	return err
}

// schedulerPatience bounds the wait for the round under way.
const schedulerPatience = 5 * time.Second

func (s *Server) stopScheduler() error {
	ctx, cancel := context.WithTimeout(context.Background(), schedulerPatience)
	defer cancel()
	return s.scheduler.Stop(ctx)
}
