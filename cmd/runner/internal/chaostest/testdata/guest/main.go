// Command guest is the handler that the chaos test runs: three steps, each of
// which has an effect outside and remembers the token that it was given for it.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/jobrunner/runner/abi/guest"
)

func init() { guest.Job("effects", effects) }

func main() {}

// Input is what a run is enqueued with.
type Input struct {
	Tenant string `json:"tenant"`
	Nap    bool   `json:"nap"` // sleep after the first step
}

// Effect is what a step tells the effects server.
type Effect struct {
	Run     string   `json:"run"`
	Tenant  string   `json:"tenant"`
	Attempt int      `json:"attempt"`
	Timed   bool     `json:"timed"` // the attempt has a deadline that it may well meet
	Step    int      `json:"step"`
	Before  []string `json:"before"` // tokens of the steps before, as this attempt has them
}

func effects(ctx *guest.Ctx, in Input) ([]string, error) {
	tokens := []string{}
	e := Effect{Run: ctx.RunID(), Tenant: in.Tenant, Attempt: ctx.Attempt(), Timed: ctx.Job() == "timed"}
	for i, name := range []string{"a", "b", "c"} {
		e.Step, e.Before = i, tokens
		token, err := guest.Step(ctx, name, func() (string, error) { return effect(ctx, e) })
		if err != nil {
			return nil, err
		}
		tokens = append(tokens, token)
		if i == 0 && in.Nap {
			ctx.Sleep("nap", 300*time.Millisecond)
		}
	}
	return tokens, nil
}

func effect(ctx *guest.Ctx, e Effect) (string, error) {
	body, err := json.Marshal(e)
	if err != nil {
		return "", err
	}
	resp, err := ctx.HTTP(guest.Request{Method: "POST", URL: os.Getenv("EFFECTS"), Body: body, Timeout: time.Minute})
	switch {
	case err != nil:
		return "", err
	case resp.Status != 200:
		return "", fmt.Errorf("the effects server answers %d to %s", resp.Status, resp.Body)
	case len(resp.Body) == 0:
		return "", errors.New("the effects server gives no token")
	}
	return string(resp.Body), nil
}
