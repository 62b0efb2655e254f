package cli

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/jobrunner/runner/engine/store"
)

// A count that stopped at its bound is not shown as if it were all there is.
func TestQueuesSayWhereCountingStopped(t *testing.T) {
	b := store.DefaultStatsBounds()
	var all, ready, timed store.QueueStats
	ready.AddReady(b, b.Ready)
	timed.AddTimed(b, 1, b.Timed-1, 0)
	all.AddTimed(b, 1, 2, 3)
	all.Queue, ready.Queue, timed.Queue = "all", "ready", "timed"
	views := queueViews(store.Stats{Queues: []store.QueueStats{all, ready, timed}}, nil)

	var text, doc bytes.Buffer
	e := &env{Params: Params{Stdout: &text}}
	if err := e.printQueues(views, nil, time.Now()); err != nil {
		t.Fatal(err)
	}
	var got []string
	for line := range strings.Lines(text.String()) {
		got = append(got, strings.Join(strings.Fields(line), " "))
	}
	want := []string{"QUEUE READY DELAYED SUSPENDED RUNNING DEAD", "all 1 2 3 0 0", "ready 100000+ 0 0 0 0", "timed 1 9999+ 0+ 0 0"}
	for i, w := range want {
		if i >= len(got) || !strings.HasPrefix(got[i], w) {
			t.Errorf("line %d is not %q:\n%s", i, w, text.String())
		}
	}

	e = &env{Params: Params{Stdout: &doc}, json: true}
	if err := e.printQueues(views, nil, time.Now()); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(doc.String(), `"at_least"`); n != 2 {
		t.Errorf("%d queues say at_least:\n%s", n, doc.String())
	}
}
