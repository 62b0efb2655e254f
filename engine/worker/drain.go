package worker

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/internal/loop"
	"github.com/jobrunner/runner/engine/job"
)

// lifetime is what lasts from a start to the stop after it, with the one end
// that everyone who asks for it shares.
type lifetime struct {
	ctx          context.Context // ends when the loops are to end
	stop         context.CancelFunc
	accepting    context.Context // ends earlier: when no more is claimed
	endAccepting context.CancelFunc
	loops        sync.WaitGroup
	done         chan struct{} // closed when the worker has stopped

	mu      sync.Mutex
	bounds  bounds
	changed loop.Signal // bounds are tighter
}

// bounds are the instants of a shutdown; zero ones never come.
type bounds struct {
	abort    time.Time // attempts are told to stop
	handBack time.Time // runs of those that did not are given up
	end      time.Time // nothing is waited for any more
}

func newLifetime() *lifetime {
	l := &lifetime{done: make(chan struct{}), changed: loop.NewSignal()}
	l.ctx, l.stop = context.WithCancel(context.Background())
	l.accepting, l.endAccepting = context.WithCancel(l.ctx)
	return l
}

// tighten moves bounds forward where b is earlier.
func (l *lifetime) tighten(b bounds) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.bounds.abort = earlier(l.bounds.abort, b.abort)
	l.bounds.handBack = earlier(l.bounds.handBack, b.handBack)
	l.bounds.end = earlier(l.bounds.end, b.end)
	l.changed.Give()
}

func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

func (l *lifetime) now() bounds {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.bounds
}

// Margins of a drain: what its end keeps for stopping and settling.
const (
	minMargin = 2 * time.Second
	stopGrace = 2 * time.Second // of a stop without a drain
	loopGrace = time.Second     // of loops whose context has ended
)

// Drain stops claiming and lets attempts finish. Near the end of budget, with a
// margin of at least two seconds and at most half of it, the rest are aborted
// and their runs ready again, uncounted. It returns when the worker has
// stopped. A Drain while another shutdown is under way shares it, and its end
// if that is earlier.
func (w *Worker) Drain(budget time.Duration) {
	end := time.Now().Add(budget)
	margin := min(max(minMargin, budget/10), budget/2)
	w.shut(nil, bounds{abort: end.Add(-margin), handBack: end.Add(-margin / 2), end: end})
}

// Stop aborts attempts at once, as the end of a drain does, and returns when
// the worker has stopped: soon, whatever its guests do.
func (w *Worker) Stop() { w.shut(nil, stopBounds()) }

func stopBounds() bounds {
	now := time.Now()
	return bounds{abort: now, handBack: now.Add(stopGrace / 2), end: now.Add(stopGrace)}
}

// Finish stops claiming and waits as long as attempts take.
func (w *Worker) Finish() { w.shut(nil, bounds{}) }

// shut ends the lifetime that is under way, if it is only or only is nil.
func (w *Worker) shut(only *lifetime, b bounds) {
	w.mu.Lock()
	l := w.life
	first := w.state == running
	if !first && w.state != draining || only != nil && only != l {
		w.mu.Unlock()
		return
	}
	w.state = draining
	w.mu.Unlock()
	l.tighten(b)
	if first {
		go w.tearDown(l)
	}
	<-l.done
}

// tearDown is the order in which a lifetime ends.
func (w *Worker) tearDown(l *lifetime) {
	defer close(l.done)
	l.endAccepting()
	// Whoever reads this may rely on it: nothing that is enqueued now begins here.
	w.cfg.Logger.Info("jobs.worker.draining", slog.Int("runs", len(w.unsettled())))

	if !w.awaitQuiet(l, func(b bounds) time.Time { return b.abort }) {
		w.abortAll()
		if !w.awaitQuiet(l, func(b bounds) time.Time { return b.handBack }) {
			w.handBackAll()
			if !w.awaitQuiet(l, func(b bounds) time.Time { return b.end }) {
				w.cfg.Logger.Error("jobs.worker.drain-abandoned",
					slog.String("fix", "raise [runner] drain; the runs are redelivered"))
			}
		}
	}

	l.stop()
	w.leaveAll()
	w.awaitLoops(l)

	w.mu.Lock()
	w.state = stopped
	w.current = nil
	w.mu.Unlock()
}

// awaitQuiet waits until nothing is claimed or run any more, or until the bound
// that pick picks has come.
func (w *Worker) awaitQuiet(l *lifetime, pick func(bounds) time.Time) bool {
	for {
		if w.isQuiet() {
			return true
		}
		var timeout <-chan time.Time
		var timer *time.Timer
		if at := pick(l.now()); !at.IsZero() {
			left := time.Until(at)
			if left <= 0 {
				return false
			}
			timer = time.NewTimer(left)
			timeout = timer.C
		}
		select {
		case <-w.quiet:
		case <-l.changed:
		case <-timeout:
		}
		if timer != nil {
			timer.Stop()
		}
	}
}

// awaitLoops waits for the loops, which end soon unless a store does not heed
// its context. Such a loop is left behind; what it still claims is handed back.
func (w *Worker) awaitLoops(l *lifetime) {
	ended := make(chan struct{})
	go func() {
		l.loops.Wait()
		close(ended)
	}()
	timer := time.NewTimer(loopGrace)
	defer timer.Stop()
	select {
	case <-ended:
	case <-timer.C:
		w.cfg.Logger.Error("jobs.worker.loops-abandoned")
	}
}

func (w *Worker) isQuiet() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rounds == 0 && w.attempts == 0
}

// checkQuiet tells a drain that nothing is left. With mu held.
func (w *Worker) checkQuiet() {
	if w.rounds == 0 && w.attempts == 0 {
		w.quiet.Give()
	}
}

// unsettled are the attempts whose verdict is open.
func (w *Worker) unsettled() []*attempt {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []*attempt
	for s := range w.sessions {
		for _, a := range s.held {
			if !a.settling {
				all = append(all, a)
			}
		}
	}
	return all
}

func drainCause() *abi.Error {
	return &abi.Error{
		Code:    job.CodeDraining,
		Message: "the worker was shut down before the attempt ended; it was not counted",
	}
}

// abortAll tells every attempt to stop.
func (w *Worker) abortAll() {
	all := w.unsettled()
	w.cfg.Logger.Info("jobs.worker.drain-signalled", slog.Int("runs", len(all)))
	for _, a := range all {
		a.cancel(drainCause())
	}
}

// handBackAll gives the verdict on attempts that did not stop in time, so that
// another worker can begin at once.
func (w *Worker) handBackAll() {
	for _, a := range w.unsettled() {
		a.settleOutside(a.stuck(drainCause()))
	}
}

// leaveAll deregisters: what is still held is ready at once.
func (w *Worker) leaveAll() {
	w.mu.Lock()
	var all []*session
	for s := range w.sessions {
		all = append(all, s)
	}
	w.mu.Unlock()
	for _, s := range all {
		w.leave(s)
	}
}
