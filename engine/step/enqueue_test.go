package step_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/queue"
	"github.com/jobrunner/runner/engine/store"
)

func child(id string) abi.EnqueueParams {
	return abi.EnqueueParams{Job: "child", Input: json.RawMessage(`{"id":` + id + `}`)}
}

func keyed(id string) abi.EnqueueParams {
	return abi.EnqueueParams{Job: "keyed", Input: json.RawMessage(`{"id":` + id + `}`)}
}

func (r *rig) children() []job.Run {
	r.Helper()
	runs, err := r.db.List(r.Context(), store.ListParams{Parent: r.runID})
	r.must(err)
	return runs
}

func (a *attempt) enqueue(runs ...abi.EnqueueParams) []abi.EnqueueResult {
	a.rig.Helper()
	res, err := a.Enqueue(a.ctx, runs)
	a.must(err)
	if len(res) != len(runs) {
		a.Fatalf("%d results for %d runs", len(res), len(runs))
	}
	return res
}

func (a *attempt) open(name string) {
	a.rig.Helper()
	_, err := a.StepBegin(a.ctx, name, 0)
	a.must(err)
}

func TestWhatAStepEnqueuesCommitsWithIt(t *testing.T) {
	a := newRig(t).begin("w1")
	a.open("send")
	res := a.enqueue(child("1"), child("2"))
	more := a.enqueue(child("3"))
	if n := len(a.children()); n != 0 {
		t.Errorf("%d runs before the step's end", n)
	}
	if _, err := a.StepEnd(a.ctx, nil); err != nil {
		t.Fatal(err)
	}
	got := map[string]bool{}
	for _, r := range a.children() {
		got[r.ID] = true
	}
	if len(got) != 3 || !got[res[0].ID] || !got[res[1].ID] || !got[more[0].ID] {
		t.Errorf("runs %v, answered %v %v", got, res, more)
	}
	a.again(nil).replay("send", `null`)
	if n := len(a.children()); n != 3 {
		t.Errorf("%d runs after a replay", n)
	}
}

func TestWhatAFailedStepEnqueuedVanishes(t *testing.T) {
	for _, kind := range []abi.FailureKind{abi.FailRetry, abi.FailTerminal} {
		a := newRig(t).begin("w1")
		a.open("send")
		a.enqueue(child("1"))
		if _, err := a.StepFail(a.ctx, abi.Failure{Kind: kind, Message: "no"}); (err == nil) != (kind == abi.FailTerminal) {
			t.Fatal(err)
		}
		if kind == abi.FailTerminal {
			a.do("after", `1`) // does not carry what the failed step left
		}
		if n := len(a.children()); n != 0 {
			t.Errorf("kind %d: %d runs", kind, n)
		}
	}
}

func TestALiveHolderAnswersForAKeyInsideAStep(t *testing.T) {
	r := newRig(t)
	held, err := r.queue.Enqueue(t.Context(), queue.Request{Job: "keyed", Input: []byte(`{"id":1}`)})
	r.must(err)
	a := r.begin("w1")
	a.open("send")
	res := a.enqueue(keyed("1"), keyed("2"), keyed("2"))
	again := a.enqueue(keyed("2"))
	if !res[0].Deduped || res[0].ID != held.ID {
		t.Errorf("the holder is %s, answered %+v", held.ID, res[0])
	}
	if res[1].Deduped || !res[2].Deduped || res[2].ID != res[1].ID || !again[0].Deduped || again[0].ID != res[1].ID {
		t.Errorf("one key thrice in a step answered %+v %+v", res[1:], again)
	}
	if _, err := a.StepEnd(a.ctx, nil); err != nil {
		t.Fatal(err)
	}
	if n := len(a.children()); n != 1 {
		t.Errorf("%d runs, want 1", n)
	}
}

func TestAnEnqueueOutsideAStepIsARecordOfItsOwn(t *testing.T) {
	a := newRig(t).begin("w1")
	first := a.enqueue(child("1"))
	second := a.enqueue(child("2"), keyed("1"))
	if n := len(a.children()); n != 3 {
		t.Errorf("%d runs, want 3 at once", n)
	}
	b := a.again(nil)
	if got := b.enqueue(child("1")); got[0] != first[0] {
		t.Errorf("the replay answers %+v, first %+v", got, first)
	}
	if got := b.enqueue(child("2"), keyed("1")); got[0] != second[0] || got[1] != second[1] {
		t.Errorf("the replay answers %+v, first %+v", got, second)
	}
	third := b.enqueue(keyed("1"))
	if !third[0].Deduped || third[0].ID != second[1].ID {
		t.Errorf("a live holder is answered with %+v", third)
	}
	if n := len(b.children()); n != 3 {
		t.Errorf("%d runs after the replay", n)
	}
	var names []string
	for _, s := range b.steps() {
		names = append(names, s.Name)
	}
	want := []string{"enqueue:child:1", "enqueue:child:2", "enqueue:keyed:1"}
	for i := range want {
		if i >= len(names) || names[i] != want[i] {
			t.Fatalf("records %v, want %v", names, want)
		}
	}
}

func TestAReplayedEnqueueOfAnotherNumberDiverges(t *testing.T) {
	a := newRig(t).begin("w1")
	a.enqueue(child("1"))
	b := a.again(nil)
	_, err := b.Enqueue(b.ctx, []abi.EnqueueParams{child("1"), child("2")})
	b.code(err, job.CodeReplayDiverged)
}

func TestABadEnqueueIsTheGuestsToHandle(t *testing.T) {
	r := newRig(t)
	a := r.begin("w1")
	_, err := a.Enqueue(a.ctx, []abi.EnqueueParams{{Job: "nobody"}})
	r.refusal(err, abi.CodeInvalid)
	a.open("send")
	_, err = a.Enqueue(a.ctx, []abi.EnqueueParams{child("1"), {Job: "keyed", Input: json.RawMessage(`{}`)}})
	r.refusal(err, abi.CodeInvalid)
	_, err = a.Enqueue(a.ctx, make([]abi.EnqueueParams, abi.MaxEnqueue+1))
	r.refusal(err, abi.CodeLimit)
	if res, err := a.Enqueue(a.ctx, nil); err != nil || len(res) != 0 {
		t.Errorf("nothing asked for: %v, %v", res, err)
	}
	if _, err := a.StepEnd(a.ctx, nil); err != nil {
		t.Fatal(err)
	}
	if n := len(a.children()); n != 0 {
		t.Errorf("%d runs of refused calls", n)
	}
}

func TestAChildKnowsItsParent(t *testing.T) {
	a := newRig(t).begin("w1")
	res := a.enqueue(abi.EnqueueParams{Job: "child", Input: json.RawMessage(`1`), DelayMS: 60_000})
	run, err := a.db.Get(t.Context(), res[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	if run.Parent != a.runID || run.State != job.Delayed || string(run.Input) != `1` {
		t.Errorf("the child is %+v", run)
	}
}

// What a step has enqueued waits in memory for its end, so it may not be as much
// as a guest likes; a run that stands for another one's request takes no room.
func TestAStepEnqueuesSoMuchAndNoMore(t *testing.T) {
	for _, c := range []struct {
		name      string
		call, fit int // runs in a call; calls that fit
		input     string
	}{
		{"many small ones", abi.MaxEnqueue, 10, `{}`},
		{"few large ones", 1, 16, `"` + strings.Repeat("x", abi.MaxInput-2) + `"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := newRig(t).begin("w1")
			runs := make([]abi.EnqueueParams, c.call)
			for i := range runs {
				runs[i] = abi.EnqueueParams{Job: "child", Input: json.RawMessage(c.input)}
			}
			for _, step := range []string{"one", "two"} { // each starts from nothing
				a.open(step)
				for range c.fit {
					a.enqueue(runs...)
				}
				_, err := a.Enqueue(a.ctx, runs)
				a.refusal(err, abi.CodeLimit)
				_, err = a.StepFail(a.ctx, abi.Failure{Kind: abi.FailTerminal, Message: "only tried"})
				a.must(err)
			}
		})
	}

	a := newRig(t).begin("w1")
	a.open("send")
	same := abi.EnqueueParams{Job: "keyed", Input: json.RawMessage(`{"id":1,"x":"` + strings.Repeat("x", abi.MaxInput/2) + `"}`)}
	for range 100 {
		a.enqueue(same)
	}
}
