package worker_test

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/internal/enginetest"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/queue"
	"github.com/jobrunner/runner/engine/worker"
)

// A run that sleeps and fails once stays in the trace of its enqueue. A guest and
// what it enqueues are under its attempt. (TR2)
func TestARunStaysInTheTraceOfItsEnqueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const asked = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
		var told []string // what each attempt's guest was told
		r := newRig(t, handlers{
			"child": func(*task) (any, error) { return nil, nil },
			"j": func(t *task) (any, error) {
				told = append(told, t.Attempt.Meta.Traceparent)
				if err := t.Sleep("nap", time.Hour); err != nil {
					return nil, err
				}
				_, err := t.Step("send", func() (any, error) { return t.Enqueue(abi.EnqueueParams{Job: "child"}) })
				if err == nil && t.Attempt.Meta.Attempt == 1 {
					err = errors.New("again")
				}
				return nil, err
			},
		}, nil)
		tracer := &enginetest.Tracer{}
		r.queue = queue.New(queue.Config{Store: r.db, Manifest: r.deploy.Manifest, Tracer: tracer})
		r.work(func(c *worker.Config) { c.Tracer, c.Queue = tracer, r.queue })
		res, err := r.queue.Enqueue(t.Context(), queue.Request{Job: "j", Traceparent: asked})
		r.must(err)
		r.ended(r.settles(res.ID), job.Done, "", 2)

		enqueues := tracer.Named("enqueue j")
		if len(enqueues) != 1 || enqueues[0].Parent != asked || r.get(res.ID).Traceparent != enqueues[0].ID {
			t.Fatalf("the enqueue made %+v, and the run has %s", enqueues, r.get(res.ID).Traceparent)
		}
		attempts := tracer.Named("attempt j")
		if len(attempts) != 3 {
			t.Fatalf("%d attempts: one that slept, one that failed, one that ended", len(attempts))
		}
		for i, a := range attempts {
			if a.Parent != enqueues[0].ID || told[i] != a.ID {
				t.Errorf("attempt %d is under %s, and its guest was told %s", i+1, a.Parent, told[i])
			}
		}
		sleeps := tracer.Named("sleep")
		if len(sleeps) != 1 || sleeps[0].Parent != enqueues[0].ID || sleeps[0].Ending.At.Sub(sleeps[0].At) < time.Hour {
			t.Errorf("sleeps %+v", sleeps)
		}
		steps, sent := tracer.Named("step"), tracer.Named("enqueue")
		if len(steps) != 1 || steps[0].Parent != attempts[1].ID || len(sent) != 1 || sent[0].Parent != steps[0].ID {
			t.Fatalf("steps %+v, which sent %+v", steps, sent)
		}
		children := r.list("child", res.ID)
		if len(children) != 1 || r.get(children[0]).Traceparent != sent[0].ID {
			t.Fatalf("children %v", children)
		}
		r.settles(children[0])
		if under := tracer.Named("attempt child"); len(under) != 1 || under[0].Parent != sent[0].ID {
			t.Errorf("the child's attempts %+v", under)
		}
		if open := tracer.Open(); len(open) != 0 {
			t.Errorf("%v did not end", open)
		}
	})
}

// What is undone has spans too. (TR2)
func TestAnUndoingHasSpans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &saga{}
		r := newRig(t, handlers{"j": s.run}, compensates(1))
		tracer := &enginetest.Tracer{}
		r.work(func(c *worker.Config) { c.Tracer = tracer })
		r.settles(r.enqueue("j"))
		attempts, undone := tracer.Named("attempt j"), tracer.Named("compensate")
		var names []string
		for _, u := range undone {
			names = append(names, u.Attrs[0].Text)
			if u.Parent != attempts[len(attempts)-1].ID || u.Ending.Failed {
				t.Errorf("%+v", u)
			}
		}
		if !slices.Equal(names, []string{"hotel", "flight"}) || len(tracer.Open()) != 0 {
			t.Errorf("undone %q, open %v", names, tracer.Open())
		}
	})
}

// A wait that is over has a span from its beginning to its end, whichever ended it, beside
// the attempts; what a run invokes is under the attempt that asks, each time that it
// starts some, and those runs are under that. (TR2)
func TestWaitsAndInvokesHaveSpans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, handlers{
			"child": func(t *task) (any, error) { return t.Attempt.Meta.Traceparent, nil },
			"j": func(t *task) (any, error) {
				if _, err := t.Wait("answer", "approval", "o-1", time.Hour); err != nil {
					return nil, err
				}
				if _, err := t.Wait("nothing", "never", "", 2*time.Hour); err == nil {
					return nil, errors.New("it came")
				}
				one := abi.EnqueueParams{Job: "child"}
				return t.Invoke(2, one, one, one)
			},
		}, nil)
		tracer := &enginetest.Tracer{}
		r.queue = queue.New(queue.Config{Store: r.db, Manifest: r.deploy.Manifest, Tracer: tracer})
		r.work(func(c *worker.Config) { c.Tracer, c.Queue = tracer, r.queue })
		id := r.enqueue("j")
		r.reaches(id, job.Suspended)
		time.Sleep(time.Minute)
		_, err := r.queue.Publish(t.Context(), queue.Event{Topic: "approval", Key: "o-1", Payload: []byte("true")})
		r.must(err)
		r.ended(r.settles(id), job.Done, "", 1)

		enqueue, attempts := tracer.Named("enqueue j")[0], tracer.Named("attempt j")
		of := map[string]bool{}
		for _, a := range attempts {
			of[a.ID] = true
		}
		waits := tracer.Named("wait")
		if len(waits) != 2 {
			t.Fatalf("waits %+v", waits)
		}
		for i, least := range []time.Duration{time.Minute, 2 * time.Hour} {
			w := waits[i]
			if d := w.Ending.At.Sub(w.At); w.Parent != enqueue.ID || d < least || d > least+time.Minute || w.Attrs[0].Text != id {
				t.Errorf("wait %d lasted %v under %s: %+v", i+1, d, w.Parent, w)
			}
		}
		invokes, children := tracer.Named("invoke"), tracer.Named("attempt child")
		var asked []int64
		under := map[string]bool{}
		for _, in := range invokes {
			if !of[in.Parent] {
				t.Errorf("an invoke is under %s, which is no attempt", in.Parent)
			}
			under[in.ID] = true
			asked = append(asked, in.Attrs[0].Number)
		}
		for _, c := range children {
			if !under[c.Parent] {
				t.Errorf("a child is under %s, which is no invoke", c.Parent)
			}
		}
		// The first checks all of them, and starts two.
		if !slices.Equal(asked, []int64{3, 1}) || len(children) != 3 {
			t.Errorf("invokes of %v runs, %d children", asked, len(children))
		}
		for _, child := range r.list("child", id) {
			if parent := r.get(child).Traceparent; !under[parent] {
				t.Errorf("child %s has %s, which is no invoke", child, parent)
			}
		}
		if open := tracer.Open(); len(open) != 0 {
			t.Errorf("%v did not end", open)
		}
	})
}
