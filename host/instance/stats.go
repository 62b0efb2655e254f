package instance

// Stats is a snapshot of a pool.
type Stats struct {
	Templates  int
	Out        int   // instances with callers, being reset or being closed
	Waiting    int   // instances that wait for their reset
	Idle       int   // instances ready for an attempt
	IdleBytes  int64 // about what the idle ones keep
	ImageBytes int64 // of all templates' images

	// Since the pool was made.
	Spawns    uint64 // instances made from an image
	Boots     uint64 // instances booted for one attempt
	Resets    uint64
	Discards  uint64 // instances closed because their state was in doubt
	Evictions uint64 // idle instances closed to keep the bound
}

// Stats counts what is there now.
func (p *Pool) Stats() Stats {
	s := Stats{
		Spawns: p.spawns.Load(), Boots: p.boots.Load(), Resets: p.resets.Load(),
		Discards: p.discards.Load(), Evictions: p.evictions.Load(),
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	s.Templates, s.IdleBytes = len(p.templates), p.idleBytes
	for _, t := range p.templates {
		s.Out += t.out
		s.Waiting += len(t.used)
		s.Idle += len(t.idle)
		if t.image != nil {
			s.ImageBytes += int64(t.image.size)
		}
	}
	return s
}
