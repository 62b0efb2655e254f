package guest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/abi/abitest"
	"github.com/jobrunner/runner/abi/guest"
	"github.com/jobrunner/runner/abi/guest/guesttest"
)

// run drives a handler to its end on a host in memory, whose clock moves when the run
// waits, and prints what came of it and what it asked of the host.
func run(c abitest.Config, can guesttest.Capabilities, handler func(*guest.Ctx, Order) (string, error)) {
	example = handler
	m := abitest.NewMemory(c)
	out := abitest.Drive(context.Background(), guesttest.Guest(can), m, "example", []byte(`{"ID":"o-1"}`))
	for _, call := range m.Transcript() {
		fmt.Println(call)
	}
	said := string(out.Output)
	if out.Kind != abi.Done {
		said = out.Failure.Code + ", " + out.Failure.Message + ": " + out.Failure.Fix
	}
	fmt.Printf("%s after %v: %s\n", out.Kind, m.Now().Sub(m.Start()), said)
}

type Order struct{ ID string }

var example func(*guest.Ctx, Order) (string, error)

func init() {
	guest.Job("example", func(ctx *guest.Ctx, o Order) (string, error) { return example(ctx, o) })
}

// A step that must not happen twice: an attempt that is cut off in its middle leaves it
// to a person.
func ExampleOnce() {
	run(abitest.Config{}, guesttest.Capabilities{}, func(ctx *guest.Ctx, o Order) (string, error) {
		return guest.Step(ctx, "charge", func() (string, error) {
			return charge(o) // is never called twice
		}, guest.Once())
	})
	// Output:
	// step_begin "charge" once
	// step_end "charge" "receipt of o-1"
	// done after 0s: "receipt of o-1"
}

func charge(o Order) (string, error) { return "receipt of " + o.ID, nil }

// A child is waited for no longer than its timeout. It is cancelled then, unless it may
// go on by itself.
func ExampleTimeout() {
	c := abitest.Config{Invoke: func(child abi.EnqueueParams) ([]byte, *abi.Failure) {
		return nil, &abi.Failure{Code: "X_CHILD_TIMEOUT", Message: "the child was not done in time"}
	}}
	run(c, guesttest.Capabilities{}, func(ctx *guest.Ctx, o Order) (string, error) {
		label, err := guest.Invoke[string](ctx, "print-label", o, guest.Timeout(time.Hour), guest.Abandon())
		if errors.Is(err, guest.ErrTimeout) {
			return "a person prints it", nil
		}
		return label, err
	})
	// Output:
	// invoke {"job":"print-label","input":{"ID":"o-1"},"abandon":true,"timeout_ms":3600000}
	// invoke {"job":"print-label","input":{"ID":"o-1"},"abandon":true,"timeout_ms":3600000}
	// done after 0s: "a person prints it"
}

// Children at most ten at a time, each with its own end; Map is for those that must all
// end well.
func ExampleInvokeAll() {
	c := abitest.Config{Invoke: func(child abi.EnqueueParams) ([]byte, *abi.Failure) {
		if strings.Contains(string(child.Input), "b") {
			return nil, &abi.Failure{Code: "X_NO_STREET", Message: "there is no street b"}
		}
		return json.RawMessage(`"label"`), nil
	}}
	run(c, guesttest.Capabilities{}, func(ctx *guest.Ctx, o Order) (string, error) {
		outcomes, err := guest.InvokeAll[string](ctx, 10,
			guest.Run{Job: "label", Input: "a"},
			guest.Run{Job: "label", Input: "b", Options: []guest.EnqueueOption{guest.Key("b")}},
		)
		if err != nil {
			return "", err
		}
		labels, err := guest.Map[string](ctx, "label", 10, []string{"c", "d"})
		return fmt.Sprint(outcomes[0].Value, " ", guest.CodeOf(outcomes[1].Err), " ", labels), err
	})
	// Output:
	// invoke [{"job":"label","input":"a"},{"job":"label","input":"b","key":"b"}]
	// invoke [{"job":"label","input":"a"},{"job":"label","input":"b","key":"b"}]
	// invoke [{"job":"label","input":"c"},{"job":"label","input":"d"}]
	// invoke [{"job":"label","input":"a"},{"job":"label","input":"b","key":"b"}]
	// invoke [{"job":"label","input":"c"},{"job":"label","input":"d"}]
	// done after 0s: "label X_NO_STREET [label label]"
}

// Ask, and wait for the answer, of which none is missed that comes while the question
// is asked.
func ExampleWaitEvent() {
	c := abitest.Config{Events: []abitest.Event{{Topic: "approval", Key: "o-1", Payload: []byte(`true`), After: 26 * time.Hour}}}
	run(c, guesttest.Capabilities{}, func(ctx *guest.Ctx, o Order) (string, error) {
		key := guest.EventKey(o.ID)
		if err := guest.Subscribe(ctx, "approval", key); err != nil {
			return "", err
		}
		if err := guest.Do(ctx, "ask", func() error { return nil }); err != nil {
			return "", err
		}
		yes, err := guest.WaitEvent[bool](ctx, "answer", "approval", 72*time.Hour, key)
		if errors.Is(err, guest.ErrTimeout) {
			return "nobody answered", nil
		}
		if err != nil {
			return "", err
		}
		return fmt.Sprint(yes), ctx.Publish("decided", yes, key)
	})
	// Output:
	// wait_event "subscribe approval" "approval" "o-1" -1ns
	// step_begin "ask"
	// step_end "ask" null
	// wait_event "answer" "approval" "o-1" 72h0m0s
	// wait_event "subscribe approval" "approval" "o-1" -1ns
	// step_begin "ask"
	// wait_event "answer" "approval" "o-1" 72h0m0s
	// publish "decided" "o-1" true
	// done after 26h0m0s: "true"
}

// A run that fails for good undoes what its steps did, the last first.
func ExampleCompensate() {
	run(abitest.Config{Compensates: true}, guesttest.Capabilities{}, func(ctx *guest.Ctx, o Order) (string, error) {
		trip, flights := o.ID, agency{ctx}
		ref, err := guest.Step(ctx, "flight", func() (string, error) {
			return flights.Book(trip)
		}, guest.Compensate(func(ref string) error {
			return flights.Cancel(ref)
		}))
		if err != nil {
			return "", err
		}
		if err := guest.Do(ctx, "hotel", func() error { return nil }, guest.Undo(func() error {
			ctx.Log("cancelled the hotel")
			return nil
		})); err != nil {
			return "", err
		}
		return ref, guest.Terminal(guest.WithFix(guest.Coded("X_NO_CAR", errors.New("no car is left")), "choose another day"))
	})
	// Output:
	// step_begin "flight"
	// step_end "flight" "LH400 for o-1"
	// step_begin "hotel"
	// step_end "hotel" null
	// compensate
	// step_begin "flight"
	// step_begin "hotel"
	// compensate
	// log 1 cancelled the hotel
	// step_end null
	// compensate
	// log 1 cancelled LH400 for o-1
	// step_end null
	// compensate
	// failed after 0s: X_NO_CAR, no car is left: choose another day
}

// agency stands for a service that books flights.
type agency struct{ ctx *guest.Ctx }

func (a agency) Book(trip string) (string, error) { return "LH400 for " + trip, nil }

func (a agency) Cancel(ref string) error {
	a.ctx.Logf("cancelled %s", ref)
	return nil
}

// What a failure asks for: to be tried later, without counting, or never again.
func ExampleRetryAfter() {
	answers := []error{guest.RateLimited(errors.New("429"), time.Minute), guest.RetryAfter(errors.New("closed"), time.Hour)}
	run(abitest.Config{}, guesttest.Capabilities{}, func(ctx *guest.Ctx, o Order) (string, error) {
		if len(answers) > 0 {
			err := answers[0]
			answers = answers[1:]
			return "", err
		}
		return fmt.Sprintf("attempt %d of %d, the last: %t", ctx.Attempt(), ctx.MaxAttempts(), ctx.FinalAttempt()), nil
	})
	// Output:
	// done after 1h1m0s: "attempt 2 of 3, the last: false"
}

// Runs for later, each with what its enqueuer may say of it.
func ExampleCtx_EnqueueMany() {
	run(abitest.Config{Tenant: "acme"}, guesttest.Capabilities{}, func(ctx *guest.Ctx, o Order) (string, error) {
		made, err := ctx.EnqueueMany(
			guest.Run{Job: "remind", Input: o, Options: []guest.EnqueueOption{guest.Delay(time.Hour), guest.Key("remind:" + o.ID)}},
			guest.Run{Job: "report", Input: o, Options: []guest.EnqueueOption{
				guest.At(time.Date(2030, 2, 1, 8, 0, 0, 0, time.UTC)), guest.Tenant(ctx.Tenant()), guest.Priority(-10),
			}},
		)
		if err != nil {
			return "", err
		}
		return made[0].ID, nil
	})
	// Output:
	// enqueue [{"job":"remind","input":{"ID":"o-1"},"key":"remind:o-1","delay_ms":3600000},{"job":"report","input":{"ID":"o-1"},"tenant":"acme","run_at":"2030-02-01T08:00:00Z","priority":-10}]
	// done after 0s: "child-1"
}

// Waits of days hold nothing but the run's row.
func ExampleCtx_SleepUntil() {
	run(abitest.Config{}, guesttest.Capabilities{}, func(ctx *guest.Ctx, o Order) (string, error) {
		ctx.Sleep("cool-off", 72*time.Hour)
		ctx.SleepUntil("morning", ctx.Now().Truncate(24*time.Hour).Add(32*time.Hour))
		return ctx.Now().Format(time.RFC3339), nil
	})
	// Output:
	// sleep "cool-off" 72h0m0s
	// sleep "cool-off" 72h0m0s
	// sleep_until "morning" 2030-01-05T08:00:00Z
	// sleep "cool-off" 72h0m0s
	// sleep_until "morning" 2030-01-05T08:00:00Z
	// done after 104h0m0s: "2030-01-05T08:00:00Z"
}

type Invoice struct{ Cents int }

// In init, for a type that steps return: the module's image then knows it already.
func ExampleWarm() {
	guest.Warm[Invoice]()
	run(abitest.Config{}, guesttest.Capabilities{}, func(ctx *guest.Ctx, o Order) (string, error) {
		i, err := guest.Step(ctx, "invoice", func() (Invoice, error) { return Invoice{Cents: 4200}, nil })
		return fmt.Sprint(i.Cents), err
	})
	// Output:
	// step_begin "invoice"
	// step_end "invoice" {"Cents":4200}
	// done after 0s: "4200"
}

// A secret and a request, inside a step, so that they are not repeated.
func ExampleCtx_HTTP() {
	can := guesttest.Capabilities{
		Secrets: map[string]string{"KEY": "s3cret"},
		HTTP: func(r guest.Request) (guest.Response, error) {
			return guest.Response{Status: 200, Body: []byte(`{"total":42}`)}, nil
		},
	}
	run(abitest.Config{}, can, func(ctx *guest.Ctx, o Order) (string, error) {
		total, err := guest.Step(ctx, "total", func() (int, error) {
			key, err := ctx.Secret("KEY")
			if err != nil {
				return 0, err
			}
			res, err := ctx.HTTP(guest.Request{URL: "https://api.example.com/" + o.ID, Header: map[string]string{"Authorization": key}})
			if err != nil {
				return 0, err
			}
			var into struct{ Total int }
			err = res.JSON(&into)
			return into.Total, err
		})
		return fmt.Sprint(total), err
	})
	// Output:
	// step_begin "total"
	// step_end "total" 42
	// done after 0s: "42"
}

// What a handler may know of its run, and say while it goes on.
func ExampleCtx_Progress() {
	run(abitest.Config{Tenant: "acme"}, guesttest.Capabilities{}, func(ctx *guest.Ctx, o Order) (string, error) {
		ctx.Progress(0.5, "half of the rows")
		ctx.LogAt(guest.LevelWarn, "row 7 has no street")
		_, bounded := ctx.Deadline()
		var dice [2]byte
		ctx.Random(dice[:])
		ctx.Log(fmt.Sprint(bounded, ctx.Features() != 0, ctx.Rand().IntN(6) < 6, len(dice)))
		return fmt.Sprint(ctx.RunID(), " of ", ctx.Job(), " in ", ctx.Queue(), " for ", ctx.Tenant(), ", attempt ", ctx.Meta().Attempt), nil
	})
	// Output:
	// progress 500 half of the rows
	// log 2 row 7 has no street
	// log 1 false true true 2
	// done after 0s: "run-1 of job in default for acme, attempt 1"
}

// What pages show of a handler stands in an example, besides what package guesttest
// builds and runs of them.
func TestPagesShowTheExamples(t *testing.T) {
	flat := func(text []byte) string {
		var b strings.Builder
		for line := range strings.Lines(string(text)) {
			b.WriteString(strings.TrimSpace(line) + "\n")
		}
		return b.String()
	}
	read := func(name string) []byte {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	source := flat(read("example_features_test.go"))
	for page, least := range map[string]int{"sagas.md": 1, "writing-a-handler.md": 2, "events.md": 1} {
		shown := 0
		for _, b := range regexp.MustCompile("(?s)```go\n(.*?)```").FindAllSubmatch(read("../../docs/"+page), -1) {
			code := flat(b[1])
			if strings.HasPrefix(code, "package ") || strings.Contains(code, "client.") || strings.Contains(code, "engine.") {
				continue // a whole file, or not a handler's
			}
			if shown++; !strings.Contains(source, code) {
				t.Errorf("%s: no example holds\n%s", page, b[1])
			}
		}
		if shown < least {
			t.Errorf("%s shows %d", page, shown)
		}
	}
}

// Every function, option and method that a handler may call stands in an example, which
// go test runs.
func TestEverythingThatAHandlerMayCallHasAnExample(t *testing.T) {
	shown := map[string]bool{}
	parse(t, "example*_test.go", func(_ string, f *ast.File) {
		ast.Inspect(f, func(n ast.Node) bool {
			if call, ok := n.(*ast.SelectorExpr); ok {
				shown[call.Sel.Name] = true
			}
			return true
		})
	})
	called := 0
	parse(t, "*.go", func(name string, f *ast.File) {
		if strings.HasSuffix(name, "_test.go") || strings.HasPrefix(name, "guest_") {
			return
		}
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || !fn.Name.IsExported() || !ofHandlers(fn) {
				continue
			}
			if called++; !shown[fn.Name.Name] {
				t.Errorf("%s: no example calls %s", name, fn.Name.Name)
			}
		}
	})
	if called < 40 {
		t.Errorf("only %d functions were found", called)
	}
}

// ofHandlers reports whether fn is a function, or a method of what handlers are given.
func ofHandlers(fn *ast.FuncDecl) bool {
	if fn.Recv == nil {
		return true
	}
	of := fn.Recv.List[0].Type
	if star, ok := of.(*ast.StarExpr); ok {
		of = star.X
	}
	name, ok := of.(*ast.Ident)
	return ok && (name.Name == "Ctx" || name.Name == "Response")
}

func parse(t *testing.T, pattern string, each func(name string, f *ast.File)) {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatal(pattern, err)
	}
	for _, name := range files {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		each(name, f)
	}
}
