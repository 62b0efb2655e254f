package guest_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/abi/guest"
	"github.com/jobrunner/runner/abi/guest/guesttest"
)

func TestErrorsDecideWhatHappensNext(t *testing.T) {
	base := errors.New("boom")
	for _, c := range []struct {
		name     string
		err      error
		attempts int
		elapsed  time.Duration
		code     string
	}{
		{"plain is retried", base, 3, 3 * time.Second, ""},
		{"terminal is not", guest.Terminal(base), 1, 0, ""},
		{"wrapped terminal is not", fmt.Errorf("a: %w", guest.Coded("X_A", guest.Terminal(base))), 1, 0, "X_A"},
		{"retry after waits as told", guest.RetryAfter(guest.Coded("X_B", base), time.Minute), 3, 2 * time.Minute, "X_B"},
		{"the outermost mark counts", guest.RetryAfter(guest.Terminal(base), time.Minute), 3, 2 * time.Minute, ""},
		{"the outermost code counts", guest.Coded("X_OUT", guest.Coded("X_IN", guest.Terminal(base))), 1, 0, "X_OUT"},
		{"joined errors are looked through", errors.Join(base, guest.Terminal(base)), 1, 0, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := job(t, none{}, guesttest.Options{}, func(*guest.Ctx, none) (none, error) { return none{}, c.err })
			if r.Attempts != c.attempts || r.Elapsed != c.elapsed || abi.CodeOf(r.Err) != c.code {
				t.Errorf("%d attempts, %v, %v", r.Attempts, r.Elapsed, r.Err)
			}
		})
	}
}

func TestRateLimitIsNotCounted(t *testing.T) {
	n := 0
	r := job(t, none{}, guesttest.Options{MaxAttempts: 1}, func(*guest.Ctx, none) (none, error) {
		if n++; n <= 5 {
			return none{}, guest.RateLimited(errors.New("429"), time.Minute)
		}
		return none{}, nil
	})
	if r.Err != nil || r.Attempts != 1 || r.Runs != 6 || r.Elapsed != 5*time.Minute {
		t.Errorf("%v, %d attempts, %d runs, %v", r.Err, r.Attempts, r.Runs, r.Elapsed)
	}
}

func TestMarksOfNilAreNil(t *testing.T) {
	for _, err := range []error{guest.Terminal(nil), guest.RetryAfter(nil, 1), guest.RateLimited(nil, 1), guest.Coded("X", nil), guest.WithFix(nil, "f")} {
		if err != nil {
			t.Errorf("%v", err)
		}
	}
}

func TestCodesAreTidied(t *testing.T) {
	for in, want := range map[string]string{"X_OK": "X_OK", "card declined!": "card_declined_", "": "X", "é": "_", strings.Repeat("x", 100): strings.Repeat("x", 64)} {
		err := fmt.Errorf("w: %w", guest.Coded(in, errors.New("e")))
		if got := guest.CodeOf(err); got != want || !errors.Is(err, guest.Code(want)) {
			t.Errorf("Coded(%q) has code %q", in, got)
		}
	}
	if guest.CodeOf(errors.New("e")) != "" || guest.CodeOf(nil) != "" {
		t.Error("code without Coded")
	}
}

func TestFixReachesTheCaller(t *testing.T) {
	r := job(t, none{}, guesttest.Options{}, func(*guest.Ctx, none) (none, error) {
		return none{}, guest.Terminal(guest.WithFix(errors.New("no such org"), "create it first"))
	})
	var e *abi.Error
	if !errors.As(r.Err, &e) || e.Fix != "create it first" || e.Message != "no such org" {
		t.Errorf("%v", r.Err)
	}
}

func TestPanicInAHandlerIsRetried(t *testing.T) {
	for name, value := range map[string]any{"text": "text", "error": errors.New("text"), "other": struct{ S string }{"text"}} {
		t.Run(name, func(t *testing.T) {
			r := job(t, none{}, guesttest.Options{MaxAttempts: 2}, func(*guest.Ctx, none) (none, error) { panic(value) })
			if r.Attempts != 2 || !strings.Contains(r.Err.Error(), "panic: ") || !strings.Contains(r.Err.Error(), "text") {
				t.Errorf("%v after %d attempts", r.Err, r.Attempts)
			}
		})
	}
}

func TestInputThatDoesNotFitFailsForGood(t *testing.T) {
	guest.Job(t.Name(), func(_ *guest.Ctx, in struct{ N int }) (none, error) { return none{}, nil })
	r := guesttest.Run(t, t.Name(), json.RawMessage(`{"N":"seven"}`), guesttest.Options{})
	if abi.CodeOf(r.Err) != guest.CodeInputInvalid || r.Attempts != 1 {
		t.Errorf("%v after %d attempts", r.Err, r.Attempts)
	}
}

func TestOutputTooLargeFailsForGood(t *testing.T) {
	r := job(t, none{}, guesttest.Options{}, func(*guest.Ctx, none) (string, error) { return strings.Repeat("x", abi.MaxOutput), nil })
	if abi.CodeOf(r.Err) != "X_LIMIT_EXCEEDED" || r.Attempts != 1 {
		t.Errorf("%v after %d attempts", r.Err, r.Attempts)
	}
}

func TestHandlerKnowsItsRun(t *testing.T) {
	r := job(t, none{}, guesttest.Options{MaxAttempts: 2, Tenant: "acme", Queue: "mail"}, func(c *guest.Ctx, _ none) (string, error) {
		if !c.FinalAttempt() {
			return "", errors.New("again")
		}
		_, deadline := c.Deadline()
		return fmt.Sprint(c.Attempt(), c.MaxAttempts(), c.RunID(), c.Job(), c.Queue(), c.Tenant(), deadline), nil
	})
	if want := `"2 2run-1` + t.Name() + `mailacmefalse"`; string(r.Output) != want {
		t.Errorf("%s, want %s (%v)", r.Output, want, r.Err)
	}
}

func TestClockAndChanceRepeatBetweenStepsOnly(t *testing.T) {
	var outside, inside [][]any
	r := job(t, none{}, guesttest.Options{MaxAttempts: 3, NoReplayCheck: true}, func(c *guest.Ctx, _ none) (none, error) {
		now, n := c.Now(), c.Rand().Uint64()
		outside = append(outside, []any{now, n})
		err := guest.Do(c, "s", func() error {
			inside = append(inside, []any{c.Now(), c.Rand().Uint64()})
			return errors.New("again")
		})
		return none{}, err
	})
	if len(outside) != 3 || fmt.Sprint(outside[0]) != fmt.Sprint(outside[1]) || fmt.Sprint(outside[0]) != fmt.Sprint(outside[2]) {
		t.Errorf("outside %v (%v)", outside, r.Err)
	}
	if len(inside) != 3 || fmt.Sprint(inside[0][0]) == fmt.Sprint(inside[1][0]) || inside[0][1] == inside[1][1] {
		t.Errorf("inside %v", inside)
	}
}

func TestRunClockIsThatOfTheLastStep(t *testing.T) {
	r := job(t, none{}, guesttest.Options{}, func(c *guest.Ctx, _ none) (string, error) {
		start := c.Now()
		c.Sleep("z", time.Hour)
		return c.Now().Sub(start).String(), nil
	})
	if string(r.Output) != `"1h0m0s"` {
		t.Errorf("%s, %v", r.Output, r.Err)
	}
}

func TestSleepUntilCountsFromTheRealTime(t *testing.T) {
	start := time.Date(2031, 5, 6, 7, 0, 0, 0, time.UTC)
	r := job(t, none{}, guesttest.Options{Start: start}, func(c *guest.Ctx, _ none) (none, error) {
		if c.Attempt() == 1 {
			return none{}, guest.RetryAfter(errors.New("later"), 10*time.Minute)
		}
		c.SleepUntil("nine", start.Add(2*time.Hour))
		c.SleepUntil("long ago", start)
		return none{}, nil
	})
	if r.Err != nil || r.Elapsed != 2*time.Hour || len(r.Steps) != 0 {
		t.Errorf("%v after %v, want exactly 2h although the run's clock lagged by 10m", r.Err, r.Elapsed)
	}
}

func TestLogsOfAReplayedPrefixAreNotRepeated(t *testing.T) {
	r := job(t, none{}, guesttest.Options{}, func(c *guest.Ctx, _ none) (none, error) {
		c.Log("start")
		_ = guest.Do(c, "s", func() error { c.LogAt(guest.LevelWarn, "body s"); return nil })
		c.Logf("between %d", 1)
		c.Sleep("z", time.Second)
		c.Log("end")
		c.Progress(0.5, "half")
		return none{}, nil
	})
	var got []string
	for _, l := range r.Logs {
		got = append(got, fmt.Sprint(l.Level, l.Text))
	}
	if want := "[1start 2body s 1between 1 1end]"; fmt.Sprint(got) != want {
		t.Errorf("%v, want %s", got, want)
	}
	if last := r.Transcript[len(r.Transcript)-1]; last != "progress 500 half" {
		t.Errorf("%q", last)
	}
}

func TestDeferredFunctionsCannotSwallowASuspension(t *testing.T) {
	swallowed := false
	r := job(t, none{}, guesttest.Options{NoReplayCheck: true}, func(c *guest.Ctx, _ none) (out none, err error) {
		defer func() {
			if recover() != nil {
				swallowed = true
			}
			c.Log("cleaning up")
		}()
		c.Sleep("z", time.Hour)
		return none{}, nil
	})
	if swallowed || r.Err != nil || r.Elapsed != time.Hour {
		t.Errorf("swallowed %v, %v, %v", swallowed, r.Err, r.Elapsed)
	}
}

func TestTwoHandlersOfOneNamePanic(t *testing.T) {
	fn := func(*guest.Ctx, none) (none, error) { return none{}, nil }
	guest.Job(t.Name(), fn)
	defer func() {
		if x := recover(); x != "guest: two handlers are named "+t.Name() {
			t.Errorf("%v", x)
		}
	}()
	guest.Job(t.Name(), fn)
}
