// Command goguest is the guest of a benchmark written with the Go SDK: the same
// three handlers as the assembled one, with a Go runtime around them.
package main

import (
	"fmt"

	"github.com/jobrunner/runner/abi/guest"
)

func init() {
	guest.Job("noop", func(*guest.Ctx, any) (any, error) { return nil, nil })
	guest.Job("steps", steps)
	guest.Job("hello", func(ctx *guest.Ctx, _ any) (any, error) {
		ctx.Log("started")
		return nil, nil
	})
}

func main() {}

func steps(ctx *guest.Ctx, _ any) (any, error) {
	for i := range 5 {
		_, err := guest.Step(ctx, fmt.Sprintf("step-%d", i+1), func() (map[string]bool, error) {
			return map[string]bool{"ok": true}, nil
		})
		if err != nil {
			return nil, err
		}
	}
	return nil, nil
}
