// Command goguest is a module of handlers that do what handlers do, and what
// they should not.
package main

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/jobrunner/runner/abi/guest"
)

type in struct {
	N   int    `json:"n"`
	Org string `json:"org"`
}

type out struct {
	OK bool   `json:"ok"`
	ID string `json:"id"`
	N  int    `json:"n"`
}

// runs counts handler calls in this memory: it must be 1 in each.
var runs int

var sink []byte

func main() {}

func init() {
	guest.Job("noop", func(*guest.Ctx, in) (out, error) { return out{OK: true}, nil })
	guest.Job("signup", signup)
	guest.Job("panic", func(*guest.Ctx, in) (out, error) { panic("boom") })
	guest.Job("nil", func(*guest.Ctx, in) (out, error) {
		var p *out
		return *p, nil
	})
	guest.Job("panic-elsewhere", func(*guest.Ctx, in) (out, error) {
		go panic("boom elsewhere")
		time.Sleep(time.Second)
		return out{}, nil
	})
	guest.Job("deadlock", func(*guest.Ctx, in) (out, error) {
		<-make(chan int)
		return out{}, nil
	})
	guest.Job("recurse", func(*guest.Ctx, in) (out, error) { return out{N: recurse(1)}, nil })
	guest.Job("alloc", func(_ *guest.Ctx, i in) (out, error) {
		sink = make([]byte, i.N<<20)
		for k := range sink {
			sink[k] = byte(k)
		}
		return out{OK: true}, nil
	})
	guest.Job("exit", func(_ *guest.Ctx, i in) (out, error) {
		os.Exit(i.N)
		return out{}, nil
	})
	guest.Job("spin", func(c *guest.Ctx, i in) (out, error) {
		if _, err := guest.Step(c, "spinning", func() (bool, error) { return true, nil }); err != nil {
			return out{}, err
		}
		for n := 0; ; n++ {
			runs += n
		}
	})
	guest.Job("work", func(c *guest.Ctx, i in) (out, error) {
		h := uint64(14695981039346656037)
		for n := range i.N * 1_000_000 {
			h = (h ^ uint64(n)) * 1099511628211
		}
		return out{OK: true, N: int(h >> 40)}, nil
	})
	guest.Job("print", func(_ *guest.Ctx, i in) (out, error) {
		for n := range i.N {
			fmt.Println("line", n)
		}
		fmt.Fprintln(os.Stderr, "that was all")
		return out{OK: true}, nil
	})
	guest.Job("nap", func(*guest.Ctx, in) (out, error) {
		t := time.Now()
		time.Sleep(time.Hour)
		return out{OK: true, N: int(time.Since(t) / time.Minute)}, nil
	})
	guest.Job("goroutines", func(_ *guest.Ctx, i in) (out, error) {
		c := make(chan int)
		for n := range i.N {
			go func() {
				time.Sleep(time.Duration(n) * time.Millisecond)
				select {
				case c <- n:
				case <-time.After(time.Hour):
				}
			}()
		}
		sum := 0
		for range i.N {
			sum += <-c
		}
		return out{OK: true, N: sum}, nil
	})
	guest.Job("leave-goroutine", func(*guest.Ctx, in) (out, error) {
		go func() {
			for {
				runs++
				time.Sleep(time.Microsecond)
			}
		}()
		runs++
		return out{OK: true, N: runs}, nil
	})
	guest.Job("gc", func(_ *guest.Ctx, i in) (out, error) {
		for range i.N {
			sink = make([]byte, 1<<20)
			runtime.GC()
		}
		return out{OK: true}, nil
	})
	guest.Job("ids", func(*guest.Ctx, in) (out, error) {
		b := make([]byte, 16)
		rand.Read(b)
		m := map[int]bool{}
		for n := range 20 {
			m[n] = true
		}
		var order []string
		for n := range m {
			order = append(order, fmt.Sprint(n))
		}
		return out{OK: true, ID: hex.EncodeToString(b) + " " + strings.Join(order, ",") + " " + time.Now().UTC().Format(time.RFC3339)}, nil
	})
	guest.Job("env", func(*guest.Ctx, in) (out, error) { return out{OK: true, ID: os.Getenv("REGION")}, nil })
	guest.Job("fail", func(*guest.Ctx, in) (out, error) { return out{}, guest.Terminal(errors.New("no good")) })
}

func recurse(n int) int {
	if n == 0 {
		return 0
	}
	return recurse(n+1) + 1
}

// signup is the handler that the figures of this package are about: two steps,
// a sleep and an enqueue.
func signup(c *guest.Ctx, i in) (out, error) {
	if runs++; runs != 1 {
		return out{}, fmt.Errorf("this memory ran %d times", runs)
	}
	id, err := guest.Step(c, "create", func() (string, error) { return "org_" + i.Org, nil })
	if err != nil {
		return out{}, err
	}
	n, err := guest.Step(c, "count", func() (int, error) { return i.N + 1, nil })
	if err != nil {
		return out{}, err
	}
	c.Sleep("cooldown", 72*time.Hour)
	if _, err := c.Enqueue("digest", map[string]any{"org": i.Org}); err != nil {
		return out{}, err
	}
	return out{OK: true, ID: id, N: n}, nil
}
