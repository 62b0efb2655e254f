package storetest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

var stepTests = []test{
	{"an unknown run has no steps", func(e *env) {
		if steps := e.steps(uid(99)); len(steps) != 0 {
			e.Fatalf("steps %+v", steps)
		}
	}},
	// (P1)
	{"a saved step is kept as it was given", func(e *env) {
		r := e.start("w", store.EnqueueParams{})
		e.db.Advance(10 * time.Second)
		now := e.now()
		failure := job.Failure{Code: "X_S", Message: "m", Fix: "f", Stack: "s"}
		res := e.saveStep(store.StepParams{
			Ref: refOf(r), Name: "charge", Kind: job.KindStep, Status: job.StepFailed, Attempts: 2,
			Output: []byte(`{"x":1}`), Error: &failure, Elapsed: 3 * time.Second, Module: "sha",
		})
		if !res.Landed || len(res.Enqueued) != 0 || res.Output != nil {
			e.Fatalf("answer %+v", res)
		}
		e.wantTime("at", res.At, now)
		steps := e.steps(r.ID)
		want := []job.Step{{
			Name: "charge", Seq: 1, Kind: job.KindStep, Status: job.StepFailed, Attempts: 2, Output: []byte(`{"x":1}`), Error: failure,
			StartedAt: res.At.Add(-3 * time.Second), FinishedAt: res.At,
		}}
		if d := cmp.Diff(want, steps); d != "" {
			e.Fatalf("steps (-want +got):\n%s", d)
		}
		if got := e.get(r.ID); got.Steps != 1 || got.Module != "sha" {
			e.Fatalf("run %+v", got)
		}
	}},
	{"steps are listed in the order in which they were first reached", func(e *env) {
		r := e.start("w", store.EnqueueParams{})
		for _, name := range []string{"c", "a", "b", "a"} {
			e.saveStep(store.StepParams{Ref: refOf(r), Name: name})
		}
		var got string
		for i, s := range e.steps(r.ID) {
			got += s.Name
			if s.Seq != i+1 {
				e.Errorf("step %s has seq %d, want %d", s.Name, s.Seq, i+1)
			}
		}
		if got != "cab" || e.get(r.ID).Steps != 3 {
			e.Fatalf("steps %q, counted %d", got, e.get(r.ID).Steps)
		}
	}},
	// (P6, P21)
	{"a record that is replaced keeps its start and its place", func(e *env) {
		r := e.start("w", store.EnqueueParams{})
		e.saveStep(store.StepParams{Ref: refOf(r), Name: "a", Status: job.StepRetrying, Attempts: 1, Error: &job.Failure{Message: "boom"}, Elapsed: time.Second})
		e.saveStep(store.StepParams{Ref: refOf(r), Name: "b"})
		first := e.steps(r.ID)[0]
		e.db.Advance(time.Minute / 4)
		res := e.saveStep(store.StepParams{Ref: refOf(r), Name: "a", Status: job.StepCompleted, Attempts: 1, Output: []byte("7"), Elapsed: time.Second})
		want := job.Step{Name: "a", Seq: 1, Kind: job.KindStep, Status: job.StepCompleted, Attempts: 1, Output: []byte("7"), StartedAt: first.StartedAt, FinishedAt: res.At}
		if d := cmp.Diff(want, e.steps(r.ID)[0]); d != "" {
			e.Fatalf("step (-want +got):\n%s", d)
		}
	}},
	{"a step that is said to be new is saved, and replaces a record all the same", func(e *env) {
		r := e.start("w", store.EnqueueParams{})
		e.add(store.EnqueueParams{})
		other := e.claimOne("w")
		stale := refOf(other)
		stale.Claim++
		fresh := func(ref job.Ref, name, output string) store.StepParams {
			return store.StepParams{Ref: ref, Name: name, Kind: job.KindStep, Status: job.StepCompleted, New: true,
				Output: []byte(output), Elapsed: time.Second, Module: "m"}
		}
		res, err := e.db.SaveSteps(e.ctx, []store.StepParams{
			fresh(refOf(r), "b", "1"), fresh(stale, "b", "2"), fresh(refOf(r), "a", "3"),
			fresh(job.Ref{RunID: "?", Worker: "w", Claim: 1}, "b", "4"), fresh(refOf(other), "b", "5"),
			{Ref: refOf(other), Name: "once", Kind: job.KindStep, Status: job.StepStarted},
		})
		if err != nil {
			e.Fatal(err)
		}
		for i, want := range []bool{true, false, true, false, true, true} {
			if res[i].Landed != want || want != !res[i].At.IsZero() {
				e.Errorf("entry %d: %+v, want landed %t", i, res[i], want)
			}
		}
		want := []job.Step{
			{Name: "b", Seq: 1, Kind: job.KindStep, Status: job.StepCompleted, Output: []byte("1"), StartedAt: res[0].At.Add(-time.Second), FinishedAt: res[0].At},
			{Name: "a", Seq: 2, Kind: job.KindStep, Status: job.StepCompleted, Output: []byte("3"), StartedAt: res[0].At.Add(-time.Second), FinishedAt: res[0].At},
		}
		if d := cmp.Diff(want, e.steps(r.ID)); d != "" {
			e.Errorf("steps (-want +got):\n%s", d)
		}
		if got := e.get(r.ID); got.Module != "m" {
			e.Errorf("pinned to %q", got.Module)
		}
		if res := e.saveStep(fresh(refOf(other), "once", "6")); !res.Landed {
			e.Error("a record that stood in the way was not replaced")
		}
		if got := e.steps(other.ID); len(got) != 2 || got[1].Status != job.StepCompleted || string(got[1].Output) != "6" {
			e.Errorf("steps %+v", got)
		}
	}},
	// (C7, P8)
	{"a stale claim writes no step and enqueues nothing", func(e *env) {
		r := e.start("w", store.EnqueueParams{})
		for _, ref := range []job.Ref{{RunID: r.ID, Worker: "other", Claim: 1}, {RunID: r.ID, Worker: "w", Claim: 2}, {RunID: "?", Worker: "w", Claim: 1}} {
			res := e.saveStep(store.StepParams{Ref: ref, Name: "a", OutputEnqueued: true, Enqueue: []store.EnqueueParams{e.params(store.EnqueueParams{Queue: "child"})}})
			if res.Landed {
				e.Errorf("a step of %+v landed", ref)
			}
		}
		e.finish(r, job.Completed, job.Done)
		if res := e.saveStep(store.StepParams{Ref: refOf(r), Name: "late"}); res.Landed {
			e.Error("a step of a finished run landed")
		}
		if len(e.steps(r.ID)) != 0 || len(e.list(store.ListParams{Queue: "child"})) != 0 {
			e.Fatal("a stale step left a trace")
		}
	}},
	// (X4)
	{"a cancelled run takes no more steps", func(e *env) {
		r := e.start("w", store.EnqueueParams{})
		if _, err := e.db.Cancel(e.ctx, store.CancelParams{ID: r.ID}); err != nil {
			e.Fatal(err)
		}
		if res := e.saveStep(store.StepParams{Ref: refOf(r), Name: "a"}); res.Landed {
			e.Fatal("landed")
		}
	}},
	{"entries of a batch are independent", func(e *env) {
		r := e.start("w", store.EnqueueParams{})
		stale := refOf(r)
		stale.Claim = 5
		res, err := e.db.SaveSteps(e.ctx, []store.StepParams{
			{Ref: refOf(r), Name: "a", Kind: job.KindStep, Status: job.StepCompleted},
			{Ref: stale, Name: "b", Kind: job.KindStep, Status: job.StepCompleted},
			{Ref: refOf(r), Name: "c", Kind: job.KindStep, Status: job.StepCompleted},
		})
		if err != nil || !res[0].Landed || res[1].Landed || !res[2].Landed {
			e.Fatalf("answers %+v, %v", res, err)
		}
		if steps := e.steps(r.ID); len(steps) != 2 || steps[1].Name != "c" || steps[1].Seq != 2 {
			e.Fatalf("steps %+v", steps)
		}
	}},
	// (Z7) What a step enqueues commits with it.
	{"a step's enqueues commit with it, and its output names them", func(e *env) {
		r := e.start("w", store.EnqueueParams{})
		holder := e.add(store.EnqueueParams{Queue: "child", Key: "k"})
		p := store.StepParams{Ref: refOf(r), Name: "enqueue:x:1", Kind: job.KindEnqueue, OutputEnqueued: true, Enqueue: []store.EnqueueParams{
			e.params(store.EnqueueParams{Queue: "child", Parent: r.ID}),
			e.params(store.EnqueueParams{Queue: "child", Key: "k", Parent: r.ID}),
		}}
		res := e.saveStep(p)
		want := []store.EnqueueResult{{ID: p.Enqueue[0].ID, State: job.Ready}, {ID: holder, Deduped: true, State: job.Ready}}
		if d := cmp.Diff(want, res.Enqueued); d != "" {
			e.Fatalf("enqueued (-want +got):\n%s", d)
		}
		step := e.steps(r.ID)[0]
		if !bytes.Equal(step.Output, res.Output) {
			e.Fatalf("stored output %q, answered %q", step.Output, res.Output)
		}
		var replay []abi.EnqueueResult
		if err := json.Unmarshal(step.Output, &replay); err != nil {
			e.Fatal(err)
		}
		if d := cmp.Diff([]abi.EnqueueResult{{ID: want[0].ID}, {ID: holder, Deduped: true}}, replay); d != "" {
			e.Fatalf("output (-want +got):\n%s", d)
		}
		if kids := e.list(store.ListParams{Parent: r.ID}); len(kids) != 1 || kids[0].ID != want[0].ID {
			e.Fatalf("children %v", ids(kids))
		}
	}},
	// (P23)
	{"a start that comes after the end of its step changes nothing", func(e *env) {
		for _, end := range []job.StepStatus{job.StepCompleted, job.StepFailed} {
			r := e.start(string(end), store.EnqueueParams{})
			start := store.StepParams{Ref: refOf(r), Name: "a", Kind: job.KindStep, Status: job.StepStarted}
			e.saveStep(start)
			e.saveStep(store.StepParams{Ref: refOf(r), Name: "a", Kind: job.KindStep, Status: end, Output: []byte("1")})
			before := e.steps(r.ID)
			if res := e.saveStep(start); !res.Landed {
				e.Fatal("a late start did not land")
			}
			if d := cmp.Diff(before, e.steps(r.ID)); d != "" || before[0].Status != end {
				e.Fatalf("%s: a late start changed the record (-before +after):\n%s", end, d)
			}
			e.saveStep(store.StepParams{Ref: refOf(r), Name: "b", Kind: job.KindStep, Status: job.StepStarted})
			if steps := e.steps(r.ID); len(steps) != 2 || steps[1].Seq != 2 {
				e.Fatalf("after a late start: %+v", steps)
			}
		}
	}},
	{"a record of an enqueue that is written again says the same", func(e *env) {
		r := e.start("w", store.EnqueueParams{})
		holder := e.add(store.EnqueueParams{Queue: "child", Key: "k"})
		p := store.StepParams{Ref: refOf(r), Name: "enqueue:x:1", Kind: job.KindEnqueue, Status: job.StepCompleted, OutputEnqueued: true, Enqueue: []store.EnqueueParams{
			e.params(store.EnqueueParams{Queue: "child", Parent: r.ID}),
			e.params(store.EnqueueParams{Queue: "child", Key: "k", Parent: r.ID}),
		}}
		first, second := e.saveStep(p), e.saveStep(p)
		if !bytes.Equal(first.Output, second.Output) || !bytes.Equal(e.steps(r.ID)[0].Output, first.Output) {
			e.Fatalf("first %s, again %s", first.Output, second.Output)
		}
		if want := `[{"id":"` + p.Enqueue[0].ID + `"},{"id":"` + holder + `","deduped":true}]`; string(first.Output) != want {
			e.Fatalf("output %s, want %s", first.Output, want)
		}
	}},
	{"a step keeps its own output beside what it enqueues", func(e *env) {
		r := e.start("w", store.EnqueueParams{})
		res := e.saveStep(store.StepParams{Ref: refOf(r), Name: "a", Output: []byte("1"), Enqueue: []store.EnqueueParams{e.params(store.EnqueueParams{})}})
		if len(res.Enqueued) != 1 || string(e.steps(r.ID)[0].Output) != "1" {
			e.Fatalf("answer %+v", res)
		}
	}},
	{"enqueuing nothing is an empty array", func(e *env) {
		r := e.start("w", store.EnqueueParams{})
		if res := e.saveStep(store.StepParams{Ref: refOf(r), Name: "a", OutputEnqueued: true}); string(res.Output) != "[]" {
			e.Fatalf("output %q", res.Output)
		}
	}},
	{"a batch with an enqueue that is refused writes nothing", func(e *env) {
		r := e.start("w", store.EnqueueParams{})
		_, err := e.db.SaveSteps(e.ctx, []store.StepParams{
			{Ref: refOf(r), Name: "a", Kind: job.KindStep, Status: job.StepCompleted},
			{Ref: refOf(r), Name: "b", Kind: job.KindStep, Status: job.StepCompleted, Enqueue: []store.EnqueueParams{{ID: "?"}}},
		})
		e.wantRefused(err, job.CodeIDInvalid)
		if len(e.steps(r.ID)) != 0 {
			e.Fatal("a step of a refused batch was written")
		}
	}},
	// (P20)
	{"the history survives the run's end and its requeue", func(e *env) {
		r := e.start("w", store.EnqueueParams{})
		e.saveStep(store.StepParams{Ref: refOf(r), Name: "a", Output: []byte("1")})
		e.finish(r, job.DeadLettered, job.Dead)
		if _, err := e.db.Requeue(e.ctx, store.RequeueParams{ID: r.ID}); err != nil {
			e.Fatal(err)
		}
		if again := e.claimOne("w"); again.Steps != 1 {
			e.Fatalf("claimed with %d steps", again.Steps)
		}
		if steps := e.steps(r.ID); len(steps) != 1 || string(steps[0].Output) != "1" {
			e.Fatalf("steps %+v", steps)
		}
	}},
	// (S27) Never cast: a completed step that is not recognised would run again.
	{"a step status of another build is refused", func(e *env) {
		r := e.start("w", store.EnqueueParams{})
		e.saveStep(store.StepParams{Ref: refOf(r), Name: "a"})
		other := e.add(store.EnqueueParams{})
		e.db.PlantStepStatus(e, r.ID, "a", "waiting-for-godot")
		_, err := e.db.ListSteps(e.ctx, r.ID)
		e.wantRefused(err, job.CodeRowStatusUnknown)
		if _, err := e.db.ListSteps(e.ctx, other); err != nil {
			e.Fatal(err)
		}
	}},
	{"a status of no build is refused", func(e *env) {
		r := e.start("w", store.EnqueueParams{})
		_, err := e.db.SaveSteps(e.ctx, []store.StepParams{{Ref: refOf(r), Name: "a", Status: "half"}})
		e.wantRefused(err, job.CodeInvalid)
	}},
	{"names and outputs of every kind and size survive", func(e *env) {
		r := e.start("w", store.EnqueueParams{})
		names := []string{"a", "A", "ä", "%_", "a\x00b", "a ", "step:1#2", "'--"}
		for i, out := range payloads() {
			name := fmt.Sprint(i)
			if i < len(names) {
				name = names[i]
			}
			e.saveStep(store.StepParams{Ref: refOf(r), Name: name, Output: out})
		}
		steps := e.steps(r.ID)
		for i, out := range payloads() {
			if i < len(names) && steps[i].Name != names[i] {
				e.Errorf("name %q came back as %q", names[i], steps[i].Name)
			}
			if !bytes.Equal(steps[i].Output, out) {
				e.Errorf("output %d of %d bytes came back as %d", i, len(out), len(steps[i].Output))
			}
		}
	}},
	// abi.MaxSteps is the attempt's to enforce; a store keeps that many.
	{"as many steps as a run may have", func(e *env) {
		r := e.start("w", store.EnqueueParams{})
		for n := 0; n < abi.MaxSteps; {
			var batch []store.StepParams
			for ; n < abi.MaxSteps && len(batch) < 1000; n++ {
				batch = append(batch, store.StepParams{Ref: refOf(r), Name: fmt.Sprintf("s%d", n), Kind: job.KindStep, Status: job.StepCompleted})
			}
			if _, err := e.db.SaveSteps(e.ctx, batch); err != nil {
				e.Fatal(err)
			}
		}
		steps := e.steps(r.ID)
		if len(steps) != abi.MaxSteps || e.get(r.ID).Steps != abi.MaxSteps {
			e.Fatalf("%d steps", len(steps))
		}
		for i, s := range steps {
			if s.Seq != i+1 || s.Name != fmt.Sprintf("s%d", i) {
				e.Fatalf("step %d is %s with seq %d", i, s.Name, s.Seq)
			}
		}
	}},
}
