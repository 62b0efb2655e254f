package main

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	mathrand "math/rand/v2"
	"strings"
	"time"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/abi/guest"
)

// Facts are what a handler can find out about its run.
type Facts struct {
	Meta     abi.Meta `json:"meta"`
	Attempt  int      `json:"attempt"`
	Final    bool     `json:"final"`
	Features uint64   `json:"features"`
	Input    string   `json:"input"`
}

func facts(c *guest.Ctx, in string) (Facts, error) {
	return Facts{c.Meta(), c.Attempt(), c.FinalAttempt(), uint64(c.Features()), in}, nil
}

// timers uses Go's own clock between steps, where it is virtual.
func timers(c *guest.Ctx, _ none) (string, error) {
	start := time.Now()
	results := make(chan int)
	for i := range 20 {
		go func() {
			time.Sleep(time.Duration(20-i) * time.Minute)
			results <- i
		}()
	}
	last := 0
	for range 20 {
		select {
		case last = <-results:
		case <-time.After(time.Hour):
			return "", errors.New("a goroutine overslept")
		}
	}
	if took := time.Since(start); took < 20*time.Minute || took > 21*time.Minute {
		return "", errors.New("it took " + took.String())
	}
	if last != 0 {
		return "", errors.New("the longest sleeper was not the last")
	}
	return "slept", nil
}

// Chance is what the sources of randomness answered, between steps and inside.
type Chance struct {
	Crypto   string `json:"crypto"`
	Ctx      uint64 `json:"ctx"`
	InStep   string `json:"in_step"`
	MathRand uint64 `json:"-"` // the same in every run of one module; nothing to compare
}

func chance(c *guest.Ctx, _ none) (Chance, error) {
	var b [8]byte
	_, _ = rand.Read(b[:])
	out := Chance{Crypto: hex.EncodeToString(b[:]), Ctx: c.Rand().Uint64(), MathRand: mathrand.Uint64()}
	var err error
	out.InStep, err = guest.Step(c, "s", func() (string, error) {
		var b [8]byte
		_, _ = rand.Read(b[:])
		return hex.EncodeToString(b[:]), nil
	})
	return out, err
}

// refused asks for what it must not have and reports each answer.
func refused(c *guest.Ctx, _ none) (map[string]string, error) {
	out := map[string]string{}
	note := func(what string, err error) {
		for name, target := range map[string]error{
			"denied": guest.ErrDenied, "limit": guest.ErrLimit, "inside": guest.ErrInsideStepOnly,
			"outside": guest.ErrOutsideStepOnly, "unsupported": guest.ErrUnsupported, "invalid": guest.ErrInvalid,
		} {
			if errors.Is(err, target) {
				out[what] = strings.TrimSpace(name + " " + guest.CodeOf(err))
				return
			}
		}
		out[what] = "other"
	}
	_, err := c.Secret("KEY")
	note("secret", err)
	_, err = c.HTTP(guest.Request{URL: "https://api.example.com/"})
	note("http outside a step", err)
	_ = guest.Do(c, "s", func() error {
		_, err := c.HTTP(guest.Request{URL: "https://api.example.com/"})
		note("http", err)
		_, err = guest.Invoke[int](c, "child", 1)
		note("invoke inside a step", err)
		return nil
	})
	_, err = c.Enqueue("no-such-job", 1)
	note("unknown job", err)
	_, err = c.Enqueue("child", strings.Repeat("x", abi.MaxInput))
	note("large input", err)
	note("publish", c.Publish("t", 1))
	return out, nil
}
