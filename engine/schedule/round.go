package schedule

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/internal/loop"
	"github.com/jobrunner/runner/engine/manifest"
	"github.com/jobrunner/runner/engine/queue"
	"github.com/jobrunner/runner/engine/store"
	"github.com/jobrunner/runner/engine/trace"
)

const (
	// writeTimeout ends a write on a connection that is dead without saying so.
	writeTimeout = 15 * time.Second
	// catchUpGap is between two rounds of a schedule that makes up for more than
	// one round may.
	catchUpGap = time.Second
	// farAway is when a round comes again if there is nothing to do: the manifest
	// has no schedule.
	farAway = time.Hour
)

// Result is what one round did.
type Result struct {
	Led     int // schedules that this process fires
	Fired   int // occurrences that became runs
	Skipped int // occurrences that were skipped for a live run
	Missed  int // occurrences that were dropped
	Failed  int // schedules whose fire failed; they are tried again
	// Again is when the next round is due, by this process's clock.
	Again time.Time
}

// round is one under way; whoever asks for one meanwhile waits for it.
type round struct {
	done chan struct{}
	res  Result
	err  error
}

// state is what a scheduler knows between rounds.
type state struct {
	manifest *manifest.Manifest
	begun    bool // it has asked for leases
	led      map[string]*led
	names    []string  // of led, in order
	until    time.Time // when the leases lapse, by this process's clock
	renew    time.Time // when to renew them
	stored   time.Time // the store's time when
	heard    time.Time // this process's clock showed this
}

// led is one schedule that this process fires.
type led struct {
	row      store.Schedule
	again    time.Time // when to look at it again, by the store's clock; zero: once the leases are renewed
	wait     bool      // until then, whatever a renewal tells
	failures int
	backoff  loop.Backoff
}

// Round leads and fires what is due. It is for the scheduler's own loop, and for
// callers who want one round and its figures. A round under way is joined.
//
// An error says that the store did not answer who leads. What failed of a single
// schedule is logged and counted, and stops no other.
func (s *Scheduler) Round(ctx context.Context) (Result, error) { return s.round(ctx, ctx) }

// round is Round; what is not begun when accepting ends is left.
func (s *Scheduler) round(ctx, accepting context.Context) (Result, error) {
	s.mu.Lock()
	if r := s.under; r != nil {
		s.mu.Unlock()
		select {
		case <-r.done:
			return r.res, r.err
		case <-ctx.Done():
			return Result{}, context.Cause(ctx)
		}
	}
	r := &round{done: make(chan struct{})}
	s.under = r
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.under = nil
		s.mu.Unlock()
		close(r.done)
	}()
	r.res, r.err = s.dispatch(ctx, accepting)
	return r.res, r.err
}

// dispatch is one round's work.
func (s *Scheduler) dispatch(ctx, accepting context.Context) (res Result, err error) {
	s.working.Lock()
	defer s.working.Unlock()
	st := &s.state
	if m := s.cfg.Manifest(); m != st.manifest {
		st.manifest, st.renew = m, time.Time{}
	}
	defer func() {
		res.Led = len(st.names)
		res.Again = s.again()
	}()
	if len(st.manifest.Schedules) == 0 {
		s.keep(nil, time.Time{})
		return res, nil
	}
	if err := s.lead(ctx); err != nil {
		return res, err
	}
	for _, name := range slices.Clone(st.names) {
		if accepting.Err() != nil {
			return res, nil
		}
		// A round through many schedules may outlast the lease.
		if err := s.lead(ctx); err != nil {
			return res, err
		}
		if l := st.led[name]; l != nil {
			s.one(ctx, accepting, l, &res)
		}
	}
	return res, nil
}

// now is the store's time, or a little before.
func (s *Scheduler) now() time.Time { return s.state.stored.Add(time.Since(s.state.heard)) }

// lead takes or renews the leases when it is time to.
func (s *Scheduler) lead(ctx context.Context) error {
	st := &s.state
	sent := time.Now()
	if sent.Before(st.renew) {
		return nil
	}
	p := store.LeadParams{Holder: s.holder, Lease: s.cfg.Lease, Alone: s.cfg.Alone && !st.begun}
	for _, name := range slices.Sorted(maps.Keys(st.manifest.Schedules)) {
		p.Schedules = append(p.Schedules, store.ScheduleSpec{Name: name, Spec: st.manifest.Schedules[name].Definition()})
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	answer, err := s.cfg.Store.LeadSchedules(ctx, p)
	if err != nil {
		if !time.Now().Before(st.until) {
			s.keep(nil, time.Time{}) // whatever the store says now, another may lead
		}
		return err
	}
	st.begun = true
	if !answer.Now.IsZero() {
		st.stored, st.heard = answer.Now, time.Now()
	}
	s.keep(answer.Led, sent)
	return nil
}

// keep replaces what is known of the schedules that are led, as of an answer to
// what was sent at that time.
func (s *Scheduler) keep(rows []store.Schedule, sent time.Time) {
	st := &s.state
	before := st.led
	st.led, st.names = make(map[string]*led, len(rows)), nil
	st.until, st.renew = sent.Add(s.cfg.Lease), sent.Add(loop.Jitter(s.cfg.Lease/3))
	var gained []string
	for _, row := range rows {
		l := before[row.Name]
		if l == nil {
			l = &led{backoff: loop.Backoff{Floor: failFloor, Ceiling: time.Minute}}
			gained = append(gained, row.Name)
		}
		if !l.wait {
			l.again = row.Watermark // it may be due, or not be paused any more
		}
		l.row = row
		st.led[row.Name], st.names = l, append(st.names, row.Name)
	}
	lost := 0
	for name := range before {
		if st.led[name] == nil {
			s.cfg.Metrics.NotLed(name)
			lost++
		}
	}
	if len(gained) > 0 || lost > 0 {
		s.cfg.Metrics.Led(len(st.names))
		s.cfg.Logger.Info("schedule.leading", slog.Int("schedules", len(st.names)), slog.Any("gained", gained), slog.Int("lost", lost))
	}
}

// forget drops all that is known, as of a life that ends, and answers how many
// schedules were led.
func (s *Scheduler) forget() int {
	s.working.Lock()
	defer s.working.Unlock()
	n := len(s.state.names)
	for _, name := range s.state.names {
		s.cfg.Metrics.NotLed(name)
	}
	s.cfg.Metrics.Led(0)
	s.state = state{}
	return n
}

// again is when the next round is due, by this process's clock.
func (s *Scheduler) again() time.Time {
	st := &s.state
	if len(st.manifest.Schedules) == 0 {
		return time.Now().Add(farAway)
	}
	at := st.renew
	now, local := s.now(), time.Now()
	for _, l := range st.led {
		if l.again.IsZero() {
			continue
		}
		if then := local.Add(l.again.Sub(now)); then.Before(at) {
			at = then
		}
	}
	return at
}

// one fires what is due of a schedule.
func (s *Scheduler) one(ctx, accepting context.Context, l *led, res *Result) {
	decl := s.state.manifest.Schedules[l.row.Name]
	if l.again.IsZero() || l.again.After(s.now()) {
		return
	}
	l.wait = false
	if !l.row.PausedAt.IsZero() {
		l.again = time.Time{}
		s.cfg.Metrics.Overdue(l.row.Name, 0)
		return
	}
	for range max(1, decl.MaxCatchUp) {
		now := s.now()
		p := planned(decl, l.row.Watermark, now)
		if p.occurrence.IsZero() {
			l.again = p.next
			s.cfg.Metrics.Overdue(l.row.Name, 0)
			return
		}
		s.cfg.Metrics.Overdue(l.row.Name, now.Sub(p.first))
		if accepting.Err() != nil || !s.fire(ctx, decl, l, p, res) {
			return
		}
	}
	l.again, l.wait = s.now().Add(catchUpGap), true
}

// fire fires one occurrence, and reports whether the watermark is where the plan
// has it.
func (s *Scheduler) fire(ctx context.Context, decl *manifest.Schedule, l *led, p plan, res *Result) bool {
	name := l.row.Name
	answer, err := s.write(ctx, decl, l, p)
	switch {
	case err != nil:
		res.Failed++
		l.failures++
		s.cfg.Metrics.Failed(name)
		l.again, l.wait = s.now().Add(loop.Jitter(l.backoff.Next())), true
		s.state.renew = time.Time{} // it may have landed: only the row tells
		if ctx.Err() == nil && loop.Loud(l.failures) {
			s.cfg.Logger.Error("schedule.fire-failed", failed(name, p, err)...)
		}
		return false
	case !answer.Moved:
		// Another fired it, leads it or has paused it meanwhile, or the store's
		// clock was set back: the row tells, in a moment.
		l.again, l.wait = s.now().Add(catchUpGap), true
		s.state.renew = time.Time{}
		s.cfg.Logger.Info("schedule.fire-missed", slog.String("schedule", name), slog.Time("occurrence", p.occurrence))
		return false
	}
	if l.failures > 0 {
		s.cfg.Logger.Info("schedule.fire-recovered", slog.String("schedule", name), slog.Int("failed", l.failures))
	}
	l.failures = 0
	l.backoff.Reset()
	l.row.Watermark = p.to
	res.Missed += p.missed
	if p.missed > 0 {
		s.cfg.Logger.Warn("schedule.missed", slog.String("schedule", name), slog.Int("occurrences", p.missed), slog.String("catch_up", decl.CatchUp))
	}
	if answer.SkippedFor != "" {
		res.Skipped++
		s.cfg.Metrics.Skipped(name, p.missed)
		s.cfg.Logger.Info("schedule.skipped", slog.String("schedule", name), slog.Time("occurrence", p.occurrence), slog.String("live_run", answer.SkippedFor))
		return true
	}
	res.Fired++
	s.cfg.Metrics.Fired(name, s.now().Sub(p.occurrence), p.missed)
	s.cfg.Logger.Info("schedule.fired", slog.String("schedule", name), slog.Time("occurrence", p.occurrence), slog.Int("runs", len(answer.Runs)))
	return true
}

// write prepares an occurrence's runs and fires it.
func (s *Scheduler) write(ctx context.Context, decl *manifest.Schedule, l *led, p plan) (store.FireResult, error) {
	requests := Requests(decl, p.occurrence, s.now())
	if s.cfg.Tracer == nil {
		return s.insert(ctx, decl, l, p, requests)
	}
	span := s.cfg.Tracer.Start(trace.Params{Name: "schedule " + decl.Name, Kind: trace.Producer, Attrs: []trace.Attr{
		{Key: "runner.schedule", Text: decl.Name}, {Key: "runner.occurrence", Text: p.occurrence.UTC().Format(time.RFC3339)},
	}})
	for i := range requests {
		requests[i].Traceparent = span.Traceparent()
	}
	answer, err := s.insert(ctx, decl, l, p, requests)
	end := trace.EndParams{Failed: err != nil, Code: abi.CodeOf(err)}
	if err == nil && (!answer.Moved || answer.SkippedFor != "") {
		end.Attrs = []trace.Attr{{Key: "runner.fired", Text: "no"}}
	}
	span.End(end)
	return answer, err
}

// insert is the write.
func (s *Scheduler) insert(ctx context.Context, decl *manifest.Schedule, l *led, p plan, requests []queue.Request) (store.FireResult, error) {
	runs, err := s.cfg.Queue.Prepare(requests)
	if err != nil {
		return store.FireResult{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	return s.cfg.Store.FireSchedule(ctx, store.FireParams{
		Name: l.row.Name, Holder: s.holder, From: l.row.Watermark, To: p.to, Occurrence: p.occurrence, Missed: p.missed,
		Runs: runs, SkipIfLive: decl.Overlap == "skip",
	})
}

// Requests are what an occurrence, in the schedule's zone, enqueues at now.
func Requests(decl *manifest.Schedule, occurrence, now time.Time) []queue.Request {
	due := decl.Due(occurrence)
	if !due.After(now) {
		due = time.Time{} // at once, by the store's clock
	}
	requests := make([]queue.Request, len(decl.Enqueue))
	for i := range decl.Enqueue {
		e := &decl.Enqueue[i]
		requests[i] = queue.Request{
			Job: e.Job, Input: e.InputAt(occurrence), KeyPrefix: store.OccurrenceKey(decl.Name, occurrence), RunAt: due,
			EnqueuedBy: "schedule " + decl.Name,
		}
	}
	return requests
}

// failed are the attributes of a fire that failed, with all that its error says.
func failed(name string, p plan, err error) []any {
	attrs := []any{slog.String("schedule", name), slog.Time("occurrence", p.occurrence), slog.Any("error", err)}
	var coded *abi.Error
	if errors.As(err, &coded) {
		attrs = append(attrs, slog.String("code", coded.Code), slog.String("fix", coded.Fix))
	}
	return attrs
}
