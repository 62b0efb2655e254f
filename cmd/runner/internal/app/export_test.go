package app

import (
	"context"
	"time"

	"github.com/jobrunner/runner/engine"
	"github.com/jobrunner/runner/engine/store"
)

// BePatient has a server's stop wait for its spans to be sent, however slow the
// machine is. It is for before any server is started.
func BePatient() { flushPatience = time.Hour }

// Engine is for tests that stop it behind the server's back.
func (s *Server) Engine() *engine.Engine { return s.engine }

// Store is for tests that plant runs.
func (s *Server) Store() store.Store { return s.store }

// Tidy is what happens once a day.
func (s *Server) Tidy(ctx context.Context, now time.Time) { s.tidy(ctx, now) }

// Untidy has it happen no more by itself; what was under way is over.
func (s *Server) Untidy() {
	s.stopTidying()
	s.background.Wait()
}
