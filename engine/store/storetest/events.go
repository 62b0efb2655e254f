package storetest

import (
	"bytes"
	"fmt"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

// event fills what a test does not care about.
func (e *env) event(p store.EventParams) store.EventParams {
	if p.ID == "" {
		e.ids++
		p.ID = uid(e.ids)
	}
	if p.Topic == "" {
		p.Topic = "paid"
	}
	if p.Payload == nil {
		p.Payload = []byte(`1`)
	}
	if p.Keep == 0 {
		p.Keep = time.Hour
	}
	return p
}

func (e *env) publish(batch ...store.EventParams) []store.EventResult {
	e.Helper()
	for i := range batch {
		batch[i] = e.event(batch[i])
	}
	res, err := e.db.Publish(e.ctx, batch)
	if err != nil || len(res) != len(batch) {
		e.Fatalf("publish of %d answered %+v, %v", len(batch), res, err)
	}
	return res
}

// waitFor is the record of a wait.
func waitFor(name string, timeout time.Duration, w store.WaitParams) *store.StepParams {
	if w.Topic == "" {
		w.Topic = "paid"
	}
	return &store.StepParams{Name: name, Kind: job.KindWait, Status: job.StepWaiting, Sleep: timeout, Wait: &w}
}

// park suspends a run for an event.
func (e *env) park(r job.Run, st *store.StepParams) store.SettleResult {
	e.Helper()
	res := e.settle(store.SettleParams{Ref: refOf(r), Outcome: job.Slept, To: job.Suspended, Step: st})
	if !res.Landed {
		e.Fatalf("parking run %s did not land", r.ID)
	}
	return res
}

// record is the run's record of that name.
func (e *env) record(runID, name string) job.Step {
	e.Helper()
	for _, s := range e.steps(runID) {
		if s.Name == name {
			return s
		}
	}
	e.Fatalf("run %s has no record %q", runID, name)
	return job.Step{}
}

func (e *env) wantRecord(runID, name string, status job.StepStatus, output string) job.Step {
	e.Helper()
	s := e.record(runID, name)
	if s.Status != status || string(s.Output) != output {
		e.Fatalf("record %q is %s with %s, want %s with %s", name, s.Status, s.Output, status, output)
	}
	return s
}

var now = store.WaitParams{FromNow: true}

var eventTests = []test{
	// (V1, V4, V5)
	{"an event is kept as it was given, until it expires", func(e *env) {
		began := e.now()
		r := e.start("w", store.EnqueueParams{})
		payload := []byte("{\"s\":\"\\u0000\",\"n\":1e400}\x00\xff")
		res := e.publish(
			store.EventParams{Topic: "größe", Key: "k", Tenant: "t", Payload: payload, Keep: time.Minute, Run: r.ID, By: "ann"},
			store.EventParams{Topic: "paid", Payload: []byte(`null`)},
		)
		if res[0].Seq == 0 || res[1].Seq <= res[0].Seq || res[0].Deduped || res[0].Woken != 0 {
			e.Fatalf("answers %+v", res)
		}
		e.wantTime("at", res[0].At, began)
		list := func(p store.ListEventsParams) []job.Event {
			evs, err := e.db.ListEvents(e.ctx, p)
			if err != nil {
				e.Fatal(err)
			}
			return evs
		}
		all := list(store.ListEventsParams{})
		if len(all) != 2 {
			e.Fatalf("events %+v", all)
		}
		want := job.Event{
			Seq: res[0].Seq, ID: all[1].ID, Topic: "größe", Key: "k", Tenant: "t", Payload: payload, Run: r.ID, By: "ann",
			PublishedAt: res[0].At, ExpiresAt: res[0].At.Add(time.Minute),
		}
		if d := cmp.Diff(want, all[1]); d != "" {
			e.Fatalf("event (-want +got):\n%s", d)
		}
		for _, p := range []store.ListEventsParams{{Topic: "größe"}, {Key: "k"}, {Tenant: "t"}, {Topic: "größe", Tenant: "t"}, {Before: res[1].Seq}} {
			if evs := list(p); len(evs) != 1 || evs[0].Seq != res[0].Seq {
				e.Errorf("%+v lists %+v", p, evs)
			}
		}
		if evs := list(store.ListEventsParams{Limit: 1}); len(evs) != 1 || evs[0].Seq != res[1].Seq {
			e.Errorf("the newest is %+v", evs)
		}
		_, err := e.db.ListEvents(e.ctx, store.ListEventsParams{Limit: 1001})
		e.wantRefused(err, job.CodePageInvalid)
		// (V3): expired is gone before any purge.
		e.db.Advance(time.Minute)
		if evs := list(store.ListEventsParams{}); len(evs) != 1 || evs[0].Topic != "paid" {
			e.Errorf("after a minute: %+v", evs)
		}
		if n, err := e.db.PurgeEvents(e.ctx, 10); n != 1 || err != nil {
			e.Errorf("purged %d, %v", n, err)
		}
		if n, err := e.db.PurgeEvents(e.ctx, 10); n != 0 || err != nil {
			e.Errorf("purged %d more, %v", n, err)
		}
	}},
	{"an id publishes once", func(e *env) {
		r := e.start("w", store.EnqueueParams{})
		first := e.publish(store.EventParams{ID: uid(500)})[0]
		e.park(r, waitFor("w", time.Minute, now))
		again := e.publish(store.EventParams{ID: uid(500), Payload: []byte("2")}, store.EventParams{ID: uid(500)})
		for _, a := range again {
			if !a.Deduped || a.Seq != first.Seq || !a.At.Equal(first.At) {
				e.Errorf("again: %+v, want %+v", a, first)
			}
		}
		e.wantState(r.ID, job.Suspended)
	}},
	{"what is no event is refused", func(e *env) {
		for _, p := range []store.EventParams{
			{ID: "x", Topic: "t", Keep: time.Hour}, {ID: uid(1), Keep: time.Hour}, {ID: uid(1), Topic: "t"}, {ID: uid(1), Topic: "t", Keep: time.Hour, Run: "x"},
		} {
			if _, err := e.db.Publish(e.ctx, []store.EventParams{p}); err == nil {
				e.Errorf("%+v was published", p)
			}
		}
		if res, err := e.db.Publish(e.ctx, nil); len(res) != 0 || err != nil {
			e.Errorf("nothing: %+v, %v", res, err)
		}
		_, err := e.db.PurgeEvents(e.ctx, -1)
		e.wantRefused(err, job.CodeInvalid)
	}},
	// (V9, S7): in the publishing commit, uncounted, with the payload as the output.
	{"an event wakes the run that is parked for it", func(e *env) {
		r := e.start("w", store.EnqueueParams{})
		parked := e.park(r, waitFor("answer", time.Hour, now))
		e.wantTime("due", parked.RunAt, e.now().Add(time.Hour))
		got := e.wantState(r.ID, job.Suspended)
		if got.Attempt != 0 || got.Steps != 1 {
			e.Fatalf("parked: %+v", got)
		}
		rec := e.wantRecord(r.ID, "answer", job.StepWaiting, "")
		if rec.Topic != "paid" || rec.EventKey != "" || rec.Kind != job.KindWait || !rec.WakeAt.Equal(parked.RunAt) {
			e.Fatalf("record %+v", rec)
		}
		e.db.Advance(time.Second)
		at := e.now()
		res := e.publish(store.EventParams{Payload: []byte(`{"n":1}`)})[0]
		if res.Woken != 1 {
			e.Errorf("woke %d runs", res.Woken)
		}
		e.wantTime("ready since", e.wantState(r.ID, job.Ready).RunAt, at)
		rec = e.wantRecord(r.ID, "answer", job.StepCompleted, `{"n":1}`)
		if rec.Place != res.Seq || rec.Seq != 1 {
			e.Errorf("record %+v, event %d", rec, res.Seq)
		}
		e.wantTime("answered at", rec.FinishedAt, at)
		if again := e.claimOne("w"); again.ID != r.ID || again.Attempt != 1 || again.Claims != 2 {
			e.Errorf("claimed %+v", again)
		}
		if res := e.publish(store.EventParams{})[0]; res.Woken != 0 {
			e.Errorf("a running run was woken")
		}
	}},
	// (V10, V2)
	{"topic and key say who is woken", func(e *env) {
		e.register("w")
		parked := map[string]store.WaitParams{
			"any":   {Topic: "paid", FromNow: true},
			"a":     {Topic: "paid", Key: "a", FromNow: true},
			"b":     {Topic: "paid", Key: "b", FromNow: true},
			"other": {Topic: "due", FromNow: true},
		}
		id := map[string]string{}
		for _, name := range []string{"any", "a", "b", "other"} {
			id[name] = e.add(store.EnqueueParams{})
			e.park(e.claimOne("w"), waitFor("w", time.Hour, parked[name]))
		}
		id["sleeper"] = e.add(store.EnqueueParams{})
		e.settle(store.SettleParams{Ref: refOf(e.claimOne("w")), Outcome: job.Slept, To: job.Suspended,
			Step: &store.StepParams{Name: "nap", Kind: job.KindSleep, Status: job.StepSleeping, Sleep: time.Hour}})
		want := func(ready ...string) {
			e.Helper()
			for name, run := range id {
				state := job.Suspended
				for _, r := range ready {
					if r == name {
						state = job.Ready
					}
				}
				if got := e.get(run).State; got != state {
					e.Errorf("%s is %s, want %s", name, got, state)
				}
			}
		}
		want()
		if res := e.publish(store.EventParams{Key: "a"}, store.EventParams{Topic: "none"}); res[0].Woken != 2 || res[1].Woken != 0 {
			e.Errorf("answers %+v", res)
		}
		want("any", "a")
		if res := e.publish(store.EventParams{}); res[0].Woken != 0 {
			e.Errorf("an event without key woke %d that wait for one", res[0].Woken)
		}
		e.publish(store.EventParams{Topic: "due", Key: "b"})
		want("any", "a", "other")
	}},
	{"an event and a run of two tenants never meet", func(e *env) {
		e.register("w")
		tenants := []string{"", "a", "b"}
		park := func(key string) map[string]string {
			runs := map[string]string{}
			for _, tenant := range tenants {
				runs[tenant] = e.add(store.EnqueueParams{Tenant: tenant})
				e.park(e.claimOne("w"), waitFor("w", time.Hour, store.WaitParams{Key: key, FromNow: true}))
			}
			return runs
		}
		for _, key := range []string{"", "k"} {
			for _, tenant := range tenants {
				runs := park(key)
				woken := 0
				for _, of := range tenants {
					if tenant == "" || of == "" || of == tenant {
						woken++
					}
				}
				if res := e.publish(store.EventParams{Key: "k", Tenant: tenant}); res[0].Woken != woken {
					e.Errorf("an event of %q woke %d, want %d", tenant, res[0].Woken, woken)
				}
				for of, run := range runs {
					want := job.Suspended
					if tenant == "" || of == "" || of == tenant {
						want = job.Ready
					}
					if got := e.get(run).State; got != want {
						e.Errorf("an event of %q, key %q: the run of %q is %s, want %s", tenant, key, of, got, want)
					}
					if _, err := e.db.Cancel(e.ctx, store.CancelParams{ID: run}); err != nil {
						e.Fatal(err)
					}
				}
			}
		}
		// The same of what was published before a wait that goes on from a place.
		place := e.publish(store.EventParams{Topic: "none"})[0].Seq
		for _, of := range []string{"b", "a", "", "a"} {
			e.publish(store.EventParams{Key: "k", Tenant: of, Payload: []byte(`"` + of + `"`)})
		}
		for _, key := range []string{"", "k"} {
			for of, want := range map[string][]string{"": {`"b"`, `"a"`, `""`, `"a"`}, "a": {`"a"`, `""`, `"a"`}, "b": {`"b"`, `""`}, "c": {`""`}} {
				id := e.add(store.EnqueueParams{Tenant: of})
				r := e.claimOne("w")
				next := store.WaitParams{Topic: "paid", Key: key, After: place}
				for i, payload := range want {
					if pending, err := e.db.PendingEvent(e.ctx, of, next); err != nil || !pending {
						e.Errorf("pending of %q: %v, %v", of, pending, err)
					}
					st := with(waitFor(fmt.Sprint("w", i), time.Hour, next), r)
					if i%2 == 1 { // as a park does
						e.park(r, &st)
						r = e.claimOne("w")
					} else {
						e.saveStep(st)
					}
					next.After = e.wantRecord(id, st.Name, job.StepCompleted, payload).Place
				}
				if pending, err := e.db.PendingEvent(e.ctx, of, next); err != nil || pending {
					e.Errorf("after all of %q: %v, %v", of, pending, err)
				}
				e.park(r, waitFor("last", time.Hour, next))
				e.wantState(id, job.Suspended)
				if _, err := e.db.Cancel(e.ctx, store.CancelParams{ID: id}); err != nil {
					e.Fatal(err)
				}
			}
		}
		events, err := e.db.ListEvents(e.ctx, store.ListEventsParams{Tenant: "b"})
		if err != nil {
			e.Fatal(err)
		}
		for _, ev := range events {
			if ev.Tenant != "b" {
				e.Errorf("listed %+v", ev)
			}
		}
		if len(events) != 3 {
			e.Errorf("listed %d events of b", len(events))
		}
	}},
	// (P12)
	{"an event from before the first wait does not count", func(e *env) {
		r := e.start("w", store.EnqueueParams{})
		e.publish(store.EventParams{})
		e.park(r, waitFor("answer", time.Hour, now))
		e.wantState(r.ID, job.Suspended)
	}},
	// (P15, P16): neither lost nor twice, though all in one instant.
	{"a wait goes on where the one before ended", func(e *env) {
		r := e.start("w", store.EnqueueParams{})
		e.park(r, waitFor("a", time.Hour, now))
		e.publish(store.EventParams{Payload: []byte("1")}, store.EventParams{Payload: []byte("2"), Key: "x"}, store.EventParams{Payload: []byte("3")})
		for i, name := range []string{"a", "b", "c"} {
			got := e.claimOne("w")
			rec := e.wantRecord(r.ID, name, job.StepCompleted, fmt.Sprint(i+1))
			next := store.WaitParams{Topic: "paid", After: rec.Place}
			pending, err := e.db.PendingEvent(e.ctx, "", next)
			if err != nil || pending != (i < 2) {
				e.Fatalf("pending after %q: %v, %v", name, pending, err)
			}
			res := e.park(got, waitFor(string(name[0]+1), time.Hour, next))
			if soon := !res.RunAt.After(e.now()); soon != (i < 2) {
				e.Errorf("after %q the run is due at %v", name, res.RunAt)
			}
		}
		e.wantState(r.ID, job.Suspended)
		e.wantRecord(r.ID, "d", job.StepWaiting, "")
	}},
	{"a wait that can be ended needs no park", func(e *env) {
		r := e.start("w", store.EnqueueParams{})
		if res := e.saveStep(with(waitFor("from here", 0, now), r)); res.Status != job.StepTimedOut || !res.Landed || res.Output != nil {
			e.Fatalf("no time: %+v", res)
		}
		place := e.record(r.ID, "from here").Place
		after := store.WaitParams{After: place}
		if res := e.saveStep(with(waitFor("x", time.Hour, after), r)); res.Status != job.StepWaiting {
			e.Fatalf("without an event: %+v", res)
		}
		ev := e.publish(store.EventParams{Payload: []byte("7")})[0]
		res := e.saveStep(with(waitFor("x", time.Hour, after), r))
		if res.Status != job.StepCompleted || string(res.Output) != "7" || res.Place != ev.Seq {
			e.Fatalf("with an event: %+v", res)
		}
		// A repeat after a lost answer.
		e.publish(store.EventParams{Payload: []byte("8")})
		again := e.saveStep(with(waitFor("x", time.Hour, after), r))
		if again.Status != job.StepCompleted || string(again.Output) != "7" || again.Place != ev.Seq || !again.Landed {
			e.Fatalf("again: %+v", again)
		}
		if res := e.saveStep(with(waitFor("from here", 0, now), r)); res.Status != job.StepTimedOut || res.Place != place {
			e.Fatalf("the first again: %+v", res)
		}
		e.wantState(r.ID, job.Running)
		if n := e.get(r.ID).Steps; n != 2 {
			e.Errorf("%d records", n)
		}
	}},
	// (P13)
	{"a time that passed is final", func(e *env) {
		r := e.start("w", store.EnqueueParams{})
		e.park(r, waitFor("answer", 10*time.Second, now))
		place := e.record(r.ID, "answer").Place
		e.db.Advance(11 * time.Second)
		late := e.publish(store.EventParams{Payload: []byte("1")})[0]
		if late.Woken != 0 {
			e.Errorf("the late event woke the run")
		}
		got := e.claimOne("w")
		e.wantRecord(r.ID, "answer", job.StepWaiting, "")
		st := with(waitFor("answer", 0, store.WaitParams{After: place}), got)
		st.WakeAt = e.record(r.ID, "answer").WakeAt
		if res := e.saveStep(st); res.Status != job.StepTimedOut || res.Output != nil {
			e.Fatalf("answer %+v", res)
		}
		e.wantRecord(r.ID, "answer", job.StepTimedOut, "")
		// The next wait finds what came too late for this one.
		if res := e.saveStep(with(waitFor("next", time.Hour, store.WaitParams{After: place}), got)); string(res.Output) != "1" {
			e.Errorf("the next wait: %+v", res)
		}
	}},
	{"an event that came in time ends a wait that is looked at too late", func(e *env) {
		r := e.start("w", store.EnqueueParams{})
		e.park(r, waitFor("answer", 10*time.Second, now))
		rec := e.record(r.ID, "answer")
		if _, err := e.db.Cancel(e.ctx, store.CancelParams{ID: r.ID}); err != nil {
			e.Fatal(err)
		}
		if res := e.publish(store.EventParams{Payload: []byte("1")})[0]; res.Woken != 0 {
			e.Errorf("a cancelled run was woken")
		}
		e.wantState(r.ID, job.Cancelled)
		e.db.Advance(11 * time.Second)
		if _, err := e.db.Requeue(e.ctx, store.RequeueParams{ID: r.ID}); err != nil {
			e.Fatal(err)
		}
		st := with(waitFor("answer", 0, store.WaitParams{After: rec.Place}), e.claimOne("w"))
		st.WakeAt = rec.WakeAt
		if res := e.saveStep(st); res.Status != job.StepCompleted || string(res.Output) != "1" {
			e.Errorf("answer %+v", res)
		}
	}},
	{"a park for a wait that is over leaves its record and the run ready", func(e *env) {
		r := e.start("w", store.EnqueueParams{})
		place := e.saveStep(with(waitFor("over", 0, now), r)).Place
		e.publish(store.EventParams{Payload: []byte("1")})
		res := e.park(r, waitFor("over", time.Hour, store.WaitParams{Topic: "other", FromNow: true}))
		e.wantTime("due", res.RunAt, e.now())
		e.wantState(r.ID, job.Ready)
		if rec := e.wantRecord(r.ID, "over", job.StepTimedOut, ""); rec.Topic != "paid" || rec.Place != place {
			e.Errorf("record %+v", rec)
		}
	}},
	{"an expired event ends no wait", func(e *env) {
		r := e.start("w", store.EnqueueParams{})
		e.saveStep(with(waitFor("from here", 0, now), r))
		place := e.record(r.ID, "from here").Place
		e.publish(store.EventParams{Keep: time.Second})
		e.db.Advance(2 * time.Second)
		e.park(r, waitFor("answer", time.Hour, store.WaitParams{After: place}))
		e.wantState(r.ID, job.Suspended)
	}},
	{"a run that is parked again is parked for that alone", func(e *env) {
		r := e.start("w", store.EnqueueParams{})
		e.park(r, waitFor("a", time.Second, store.WaitParams{Topic: "a", FromNow: true}))
		e.db.Advance(2 * time.Second)
		got := e.claimOne("w")
		e.settle(store.SettleParams{Ref: refOf(got), Outcome: job.Slept, To: job.Suspended,
			Step: &store.StepParams{Name: "nap", Kind: job.KindSleep, Status: job.StepSleeping, Sleep: time.Hour}})
		if res := e.publish(store.EventParams{Topic: "a"})[0]; res.Woken != 0 {
			e.Errorf("a sleeper was woken")
		}
		e.wantState(r.ID, job.Suspended)
	}},
	{"an event commits with its step", func(e *env) {
		e.register("v")
		waiter := e.add(store.EnqueueParams{})
		e.park(e.claimOne("v"), waitFor("answer", time.Hour, now))
		r := e.start("w", store.EnqueueParams{})
		stale := refOf(r)
		stale.Claim++
		ev := e.event(store.EventParams{Payload: []byte(`"x"`), Run: r.ID})
		if res := e.saveStep(store.StepParams{Ref: stale, Name: "tell", Publish: []store.EventParams{ev}}); res.Landed {
			e.Error("a stale claim published")
		}
		e.wantState(waiter, job.Suspended)
		if res := e.saveStep(store.StepParams{Ref: refOf(r), Name: "tell", Output: []byte("1"), Publish: []store.EventParams{ev}}); !res.Landed {
			e.Error("did not land")
		}
		e.wantState(waiter, job.Ready)
		e.wantRecord(waiter, "answer", job.StepCompleted, `"x"`)
		e.wantRecord(r.ID, "tell", job.StepCompleted, "1")
		// With its settle as well.
		next := e.claimOne("v")
		e.park(next, waitFor("more", time.Hour, store.WaitParams{Topic: "paid", After: e.record(waiter, "answer").Place}))
		e.settle(store.SettleParams{Ref: refOf(r), Outcome: job.Completed, To: job.Done, Step: &store.StepParams{
			Name: "tell again", Kind: job.KindStep, Status: job.StepCompleted, Publish: []store.EventParams{e.event(store.EventParams{})}}})
		e.wantState(waiter, job.Ready)
		e.wantState(r.ID, job.Done)
	}},
	{"one event wakes many, in one commit", func(e *env) {
		e.register("w")
		const n = 50
		var waiting []string
		for range n {
			waiting = append(waiting, e.add(store.EnqueueParams{}))
		}
		payload := bytes.Repeat([]byte(" "), 5000)
		for _, r := range e.claim("w", n) {
			e.park(r, waitFor("answer", time.Hour, now))
		}
		if res := e.publish(store.EventParams{Payload: payload})[0]; res.Woken != n {
			e.Errorf("woke %d", res.Woken)
		}
		for _, id := range waiting {
			e.wantState(id, job.Ready)
			e.wantRecord(id, "answer", job.StepCompleted, string(payload))
		}
		if runs := e.claim("w", n+1); len(runs) != n {
			e.Errorf("claimed %d", len(runs))
		}
	}},
	{"a batch parks, publishes and settles", func(e *env) {
		e.register("w")
		for range 3 {
			e.add(store.EnqueueParams{})
		}
		runs := e.claim("w", 3)
		res, err := e.db.Settle(e.ctx, []store.SettleParams{
			{Ref: refOf(runs[0]), Outcome: job.Slept, To: job.Suspended, Step: waitFor("a", time.Hour, now)},
			{Ref: refOf(runs[1]), Outcome: job.Completed, To: job.Done, Output: []byte("1")},
			{Ref: job.Ref{RunID: runs[2].ID, Worker: "w", Claim: 9}, Outcome: job.Slept, To: job.Suspended, Step: waitFor("a", time.Hour, now)},
			{Ref: refOf(runs[2]), Outcome: job.Slept, To: job.Suspended, Step: waitFor("a", 0, now)},
		})
		if err != nil || !res[0].Landed || !res[1].Landed || res[2].Landed || !res[3].Landed {
			e.Fatalf("answers %+v, %v", res, err)
		}
		e.wantState(runs[0].ID, job.Suspended)
		e.wantState(runs[1].ID, job.Done)
		e.wantState(runs[2].ID, job.Ready)
		e.wantRecord(runs[2].ID, "a", job.StepTimedOut, "")
	}},
	{"a record of a wait says what it waits for", func(e *env) {
		r := e.start("w", store.EnqueueParams{})
		for _, p := range []store.StepParams{
			{Ref: refOf(r), Name: "a", Kind: job.KindWait, Status: job.StepWaiting},
			{Ref: refOf(r), Name: "a", Kind: job.KindStep, Status: job.StepCompleted, Wait: &store.WaitParams{Topic: "t"}},
		} {
			_, err := e.db.SaveSteps(e.ctx, []store.StepParams{p})
			e.wantRefused(err, job.CodeInvalid)
		}
	}},
}

// with is a record of r.
func with(p *store.StepParams, r job.Run) store.StepParams {
	p.Ref = refOf(r)
	return *p
}
