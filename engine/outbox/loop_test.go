package outbox_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/internal/enginetest"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/metrics"
	"github.com/jobrunner/runner/engine/outbox"
	"github.com/jobrunner/runner/engine/queue"
)

// over is a relay over a fake.
func over(t *testing.T, f *fake, change func(*outbox.Config)) *outbox.Relay {
	t.Helper()
	cfg := outbox.Config{Outbox: f, Queue: queueFunc(accepts)}
	if change != nil {
		change(&cfg)
	}
	r, err := outbox.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func start(t *testing.T, r *outbox.Relay) {
	t.Helper()
	if err := r.Start(); err != nil {
		t.Fatal(err)
	}
}

func stop(t *testing.T, r *outbox.Relay) {
	t.Helper()
	if err := r.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}

// An idle relay costs little: at most 30 statements a minute, and 12 where wakes
// are proven, with all that it does.
func TestIdleRelayKeepsToItsBudget(t *testing.T) {
	for listening, most := range map[bool]int{false: 30, true: 12} {
		synctest.Test(t, func(t *testing.T) {
			f := &fake{listening: listening}
			r := over(t, f, nil)
			start(t, r)
			time.Sleep(time.Minute)
			synctest.Wait()
			before := f.total()
			time.Sleep(time.Hour)
			synctest.Wait()
			// A listener proves itself once a minute, with a statement of its own.
			if n := (f.total() - before) / 60; n > most-1 {
				t.Errorf("listening %v: %d statements a minute", listening, n)
			}
			stop(t, r)
		})
	}
}

// (B11) Polling is the guarantee: what nobody announced is found soon after
// something was, and within the ceiling at any time.
func TestUnannouncedRowIsFoundByPolling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		r := over(t, f, nil)
		start(t, r)
		for _, c := range []struct{ quiet, most time.Duration }{
			{time.Hour, 2500 * time.Millisecond}, // polls are at their rarest
			{0, 200 * time.Millisecond},          // just after a row
			{time.Second, time.Second + 200*time.Millisecond},
		} {
			time.Sleep(c.quiet)
			synctest.Wait()
			n := len(f.done())
			f.stage(1)
			staged := time.Now()
			for len(f.done()) == n && time.Since(staged) < time.Minute {
				time.Sleep(time.Millisecond)
				synctest.Wait()
			}
			if took := time.Since(staged); took > c.most {
				t.Errorf("after %v of quiet, a row was found in %v", c.quiet, took)
			}
		}
		stop(t, r)
	})
}

// (W23) A wake has the relay look at once, and a full batch has it look again.
func TestWakeIsHeededAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{listening: true}
		r := over(t, f, nil)
		start(t, r)
		time.Sleep(time.Hour)
		synctest.Wait()
		f.stage(250)
		f.poke()
		f.poke()
		synctest.Wait() // without any time passing
		if n := len(f.done()); n != 250 || !slices.IsSorted(f.done()) {
			t.Errorf("%d of 250 rows are published", n)
		}
		stop(t, r)
		if f.wake != nil {
			t.Error("it listens after its end")
		}
	})
}

// (B11) A pass that fails, whatever way, is followed by the next after the floor,
// wakes or not; the log says so ever more rarely, and once that it is over.
func TestRelayOutlastsAnyFailure(t *testing.T) {
	for _, broken := range []string{"claim", "settle", "queue"} {
		synctest.Test(t, func(t *testing.T) {
			f, events, registry := &fake{}, &enginetest.Events{}, prometheus.NewRegistry()
			m, err := metrics.NewOutbox(registry)
			if err != nil {
				t.Fatal(err)
			}
			var down atomic.Bool
			down.Store(true)
			f.fault = func(_ context.Context, op string) error {
				if down.Load() {
					f.poke()
				}
				if down.Load() && op == broken {
					return errors.New("down")
				}
				return nil
			}
			r := over(t, f, func(c *outbox.Config) {
				c.Logger, c.Metrics = events.Logger(), m
				c.Queue = queueFunc(func(ctx context.Context, requests []queue.Request) ([]queue.Verdict, error) {
					if down.Load() && broken == "queue" {
						return nil, enginetest.Away()
					}
					return accepts(ctx, requests)
				})
			})
			f.stage(10)
			start(t, r)
			time.Sleep(20 * time.Second)
			synctest.Wait()
			if n := f.count("claim"); n < 90 || n > 111 { // 200 ms, jittered by a tenth
				t.Errorf("%s: %d passes in 20 seconds", broken, n)
			}
			if n := events.Count("outbox.pass-failed"); n != 7 { // 1, 2, 4 … 64
				t.Errorf("%s: %d lines for %d failures", broken, n, f.count("claim"))
			}
			down.Store(false)
			time.Sleep(time.Second)
			synctest.Wait()
			if len(f.done()) != 10 || events.Count("outbox.recovered") != 1 {
				t.Errorf("%s: %d rows are published; %v", broken, len(f.done()), events.Messages())
			}
			stop(t, r)
		})
	}
}

// (B12) A stop waits for the batch under way, so that a database is not closed
// between a publish and its settle.
func TestStopWaitsForTheBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		enter, leave := make(chan struct{}), make(chan struct{})
		r := over(t, f, func(c *outbox.Config) {
			c.Batch = 10
			c.Queue = queueFunc(func(ctx context.Context, requests []queue.Request) ([]queue.Verdict, error) {
				close(enter)
				<-leave
				return accepts(ctx, requests)
			})
		})
		f.stage(30)
		start(t, r)
		<-enter
		r.Quiesce()
		ended := make(chan error, 2)
		for range 2 { // concurrent stops share one end
			go func() { ended <- r.Stop(t.Context()) }()
		}
		synctest.Wait()
		if len(ended) != 0 {
			t.Error("the stop did not wait")
		}
		close(leave)
		for range 2 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
		if len(f.done()) != 10 || f.count("claim") != 1 {
			t.Errorf("%d rows are published after %d claims", len(f.done()), f.count("claim"))
		}
	})
}

// A stop that must not wait longer gives the batch up and its rows back.
func TestStopGivesUpWhenItsTimeIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, events := &fake{}, &enginetest.Events{}
		r := over(t, f, func(c *outbox.Config) {
			c.Logger = events.Logger()
			c.Queue = queueFunc(func(ctx context.Context, requests []queue.Request) ([]queue.Verdict, error) {
				<-ctx.Done()
				v, _ := accepts(ctx, requests[:4])
				return v, ctx.Err()
			})
		})
		f.stage(10)
		start(t, r)
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := r.Stop(ctx); err != nil {
			t.Error(err)
		}
		if len(f.done()) != 4 || f.released != 6 || events.Count("outbox.drain-abandoned") != 1 || events.Count("outbox.pass-failed") != 0 {
			t.Errorf("%d published, %d released; %v", len(f.done()), f.released, events.Messages())
		}
	})
}

// A database that does not even notice that it was given up holds no process.
func TestStopLeavesADeadDatabaseBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		dead := make(chan struct{})
		f.fault = func(context.Context, string) error {
			<-dead
			return nil
		}
		r := over(t, f, nil)
		start(t, r)
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := r.Stop(ctx); abi.CodeOf(err) != job.CodeDraining {
			t.Error(err)
		}
		if err := r.Start(); abi.CodeOf(err) != job.CodeInvalid {
			t.Errorf("started beside what is left behind: %v", err)
		}
		close(dead)
		stop(t, r)
	})
}

func TestRelayIsStartedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		r := over(t, f, nil)
		stop(t, r) // of one that has not begun
		r.Quiesce()
		for n := range 3 {
			f.stage(1)
			start(t, r)
			if err := r.Start(); abi.CodeOf(err) != job.CodeInvalid {
				t.Errorf("started twice: %v", err)
			}
			synctest.Wait()
			stop(t, r)
			stop(t, r)
			if len(f.done()) != n+1 {
				t.Errorf("life %d published %d", n, len(f.done()))
			}
		}
	})
}

// A relay does not publish when its lease is over: a run made so late might have
// been made, finished and deleted before.
func TestNothingIsPublishedAfterTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		f.stage(2)
		slow := over(t, f, func(c *outbox.Config) {
			c.Lease = 10 * time.Second
			c.Queue = queueFunc(func(context.Context, []queue.Request) ([]queue.Verdict, error) {
				return nil, errors.New("it published")
			})
		})
		f.fault = func(_ context.Context, op string) error {
			if op == "claim" {
				time.Sleep(9 * time.Second) // the answer comes late
			}
			return nil
		}
		res, err := slow.Pass(t.Context())
		if abi.CodeOf(err) != job.CodeLeaseLost || res != (outbox.Result{Claimed: 2, Released: 2}) {
			t.Errorf("%+v %v", res, err)
		}

		f.fault = nil
		began := time.Now()
		held := over(t, f, func(c *outbox.Config) {
			c.Lease = 10 * time.Second
			c.Queue = queueFunc(func(ctx context.Context, _ []queue.Request) ([]queue.Verdict, error) {
				select {
				case <-ctx.Done(): // a queue that hangs
				case <-time.After(time.Hour):
					t.Error("nothing ends a publication with the lease")
					return nil, errors.New("given up")
				}
				return nil, ctx.Err()
			})
		})
		res, err = held.Pass(t.Context())
		if !errors.Is(err, context.DeadlineExceeded) || res.Released != 2 || time.Since(began) != 9*time.Second {
			t.Errorf("%+v %v after %v", res, err, time.Since(began))
		}
	})
}

// A queue that answers nothing, and has no error either, is not asked for ever. (FL12)
func TestAQueueThatAnswersForNoRowStopsTheBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		f.stage(2)
		asked := 0
		r := over(t, f, func(c *outbox.Config) {
			c.Queue = queueFunc(func(context.Context, []queue.Request) ([]queue.Verdict, error) {
				if asked++; asked > 10 {
					return nil, errors.New("asked again and again")
				}
				return nil, nil
			})
		})
		res, err := r.Pass(t.Context())
		if abi.CodeOf(err) != job.CodeInternal || res.Released != 2 || asked != 1 {
			t.Errorf("%+v, %v, asked %d times", res, err, asked)
		}
	})
}
