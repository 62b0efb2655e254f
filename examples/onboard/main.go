// Command onboard is a handler module with two jobs: onboard-org takes a new
// organisation through its first days, send-digest writes to it.
//
//	GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared -ldflags="-s -w" -o bin/onboard.wasm ./examples/onboard
package main

import (
	"os"
	"time"

	"github.com/jobrunner/runner/abi/guest"
)

func init() {
	guest.Job("onboard-org", onboard)
	guest.Job("send-digest", sendDigest)
	guest.Warm[Org]()
}

func main() {}

// How long a new organisation is left alone, and how long after that the digest
// goes out. The manifest may shorten them, as in env = { COOL_OFF = "2s" }: a
// handler's environment is what its module was granted, and nothing else.
var (
	coolOff     = granted("COOL_OFF", 72*time.Hour)
	digestAfter = granted("DIGEST_AFTER", time.Hour)
)

func granted(name string, otherwise time.Duration) time.Duration {
	if d, err := time.ParseDuration(os.Getenv(name)); err == nil {
		return d
	}
	return otherwise
}

// Input is what onboard-org is enqueued with.
type Input struct {
	OrgID string `json:"orgId"`
	Plan  string `json:"plan"`
}

// Output is what it leaves behind.
type Output struct {
	Org       Org       `json:"org"`
	DigestRun string    `json:"digestRun"`
	DoneAt    time.Time `json:"doneAt"`
}

// Org is a provisioned organisation.
type Org struct {
	ID    string `json:"id"`
	URL   string `json:"url"`
	Seats int    `json:"seats"`
}

// onboard reads like a script of three days. It is called again after every
// wait and every failure, and each step that is done answers from its record.
func onboard(ctx *guest.Ctx, in Input) (Output, error) {
	org, err := guest.Step(ctx, "provision", func() (Org, error) {
		ctx.Log("body provision")
		return provision(in)
	})
	if err != nil {
		return Output{}, err
	}
	ctx.Progress(0.3, "provisioned")

	// An effect that must never happen twice says so: if the worker dies in the
	// middle of it, the run stops for a person to look at.
	if err := guest.Do(ctx, "welcome-mail", func() error {
		ctx.Log("body welcome-mail")
		return nil // here a mail would be sent
	}, guest.Once()); err != nil {
		return Output{}, err
	}
	ctx.Progress(0.5, "waiting until they have looked around")

	ctx.Sleep("cool-off", coolOff)

	// Enqueued inside the step, the child exists if and only if the step is
	// recorded.
	run, err := guest.Step(ctx, "schedule-digest", func() (string, error) {
		ctx.Log("body schedule-digest")
		return ctx.Enqueue("send-digest", Digest{OrgID: org.ID, URL: org.URL}, guest.Delay(digestAfter))
	})
	if err != nil {
		return Output{}, err
	}
	return Output{Org: org, DigestRun: run, DoneAt: ctx.Now()}, nil
}
