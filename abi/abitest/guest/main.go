// Command guest is the conformance guest of package abitest: a module written
// in Go against package guest, with one handler for each thing that can only be
// told from a real toolchain's module. It is built by the tests that load it.
package main

import (
	"fmt"
	"os"

	"github.com/jobrunner/runner/abi/guest"
)

func main() {}

// none is for handlers without input or output.
type none struct{}

func init() {
	guest.Job("story", story)
	guest.Job("facts", facts)
	guest.Job("globals", globals)

	guest.Job("fail", fail)
	guest.Job("panic", func(*guest.Ctx, none) (none, error) { panic("boom") })
	guest.Job("nil", func(_ *guest.Ctx, _ none) (int, error) {
		var p *int
		return *p, nil
	})
	guest.Job("panic-elsewhere", func(*guest.Ctx, none) (none, error) {
		done := make(chan none)
		go func() { panic("in a goroutine") }()
		return <-done, nil
	})
	guest.Job("deadlock", func(*guest.Ctx, none) (none, error) { return <-make(chan none), nil })
	guest.Job("recursion", func(*guest.Ctx, none) (int, error) { return deeper(0, [64]int{}), nil })
	guest.Job("memory", func(*guest.Ctx, none) (int, error) {
		var all [][]byte
		for {
			//lint:ignore SA4010 it is there to fill memory
			all = append(all, make([]byte, 1<<20))
		}
	})
	guest.Job("spin", func(c *guest.Ctx, _ none) (none, error) {
		c.Log("spinning")
		//lint:ignore SA5002 it is there to be stopped
		for {
		}
	})
	guest.Job("exit", func(_ *guest.Ctx, code int) (none, error) {
		os.Exit(code)
		return none{}, nil
	})
	guest.Job("print", func(_ *guest.Ctx, lines int) (none, error) {
		for i := range lines {
			fmt.Println("line", i)
		}
		return none{}, nil
	})

	guest.Job("time", timers)
	guest.Job("chance", chance)
	guest.Job("refused", refused)
}

func deeper(n int, room [64]int) int {
	room[n%64] = n
	//lint:ignore SA5007 it is there to overflow
	return deeper(n+1, room) + room[(n+1)%64]
}

// count is what no attempt may find other than 0.
var count int

func globals(*guest.Ctx, none) (int, error) {
	count++
	return count, nil
}
