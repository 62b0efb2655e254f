package guest_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/abi/abitest"
	"github.com/jobrunner/runner/abi/guest"
	"github.com/jobrunner/runner/abi/guest/guesttest"
)

// job registers fn under the test's name, so that each test has its own
// handler, and runs it.
func job[In, Out any](t *testing.T, in In, o guesttest.Options, fn func(*guest.Ctx, In) (Out, error)) guesttest.Result {
	t.Helper()
	guest.Job(t.Name(), fn)
	return guesttest.Run(t, t.Name(), in, o)
}

type none struct{}

func TestStepRunsOnceOverAllAttempts(t *testing.T) {
	bodies := map[string]int{}
	r := job(t, none{}, guesttest.Options{MaxAttempts: 4}, func(c *guest.Ctx, _ none) (string, error) {
		a, err := guest.Step(c, "a", func() (string, error) { bodies["a"]++; return "A", nil })
		if err != nil {
			return "", err
		}
		b, err := guest.Step(c, "b", func() (string, error) {
			if bodies["b"]++; bodies["b"] < 3 {
				return "", errors.New("not yet")
			}
			return "B", nil
		})
		return a + b, err
	})
	if r.Err != nil || string(r.Output) != `"AB"` || r.Attempts != 3 {
		t.Errorf("%s, %v after %d attempts", r.Output, r.Err, r.Attempts)
	}
	if bodies["a"] != 1 || bodies["b"] != 3 {
		t.Errorf("bodies %v", bodies)
	}
}

func TestRepeatedNamesAreNumbered(t *testing.T) {
	r := job(t, none{}, guesttest.Options{}, func(c *guest.Ctx, _ none) (none, error) {
		for range 3 {
			if err := guest.Do(c, "page", func() error { return nil }); err != nil {
				return none{}, err
			}
			c.Sleep("pause", time.Minute)
		}
		_ = guest.Do(c, "x#2", func() error { return nil })
		_ = guest.Do(c, "x", func() error { return nil })
		return none{}, guest.Do(c, "x", func() error { return nil })
	})
	var steps, sleeps []string
	for _, s := range r.Steps {
		steps = append(steps, s.Name)
	}
	for _, s := range r.Sleeps {
		sleeps = append(sleeps, s.Name)
	}
	if want := []string{"page", "page#2", "page#3", "x#2", "x", "x#3"}; !slices.Equal(steps, want) {
		t.Errorf("steps %q, want %q", steps, want)
	}
	if want := []string{"pause", "pause#2", "pause#3"}; !slices.Equal(sleeps, want) {
		t.Errorf("sleeps %q, want %q", sleeps, want)
	}
	if r.Err != nil || r.Elapsed != 3*time.Minute || r.Attempts != 1 || r.Runs != 4 {
		t.Errorf("%v after %v, %d attempts, %d runs", r.Err, r.Elapsed, r.Attempts, r.Runs)
	}
}

func TestStepReturnsWhatItsReplaysWillReturn(t *testing.T) {
	type value struct {
		Kept   []string
		Lost   func() `json:"-"`
		hidden int
		At     time.Time
	}
	var seen []string
	r := job(t, none{}, guesttest.Options{}, func(c *guest.Ctx, _ none) (none, error) {
		v, err := guest.Step(c, "s", func() (value, error) {
			return value{Kept: []string{}, Lost: func() {}, hidden: 7, At: time.Now()}, nil
		})
		if err != nil {
			return none{}, err
		}
		seen = append(seen, fmt.Sprint(v.Kept == nil, v.Lost == nil, v.hidden, strings.Contains(v.At.String(), "m=+")))
		c.Sleep("z", time.Second)
		return none{}, nil
	})
	if r.Err != nil || len(seen) < 2 || len(slices.Compact(seen)) != 1 {
		t.Errorf("%v, %q", r.Err, seen)
	}
}

func TestFinalStepFailureIsTheSameInEveryAttempt(t *testing.T) {
	var seen []string
	bodyErr := errors.New("no funds")
	r := job(t, none{}, guesttest.Options{}, func(c *guest.Ctx, _ none) (string, error) {
		_, err := guest.Step(c, "charge", func() (int, error) {
			return 5, guest.WithFix(guest.Terminal(guest.Coded("X_CARD_DECLINED", bodyErr)), "use another card")
		})
		var se *guest.StepError
		if !errors.As(err, &se) {
			return "", fmt.Errorf("%T", err)
		}
		seen = append(seen, fmt.Sprintf("%s|%s|%s|%v|%v", se, se.Code, se.Fix, errors.Is(err, guest.Code("X_CARD_DECLINED")), errors.Is(err, bodyErr)))
		c.Sleep("z", time.Hour)
		return "went on", nil
	})
	want := `step "charge": no funds|X_CARD_DECLINED|use another card|true|false`
	if r.Err != nil || len(seen) != 3 { // first run, after the sleep, replay check
		t.Fatalf("%v, %q", r.Err, seen)
	}
	for _, s := range seen {
		if s != want {
			t.Errorf("got %s\nwant %s", s, want)
		}
	}
	if r.Attempts != 1 || r.Steps[0].Failed != "no funds" {
		t.Errorf("%d attempts, %+v", r.Attempts, r.Steps)
	}
}

func TestStepErrorFailsTheRunForGood(t *testing.T) {
	calls := 0
	r := job(t, none{}, guesttest.Options{MaxAttempts: 3}, func(c *guest.Ctx, _ none) (none, error) {
		err := guest.Do(c, "s", func() error { calls++; return guest.Coded("X_DOWN", errors.New("down")) })
		if err != nil {
			return none{}, fmt.Errorf("cannot go on: %w", err)
		}
		return none{}, nil
	})
	if calls != 3 || r.Attempts != 3 {
		t.Errorf("%d bodies in %d attempts", calls, r.Attempts)
	}
	if abi.CodeOf(r.Err) != "X_DOWN" || !strings.Contains(r.Err.Error(), `cannot go on: step "s": down`) {
		t.Errorf("%v", r.Err)
	}
}

func TestPanicInAStepIsItsFailureWithAStack(t *testing.T) {
	calls := 0
	r := job(t, none{}, guesttest.Options{MaxAttempts: 2}, func(c *guest.Ctx, _ none) (int, error) {
		return guest.Step(c, "s", func() (int, error) {
			if calls++; calls == 1 {
				var p *int
				return *p, nil
			}
			return 1, nil
		})
	})
	if r.Err != nil || r.Attempts != 2 {
		t.Errorf("%v after %d attempts", r.Err, r.Attempts)
	}
	if !slices.ContainsFunc(r.Transcript, func(s string) bool {
		return strings.HasPrefix(s, `step_fail "s" 0 panic: runtime error: invalid memory address`)
	}) {
		t.Errorf("%q", r.Transcript)
	}
}

func TestOutputThatCannotBeKeptFailsTheStepForGood(t *testing.T) {
	for name, body := range map[string]func(c *guest.Ctx) error{
		"written": func(c *guest.Ctx) error {
			_, err := guest.Step(c, "s", func() (any, error) { return make(chan int), nil })
			return err
		},
		"read": func(c *guest.Ctx) error {
			_, err := guest.Step(c, "s", func() (oneWay, error) { return oneWay{}, nil })
			return err
		},
		"large": func(c *guest.Ctx) error {
			_, err := guest.Step(c, "s", func() (string, error) { return strings.Repeat("x", abi.MaxOutput), nil })
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := job(t, none{}, guesttest.Options{}, func(c *guest.Ctx, _ none) (none, error) { return none{}, body(c) })
			want := guest.CodeStepOutput
			if name == "large" {
				want = "X_LIMIT_EXCEEDED"
			}
			if r.Attempts != 1 || abi.CodeOf(r.Err) != want {
				t.Errorf("%v after %d attempts, want %s after 1", r.Err, r.Attempts, want)
			}
		})
	}
}

// oneWay can be written as JSON and not be read.
type oneWay struct{}

func (oneWay) MarshalJSON() ([]byte, error) { return []byte(`"x"`), nil }
func (*oneWay) UnmarshalJSON([]byte) error  { return errors.New("one way") }

func TestOnceStepThatDidNotEndStopsTheRun(t *testing.T) {
	r := job(t, none{}, guesttest.Options{Secrets: map[string]string{}}, func(c *guest.Ctx, _ none) (none, error) {
		return none{}, guest.Do(c, "s", func() error {
			c.Sleep("inside", time.Second) // refused, and so a panic: the step ends
			return nil
		}, guest.Once())
	})
	if !slices.Contains(r.Transcript, `step_begin "s" once`) {
		t.Errorf("%q", r.Transcript)
	}
	// The refusal is the step's failure, so its outcome is known.
	if r.Err == nil || r.Attempts != 1 || !strings.Contains(r.Err.Error(), "only possible outside steps") {
		t.Errorf("%v", r.Err)
	}
}

func TestStepInsideAStepEndsTheRun(t *testing.T) {
	r := job(t, none{}, guesttest.Options{}, func(c *guest.Ctx, _ none) (none, error) {
		return none{}, guest.Do(c, "outer", func() error {
			return guest.Do(c, "inner", func() error { return nil })
		})
	})
	if abi.CodeOf(r.Err) != abi.CodeABIViolation || r.Attempts != 1 || !strings.Contains(r.Err.Error(), `step "inner" inside step "outer"`) {
		t.Errorf("%v after %d attempts", r.Err, r.Attempts)
	}
}

func TestBadNameEndsTheRun(t *testing.T) {
	r := job(t, none{}, guesttest.Options{}, func(c *guest.Ctx, _ none) (none, error) {
		return none{}, guest.Do(c, "", func() error { return nil })
	})
	if abi.CodeOf(r.Err) != abi.CodeABIViolation || !strings.Contains(r.Err.Error(), "name is empty") {
		t.Errorf("%v", r.Err)
	}
}

func TestRecordThatNoLongerFitsItsTypeFailsForGood(t *testing.T) {
	first := true
	r := job(t, none{}, guesttest.Options{}, func(c *guest.Ctx, _ none) (none, error) {
		if first {
			first = false
			_, _ = guest.Step(c, "s", func() (string, error) { return "text", nil })
			return none{}, errors.New("again")
		}
		_, err := guest.Step(c, "s", func() (int, error) { return 1, nil })
		return none{}, err
	})
	if abi.CodeOf(r.Err) != guest.CodeStepOutput || r.Attempts != 2 {
		t.Errorf("%v after %d attempts", r.Err, r.Attempts)
	}
}

func TestEventsAndSleepsInterleave(t *testing.T) {
	type paid struct{ Amount int }
	o := guesttest.Options{Events: []abitest.Event{{Topic: "paid", Payload: []byte(`{"Amount":5}`), After: 2 * time.Hour}}}
	r := job(t, none{}, o, func(c *guest.Ctx, _ none) (string, error) {
		c.Sleep("first", time.Hour)
		p, err := guest.WaitEvent[paid](c, "payment", "paid", 24*time.Hour)
		if err != nil {
			return "", err
		}
		_, err = guest.WaitEvent[paid](c, "payment", "paid", 24*time.Hour)
		return fmt.Sprint(p.Amount, errors.Is(err, guest.ErrTimeout), c.Now().Sub(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))), nil
	})
	var out string
	if err := json.Unmarshal(r.Output, &out); err != nil || out != "5 true 26h0m0s" || r.Elapsed != 26*time.Hour {
		t.Errorf("%q, %v, %v", out, r.Err, r.Elapsed)
	}
}
