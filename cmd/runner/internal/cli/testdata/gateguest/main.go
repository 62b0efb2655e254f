// Command gateguest is the handler module of the scripts: its steps say when
// they run, and one of them waits until the script lets it go on.
package main

import (
	"errors"
	"os"
	"strings"
	"time"

	"github.com/jobrunner/runner/abi/guest"
)

// version is set by the linker, so that two builds can be told apart.
var version = "v1"

func init() {
	guest.Job("gated", gated)
	guest.Job("nap", nap)
	guest.Job("flaky", flaky)
	guest.Job("chain", chain)
	guest.Job("book", book)
	guest.Job("patient", patient)
}

func main() {}

// Input is what each job is enqueued with.
type Input struct {
	Name     string `json:"name"`
	Password string `json:"password,omitempty"`
}

// Output says which version's code ran each step.
type Output struct {
	First   string `json:"first"`
	Last    string `json:"last"`
	Handler string `json:"handler"`
}

func step(ctx *guest.Ctx, name string, body func() error) (string, error) {
	return guest.Step(ctx, name, func() (string, error) {
		ctx.Log("body " + name)
		return version, body()
	})
}

// pass returns when the gate of that name is open. It asks again when it has
// waited for as long as the script's server, or the host, has a request last.
func pass(ctx *guest.Ctx, name string) error {
	r := guest.Request{URL: os.Getenv("GATE") + "/" + name}
	for {
		resp, err := ctx.HTTP(r)
		if err != nil && !errors.Is(err, guest.ErrTimeout) {
			return err
		}
		if err == nil && resp.Status != 503 {
			return nil
		}
		r.Header = map[string]string{"Again": "yes"}
	}
}

// gated makes a step, waits at its gate in the next, and makes a third.
func gated(ctx *guest.Ctx, in Input) (Output, error) {
	out := Output{Handler: version}
	var err error
	if out.First, err = step(ctx, "first", func() error { return nil }); err != nil {
		return out, err
	}
	if _, err := step(ctx, "gate", func() error { return pass(ctx, in.Name) }); err != nil {
		return out, err
	}
	out.Last, err = step(ctx, "last", func() error { return nil })
	return out, err
}

// nap sleeps for a year between two steps.
func nap(ctx *guest.Ctx, _ Input) (Output, error) {
	out := Output{Handler: version}
	var err error
	if out.First, err = step(ctx, "before", func() error { return nil }); err != nil {
		return out, err
	}
	ctx.Progress(0.5, "asleep")
	ctx.Sleep("year", 365*24*time.Hour)
	out.Last, err = step(ctx, "after", func() error { return nil })
	return out, err
}

// flaky fails in its first attempts, for good if its name says so.
func flaky(ctx *guest.Ctx, in Input) (string, error) {
	if _, err := step(ctx, "sure", func() error { return nil }); err != nil {
		return "", err
	}
	return step(ctx, "unsure", func() error {
		if in.Name == "hopeless" {
			return guest.Terminal(guest.WithFix(guest.Coded("X_HOPELESS", errors.New("it cannot work")), "give up"))
		}
		if ctx.Attempt() < 3 {
			return guest.Coded("X_FLAKY", errors.New("not yet"))
		}
		return nil
	})
}

// chain makes four steps, one after the other.
func chain(ctx *guest.Ctx, _ Input) (string, error) {
	for _, name := range []string{"a", "b", "c", "d"} {
		if _, err := step(ctx, name, func() error { return nil }); err != nil {
			return "", err
		}
	}
	return version, nil
}

// book makes two steps and fails for good, a year later if its name begins with
// nap; undoing the first waits at its gate.
func book(ctx *guest.Ctx, in Input) (string, error) {
	for _, name := range []string{"flight", "hotel"} {
		if err := guest.Do(ctx, name, func() error { return nil }, guest.Undo(func() error {
			ctx.Log("undo " + name)
			if name == "hotel" {
				return nil
			}
			return pass(ctx, in.Name)
		})); err != nil {
			return "", err
		}
	}
	if strings.HasPrefix(in.Name, "nap") {
		ctx.Sleep("year", 365*24*time.Hour)
	}
	return "", guest.Terminal(guest.Coded("X_FULL", errors.New("no car")))
}

// patient invokes a nap of a year, for which it has an hour, or more than a year if its
// name says so, or lets it go on; then it waits for an event that never comes, for two.
func patient(ctx *guest.Ctx, in Input) (string, error) {
	how := []guest.EnqueueOption{guest.Timeout(time.Hour)}
	switch in.Name {
	case "patient":
		how[0] = guest.Timeout(400 * 24 * time.Hour)
	case "lenient":
		how = append(how, guest.Abandon())
	}
	said := "it woke"
	if _, err := guest.Invoke[Output](ctx, "nap", Input{Name: "child"}, how...); errors.Is(err, guest.ErrTimeout) {
		said = guest.CodeOf(err)
	} else if err != nil {
		return "", err
	}
	if _, err := guest.WaitEvent[bool](ctx, "answer", "never", 2*time.Hour); !errors.Is(err, guest.ErrTimeout) {
		return "", err
	}
	return said + ", and nobody answered", nil
}
