package sqlite

import (
	"context"
	"slices"
	"time"
)

// Wakes implements store.Notifier. Commits of other processes are noticed
// within Config.PollInterval and announced without a queue.
func (s *Store) Wakes(wake func(queue string)) (stop func()) {
	stop, first := s.hub.Listen(wake)
	if first && !s.cfg.memory() {
		s.polling.Add(1)
		go s.pollForeign()
	}
	return stop
}

// Listening implements store.Notifier: the file is watched as long as anyone
// listens.
func (s *Store) Listening() bool { return true }

// pollForeign watches the writing connection's data version, which changes with
// the commits of every connection but its own: of other processes, since nothing
// else here writes.
func (s *Store) pollForeign() {
	defer s.polling.Done()
	ticker := time.NewTicker(s.cfg.PollInterval)
	defer ticker.Stop()
	var last int64
	for {
		select {
		case <-s.closing:
			return
		case <-ticker.C:
		}
		var version int64
		err := s.w.do(context.Background(), func(tx *tx) (err error) {
			version, err = tx.dataVersion()
			return err
		})
		if err != nil {
			continue // whoever writes is told; the poll comes round again
		}
		if last != 0 && version != last {
			s.hub.Post(slices.Values([]string{""}))
		}
		last = version
	}
}

func (c *conn) dataVersion() (int64, error) {
	q := c.use(qDataVersion)
	var v int64
	if q.step() {
		v = q.colInt(0)
	}
	return v, q.end()
}

var qDataVersion = named("data_version")
