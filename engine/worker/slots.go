package worker

import (
	"maps"
	"math"
	"slices"
	"sync"

	"github.com/jobrunner/runner/engine/metrics"
	"github.com/jobrunner/runner/engine/store"
)

// slots count the attempts of each queue against its limit. Safe for
// concurrent use.
//
// An attempt has its slot while its guest may run. While its verdict is being
// written the slot is another's already: a queue works while it commits, instead
// of by turns. So that a slow store is not handed ever more to remember, no
// more than limit verdicts wait beside a full set of guests.
type slots struct {
	metrics *metrics.Metrics

	mu     sync.Mutex
	queues map[string]*slot
	names  []string // sorted, of the queues that are served
	most   int      // guests over all queues; 0 is no limit
	busy   int      // of them
	short  bool     // the last claim was to take less than its queues had room for
	first  int      // the queue that is asked for first when there is too little for all
}

// slot is one queue's.
type slot struct {
	limit   int  // 0 takes no more
	busy    int  // guests that may run
	pending int  // verdicts being written
	hungry  bool // the last claim left runs behind for want of slots
}

// room is how many runs the queue can take.
func (q *slot) room() int { return min(q.limit-q.busy, 2*q.limit-q.busy-q.pending) }

// wanted reports whether a claim waits for room, and whether there is enough of
// it to be worth a claim now; otherwise others are likely to make more very soon.
func (q *slot) wanted() (waiting, enough bool) {
	room := q.room()
	return q.hungry && room > 0, room >= q.worthwhile()
}

// wanted is the queue's, unless what is limited is all of them: then any guest
// that ended may be what another queue waited for.
func (s *slots) wanted(q *slot) (waiting, enough bool) {
	if s.short {
		return true, true
	}
	return q.wanted()
}

// worthwhile is the room for which a claim is worth its commit at once: a fourth
// of the slots, while the others work. Of a few slots any: each is too much of the
// whole to wait.
func (q *slot) worthwhile() int {
	if q.limit < fewSlots {
		return 1
	}
	return q.limit / 4
}

const fewSlots = 16

// configure sets the limits of the queues that are served, and of all together.
func (s *slots) configure(limits map[string]int, most int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.queues == nil {
		s.queues = make(map[string]*slot, len(limits))
	}
	for name, q := range s.queues {
		if _, ok := limits[name]; !ok {
			q.limit = 0
			s.publish(name, q)
		}
	}
	for name, limit := range limits {
		q, ok := s.queues[name]
		if !ok {
			q = &slot{}
			s.queues[name] = q
		}
		q.limit = limit
		s.publish(name, q)
	}
	s.names = slices.Sorted(maps.Keys(limits))
	s.most = most
}

// left is how many more guests may run over all queues. With mu held.
func (s *slots) left() int {
	if s.most == 0 {
		return math.MaxInt
	}
	return max(s.most-s.busy, 0)
}

// serves reports whether a queue is claimed from.
func (s *slots) serves(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	q, ok := s.queues[name]
	return ok && q.limit > 0
}

// list is the served queues, sorted.
func (s *slots) list() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.names
}

// free appends each queue with a free slot and how many it has. Those without
// are hungry until a claim finds nothing for them.
func (s *slots) free(to []store.QueueLimit) []store.QueueLimit {
	s.mu.Lock()
	defer s.mu.Unlock()
	from := len(to)
	room := 0
	for _, name := range s.names {
		q := s.queues[name]
		if n := q.room(); n > 0 {
			room += n
			to = append(to, store.QueueLimit{Queue: name, Limit: n})
		} else if q.limit > 0 {
			q.hungry = true
		}
	}
	if s.short = room > s.left(); s.short {
		return to[:from+s.share(to[from:])]
	}
	return to
}

// share deals what is left for all queues out over those with room, another one
// first each time, and answers how many have a share. With mu held.
func (s *slots) share(of []store.QueueLimit) int {
	if len(of) == 0 {
		return 0
	}
	s.first = (s.first + 1) % len(of)
	turned := append(slices.Clone(of[s.first:]), of[:s.first]...)
	left, n := s.left(), 0
	for i, q := range turned {
		q.Limit = min(q.Limit, (left+len(turned)-i-1)/(len(turned)-i))
		if left -= q.Limit; q.Limit > 0 {
			of[n] = q
			n++
		}
	}
	return n
}

// take takes a slot if the queue has one, whatever a store has handed out.
func (s *slots) take(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	q, ok := s.queues[name]
	if !ok || q.room() <= 0 || s.left() == 0 {
		return false
	}
	q.busy++
	s.busy++
	return true
}

// spare takes a slot for a run that was not claimed, if the queue has one that no
// claim waits for.
func (s *slots) spare(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	q, ok := s.queues[name]
	if !ok || q.room() <= 0 || q.hungry || s.short || s.left() == 0 {
		return false
	}
	q.busy++
	s.busy++
	return true
}

// claimed notes for each asked queue whether it may have had more.
func (s *slots) claimed(asked []store.QueueLimit, got map[string]int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range asked {
		q := s.queues[l.Queue]
		q.hungry = got[l.Queue] >= l.Limit
		s.publish(l.Queue, q)
	}
}

// publish tells how full a queue is. One that is not served any more has no
// gauges once its last guest has ended. With mu held.
func (s *slots) publish(name string, q *slot) {
	if q.limit == 0 && q.busy == 0 {
		s.metrics.NoSlots(name)
		return
	}
	s.metrics.Slots(name, q.busy, q.limit)
}

// emptied tells of a queue that is not served any more, of which no claim will.
func (s *slots) emptied(name string, q *slot) {
	if q.limit == 0 {
		s.publish(name, q)
	}
}

// ended moves an attempt from its slot to the verdicts being written.
func (s *slots) ended(name string) (waiting, enough bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.queues[name]
	q.busy--
	s.busy--
	q.pending++
	s.emptied(name, q)
	return s.wanted(q)
}

// settled forgets an attempt whose verdict has been written.
func (s *slots) settled(name string) (waiting, enough bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.queues[name]
	q.pending--
	return s.wanted(q)
}

// release gives back the slot of an attempt that leaves no verdict to write.
func (s *slots) release(name string) (waiting, enough bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.queues[name]
	q.busy--
	s.busy--
	s.emptied(name, q)
	return s.wanted(q)
}
