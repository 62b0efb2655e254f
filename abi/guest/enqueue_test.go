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

func TestEnqueueAnswersTheSameIDInEveryAttempt(t *testing.T) {
	var ids []string
	r := job(t, none{}, guesttest.Options{}, func(c *guest.Ctx, _ none) (none, error) {
		id, err := c.Enqueue("child", map[string]int{"n": 1}, guest.Delay(time.Hour), guest.Key("k"), guest.Tenant("acme"), guest.Priority(-5))
		ids = append(ids, id)
		if err == nil && c.Attempt() == 1 {
			err = errors.New("again")
		}
		return none{}, err
	})
	if r.Err != nil || len(r.Enqueued) != 1 || len(ids) != 3 || ids[0] != ids[1] || ids[0] == "" {
		t.Fatalf("%v, ids %q, %+v", r.Err, ids, r.Enqueued)
	}
	p := r.Enqueued[0]
	if p.Job != "child" || string(p.Input) != `{"n":1}` || p.DelayMS != 3_600_000 || p.Key != "k" || p.Tenant != "acme" || *p.Priority != -5 {
		t.Errorf("%+v", p)
	}
}

func TestEnqueueInAStepVanishesWithItsFailure(t *testing.T) {
	r := job(t, none{}, guesttest.Options{}, func(c *guest.Ctx, _ none) (none, error) {
		return none{}, guest.Do(c, "s", func() error {
			if _, err := c.Enqueue("child", c.Attempt()); err != nil {
				return err
			}
			if err := c.Publish("topic", c.Attempt()); err != nil {
				return err
			}
			if c.Attempt() == 1 {
				return errors.New("again")
			}
			return nil
		})
	})
	if r.Err != nil || len(r.Enqueued) != 1 || string(r.Enqueued[0].Input) != "2" {
		t.Errorf("%v, %+v", r.Err, r.Enqueued)
	}
	if len(r.Published) != 1 || string(r.Published[0].Payload) != "2" || r.Published[0].Topic != "topic" {
		t.Errorf("%+v", r.Published)
	}
}

func TestEnqueueManyTellsWhatWasThereAlready(t *testing.T) {
	at := time.Date(2031, 1, 2, 3, 4, 5, 0, time.UTC)
	r := job(t, none{}, guesttest.Options{}, func(c *guest.Ctx, _ none) (string, error) {
		if rs, err := c.EnqueueMany(); rs != nil || err != nil {
			return "", fmt.Errorf("none: %v %w", rs, err)
		}
		k := []guest.EnqueueOption{guest.Key("k")}
		rs, err := c.EnqueueMany(guest.Run{Job: "a", Options: k}, guest.Run{Job: "b", Options: []guest.EnqueueOption{guest.At(at)}}, guest.Run{Job: "a", Options: k})
		if err != nil {
			return "", err
		}
		return fmt.Sprint(rs[0].Deduped, rs[1].Deduped, rs[2].Deduped, rs[0].ID == rs[2].ID), nil
	})
	if string(r.Output) != `"false false true true"` || len(r.Enqueued) != 2 || !r.Enqueued[1].RunAt.Equal(at) || string(r.Enqueued[0].Input) != "null" {
		t.Errorf("%s, %v, %+v", r.Output, r.Err, r.Enqueued)
	}
}

func TestRefusalsAreErrorsByName(t *testing.T) {
	o := guesttest.Options{Jobs: []string{"known"}, MaxAttempts: 3, Unsupported: abi.FeaturePublish}
	for _, c := range []struct {
		name string
		call func(c *guest.Ctx) error
		is   error
		code string
	}{
		{"unknown job", func(c *guest.Ctx) error { _, err := c.Enqueue("unknwon", 1); return err }, guest.ErrInvalid, "X_JOB_UNKNOWN"},
		{"large input", func(c *guest.Ctx) error {
			_, err := c.Enqueue("known", strings.Repeat("x", abi.MaxInput))
			return err
		}, guest.ErrLimit, "X_LIMIT_EXCEEDED"},
		{"two times", func(c *guest.Ctx) error {
			_, err := c.Enqueue("known", 1, guest.Delay(1), guest.At(time.Now()))
			return err
		}, guest.ErrInvalid, "X_REQUEST_INVALID"},
		{"unsupported", func(c *guest.Ctx) error { return c.Publish("t", 1) }, guest.ErrUnsupported, ""},
		{"secret", func(c *guest.Ctx) error { _, err := c.Secret("S"); return err }, guest.ErrDenied, ""},
		{"more children than records", func(c *guest.Ctx) error {
			_, err := guest.Map[none](c, "known", 0, make([]int, abi.MaxSteps+1))
			return err
		}, guest.ErrLimit, "X_STEPS_EXCEEDED"},
		{"http outside a step", func(c *guest.Ctx) error {
			_, err := c.HTTP(guest.Request{URL: "https://a.example/"})
			return err
		}, guest.ErrInsideStepOnly, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got error
			r := job(t, none{}, o, func(ctx *guest.Ctx, _ none) (none, error) {
				// The last result of an earlier call must not be taken for the
				// refusal's text.
				ctx.Meta()
				got = c.call(ctx)
				return none{}, got
			})
			var he *guest.HostError
			if !errors.Is(got, c.is) || !errors.As(got, &he) || guest.CodeOf(got) != c.code {
				t.Errorf("%T %v, code %q", got, got, guest.CodeOf(got))
			}
			if r.Attempts != 1 || abi.CodeOf(r.Err) != c.code {
				t.Errorf("%v after %d attempts: what the host refuses, it will refuse again", r.Err, r.Attempts)
			}
		})
	}
}

func TestInputThatIsNoJSONIsTerminal(t *testing.T) {
	r := job(t, none{}, guesttest.Options{}, func(c *guest.Ctx, _ none) (none, error) {
		_, err := c.Enqueue("child", make(chan int))
		return none{}, err
	})
	if r.Attempts != 1 || !strings.Contains(r.Err.Error(), "the input for job child cannot be written as JSON") {
		t.Errorf("%v", r.Err)
	}
}

func TestAnInvokeThatTakesTooLongIsATimeout(t *testing.T) {
	o := guesttest.Options{Invoke: func(job string, input json.RawMessage) (any, *abi.Failure) {
		return nil, &abi.Failure{Code: "X_CHILD_TIMEOUT", Message: "the child was not done in time, and was cancelled"}
	}}
	r := job(t, none{}, o, func(c *guest.Ctx, _ none) (string, error) {
		_, err := guest.Invoke[int](c, "slow", 1, guest.Timeout(90*time.Second))
		return fmt.Sprintf("%t %t %s", errors.Is(err, guest.ErrTimeout), errors.Is(err, guest.ErrFailed), guest.CodeOf(err)), nil
	})
	if string(r.Output) != `"true true X_CHILD_TIMEOUT"` || len(r.Enqueued) != 1 || r.Enqueued[0].TimeoutMS != 90_000 {
		t.Errorf("%s, %v, %+v", r.Output, r.Err, r.Enqueued)
	}
}

func TestInvokeReturnsTheChildsOutputOrFailure(t *testing.T) {
	type out struct{ Double int }
	o := guesttest.Options{Invoke: func(job string, input json.RawMessage) (any, *abi.Failure) {
		if job == "bad" {
			return nil, &abi.Failure{Code: "X_CHILD", Message: "child broke"}
		}
		var n int
		_ = json.Unmarshal(input, &n)
		return out{2 * n}, nil
	}}
	r := job(t, none{}, o, func(c *guest.Ctx, _ none) (string, error) {
		a, err := guest.Invoke[out](c, "double", 21)
		if err != nil {
			return "", err
		}
		_, err = guest.Invoke[out](c, "bad", 1)
		return fmt.Sprint(a.Double, errors.Is(err, guest.ErrFailed), errors.Is(err, guest.Code("X_CHILD"))), nil
	})
	if string(r.Output) != `"42 true true"` || r.Runs != 3 || len(r.Enqueued) != 2 {
		t.Errorf("%s, %v, %d runs", r.Output, r.Err, r.Runs)
	}
}

func TestHTTPCrossesWithItsBytes(t *testing.T) {
	var got guest.Request
	o := guesttest.Options{
		Secrets: map[string]string{"KEY": "s3cret"},
		HTTP: func(r guest.Request) (guest.Response, error) {
			got = r
			return guest.Response{Status: 201, Header: map[string]string{"A": "b"}, Body: []byte("{\"n\":\xff}")}, nil
		},
	}
	r := job(t, none{}, o, func(c *guest.Ctx, _ none) (string, error) {
		return guest.Step(c, "call", func() (string, error) {
			key, err := c.Secret("KEY")
			if err != nil {
				return "", err
			}
			res, err := c.HTTP(guest.Request{
				Method: "POST", URL: "https://api.example.com/v1", Header: map[string]string{"Authorization": key},
				Body: []byte("\x00\xfe"), Timeout: time.Second,
			})
			return fmt.Sprint(res.Status, res.Header["A"], len(res.Body)), err
		})
	})
	if string(r.Output) != `"201b7"` || got.Method != "POST" || string(got.Body) != "\x00\xfe" || got.Timeout != time.Second || got.Header["Authorization"] != "s3cret" {
		t.Errorf("%s, %v, %+v", r.Output, r.Err, got)
	}
}

func TestFailedHTTPIsRetried(t *testing.T) {
	calls := 0
	o := guesttest.Options{HTTP: func(guest.Request) (guest.Response, error) {
		if calls++; calls == 1 {
			return guest.Response{}, errors.New("connection refused")
		}
		return guest.Response{Status: 200}, nil
	}}
	r := job(t, none{}, o, func(c *guest.Ctx, _ none) (int, error) {
		return guest.Step(c, "call", func() (int, error) {
			res, err := c.HTTP(guest.Request{URL: "https://api.example.com/"})
			return res.Status, err
		})
	})
	if string(r.Output) != "200" || r.Attempts != 2 {
		t.Errorf("%s, %v after %d attempts", r.Output, r.Err, r.Attempts)
	}
}
