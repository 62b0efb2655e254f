package cli_test

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// gates is a server whose requests wait until the script opens the gate that
// their path names. It is how a script knows that a step is under way, and
// decides when it ends. $GATE is its address. A request that waits long is told to
// come again, since no request lasts for ever; that one does not count.
//
//	gate await NAME [N]   until N requests (1) have come to the gate, from its start
//	gate open NAME        lets them through, and all that come later
type gates struct {
	server *httptest.Server

	mu   sync.Mutex
	more *sync.Cond
	came map[string]int
	open map[string]chan struct{}
}

type gatesKey struct{}

func newGates() *gates {
	g := &gates{came: map[string]int{}, open: map[string]chan struct{}{}}
	g.more = sync.NewCond(&g.mu)
	g.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := r.URL.Path[1:]
		g.mu.Lock()
		if r.Header.Get("Again") == "" {
			g.came[name]++
		}
		opened := g.gate(name)
		g.more.Broadcast()
		g.mu.Unlock()
		select {
		case <-opened:
		case <-r.Context().Done():
		case <-time.After(5 * time.Second):
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	return g
}

// gate is the channel that opening name closes. With mu held.
func (g *gates) gate(name string) chan struct{} {
	if g.open[name] == nil {
		g.open[name] = make(chan struct{})
	}
	return g.open[name]
}

func cmdGate(ts *testscript.TestScript, neg bool, args []string) {
	g := ts.Value(gatesKey{}).(*gates)
	if neg || len(args) < 2 || len(args) > 3 {
		ts.Fatalf("usage: gate await NAME [N] | gate open NAME")
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	switch args[0] {
	case "await":
		n := 1
		if len(args) == 3 {
			var err error
			n, err = strconv.Atoi(args[2])
			ts.Check(err)
		}
		for g.came[args[1]] < n {
			g.more.Wait()
		}
	case "open":
		close(g.gate(args[1]))
	default:
		ts.Fatalf("unknown verb %s", args[0])
	}
}
