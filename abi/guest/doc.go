// Package guest is the SDK for handlers written in Go: functions that the runner
// calls durably, compiled to one Wasm module.
//
//	package main
//
//	import (
//		"time"
//
//		"github.com/jobrunner/runner/abi/guest"
//	)
//
//	type Input struct{ OrgID string }
//	type Output struct{ DigestRun string }
//	type Digest struct{ URL string }
//
//	func init() { guest.Job("onboard-org", onboard) }
//
//	func onboard(ctx *guest.Ctx, in Input) (Output, error) {
//		url, err := guest.Step(ctx, "provision", func() (string, error) {
//			return provision(in.OrgID)
//		})
//		if err != nil {
//			return Output{}, err
//		}
//		ctx.Sleep("cool-off", 72*time.Hour)
//		id, err := ctx.Enqueue("send-digest", Digest{URL: url}, guest.Delay(time.Hour))
//		return Output{DigestRun: id}, err
//	}
//
//	func main() {}
//
// It is built with
//
//	GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared -ldflags="-s -w" -o onboard.wasm .
//
// The example below runs it and shows the calls that it comes to. Built natively
// it is the same package with a host that package guesttest provides, so a
// handler is tested with go test alone.
//
// # What a handler must know
//
// A handler runs from its start on every attempt: after a failure, after a
// sleep, after its worker died. What a Step has done is not done again; its
// recorded result is returned instead. Hence everything that has an effect, or
// that may turn out differently the next time, belongs into a step, and the
// code between steps must take the same path every time. Ctx.Now, Ctx.Random
// and Ctx.Rand are the same in every attempt when they are called between
// steps; package math/rand is the same in every run, so do not make ids with
// it.
//
// A step's effect and its record are not one transaction unless the effect is
// an Enqueue or a Publish: a worker that dies between the two runs the body
// again. Make bodies idempotent, or say Once.
//
// Memory does not last: each attempt starts from the module as it was after
// its init functions. Nothing put into a global variable survives.
//
// While a handler sleeps or waits it occupies nothing; the host unwinds it
// without its noticing, so deferred functions do not run then.
//
// A Ctx is for the goroutine that the handler was called in.
//
// # Errors
//
// The error that a handler or a step's body returns decides what happens next:
// any error is tried again while the job's retry policy allows, unless it says
// otherwise through Terminal, RetryAfter or RateLimited. Coded and WithFix add
// what operators and callers see. They compose, and are found however deep an
// error is wrapped.
package guest
