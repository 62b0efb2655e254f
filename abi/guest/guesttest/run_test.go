package guesttest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/abi/abitest"
	"github.com/jobrunner/runner/abi/guest"
	"github.com/jobrunner/runner/abi/guest/guesttest"
)

type none struct{}

// watched is a testing.TB that keeps what would fail the test.
type watched struct {
	testing.TB
	said []string
}

func (w *watched) Helper() {}
func (w *watched) Errorf(format string, args ...any) {
	w.said = append(w.said, fmt.Sprintf(format, args...))
}

func TestAHandlerThatIsNotDeterministicFailsItsTest(t *testing.T) {
	calls := 0
	for name, c := range map[string]struct {
		handler func(c *guest.Ctx, _ none) (int, error)
		says    string
	}{
		"another step": {func(c *guest.Ctx, _ none) (int, error) {
			calls++
			return 0, guest.Do(c, fmt.Sprint("step ", calls), func() error { return nil })
		}, "where it first asked for"},
		"one step more": {func(c *guest.Ctx, _ none) (int, error) {
			if calls++; calls > 1 {
				return 0, guest.Do(c, "extra", func() error { return nil })
			}
			return 0, nil
		}, `its replay asked for "extra"`},
		"one step less": {func(c *guest.Ctx, _ none) (int, error) {
			if calls++; calls > 1 {
				return 0, nil
			}
			return 0, guest.Do(c, "only once", func() error { return nil })
		}, `did not ask for "only once"`},
		"another output": {func(*guest.Ctx, none) (int, error) {
			calls++
			return calls, nil
		}, "returned 1, its replay 2"},
		"a failure": {func(*guest.Ctx, none) (int, error) {
			if calls++; calls > 1 {
				return 0, errors.New("not again")
			}
			return 0, nil
		}, "its replay ended failed: not again"},
	} {
		t.Run(name, func(t *testing.T) {
			calls = 0
			guest.Job(t.Name(), c.handler)
			w := &watched{TB: t}
			guesttest.Run(w, t.Name(), none{}, guesttest.Options{})
			if len(w.said) != 1 || !strings.Contains(w.said[0], c.says) || !strings.Contains(w.said[0], "not deterministic") {
				t.Errorf("it said %q, want %q", w.said, c.says)
			}
		})
	}
}

func TestAReplayThatDivergesEndsTheRun(t *testing.T) {
	calls := 0
	guest.Job(t.Name(), func(c *guest.Ctx, _ none) (none, error) {
		calls++
		_ = guest.Do(c, fmt.Sprint("step ", calls), func() error { return nil })
		c.Sleep("z", time.Hour)
		return none{}, nil
	})
	if r := guesttest.Run(t, t.Name(), none{}, guesttest.Options{}); abi.CodeOf(r.Err) != abitest.CodeReplayDiverged {
		t.Errorf("%v", r.Err)
	}
}

func TestGuestIsAnABIGuest(t *testing.T) {
	guest.Job(t.Name(), func(c *guest.Ctx, in string) (string, error) {
		return guest.Step(c, "s", func() (string, error) { return in + "!", nil })
	})
	g := guesttest.Guest(guesttest.Capabilities{})
	m := abitest.NewMemory(abitest.Config{})
	out := abitest.Drive(context.Background(), g, m, t.Name(), []byte(`"hi"`))
	if out.Kind != abi.Done || string(out.Output) != `"hi!"` {
		t.Errorf("%v %s", out.Kind, out.Output)
	}
	if out := g.Run(context.Background(), m.Attempt("no such", nil), m); out.Kind != abi.Crashed {
		t.Errorf("%v", out.Kind)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	why := errors.New("why")
	cancel(why)
	if out := g.Run(ctx, m.Attempt(t.Name(), []byte(`"hi"`)), m); out.Kind != abi.Stopped || out.Err != why {
		t.Errorf("%v %v", out.Kind, out.Err)
	}
}
