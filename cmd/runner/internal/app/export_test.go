package app

import "github.com/jobrunner/runner/engine"

// Engine is for tests that stop it behind the server's back.
func (s *Server) Engine() *engine.Engine { return s.engine }
