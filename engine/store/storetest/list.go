package storetest

import (
	"slices"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

func (e *env) list(p store.ListParams) []job.Run {
	e.Helper()
	runs, err := e.db.List(e.ctx, p)
	if err != nil {
		e.Fatalf("list %+v: %v", p, err)
	}
	return runs
}

func (e *env) wantList(p store.ListParams, want ...string) {
	e.Helper()
	if got := ids(e.list(p)); !slices.Equal(got, want) && len(got)+len(want) > 0 {
		e.Errorf("list %+v:\n got %v\nwant %v", p, got, want)
	}
}

var listTests = []test{
	// (O7, I9)
	{"newest first, by id where the instant is the same", func(e *env) {
		e.add(store.EnqueueParams{ID: uid(3)})
		e.add(store.EnqueueParams{ID: uid(1)})
		e.add(store.EnqueueParams{ID: uid(2)})
		e.wantList(store.ListParams{}, uid(3), uid(2), uid(1))
	}},
	{"pages show each run once", func(e *env) {
		var batch []store.EnqueueParams
		for range 25 {
			batch = append(batch, e.params(store.EnqueueParams{}))
		}
		e.enqueue(batch...)
		var got []string
		before := ""
		for {
			page := e.list(store.ListParams{Before: before, Limit: 10})
			got = append(got, ids(page)...)
			if len(page) == 0 {
				break
			}
			before = page[len(page)-1].ID
		}
		if len(got) != 25 || !slices.IsSortedFunc(got, func(a, b string) int { return -cmpString(a, b) }) {
			e.Fatalf("paged %v", got)
		}
	}},
	{"a page goes on after a run that was purged meanwhile", func(e *env) {
		r := e.start("w", store.EnqueueParams{ID: uid(5)})
		e.add(store.EnqueueParams{ID: uid(4)})
		e.settle(store.SettleParams{Ref: refOf(r), Outcome: job.Completed, To: job.Done, Retention: time.Second})
		e.db.Advance(time.Minute)
		if n, err := e.db.Purge(e.ctx, 1); n != 1 || err != nil {
			e.Fatalf("purged %d, %v", n, err)
		}
		e.wantList(store.ListParams{Before: uid(5)}, uid(4))
	}},
	// (O9)
	{"a page is 100 runs, and at most 1,000", func(e *env) {
		var batch []store.EnqueueParams
		for range 1001 {
			batch = append(batch, e.params(store.EnqueueParams{}))
		}
		e.enqueue(batch...)
		for _, q := range []struct{ limit, want int }{{0, 100}, {1, 1}, {1000, 1000}} {
			if n := len(e.list(store.ListParams{Limit: q.limit})); n != q.want {
				e.Errorf("limit %d listed %d, want %d", q.limit, n, q.want)
			}
		}
		for _, limit := range []int{-1, 1001} {
			_, err := e.db.List(e.ctx, store.ListParams{Limit: limit})
			e.wantRefused(err, job.CodePageInvalid)
		}
		_, err := e.db.List(e.ctx, store.ListParams{Before: "page two"})
		e.wantRefused(err, job.CodePageInvalid)
	}},
	// (O8)
	{"filters, alone and together", func(e *env) {
		acme, none := "acme", ""
		parent := e.add(store.EnqueueParams{ID: uid(1), Queue: "p"})
		e.add(store.EnqueueParams{ID: uid(2), Job: "a", Queue: "x", Tenant: acme})
		e.add(store.EnqueueParams{ID: uid(3), Job: "a", Queue: "y", Parent: parent})
		e.add(store.EnqueueParams{ID: uid(4), Job: "b", Queue: "x", Parent: parent, Tenant: acme})
		e.wantList(store.ListParams{Job: "a"}, uid(3), uid(2))
		e.wantList(store.ListParams{Queue: "x"}, uid(4), uid(2))
		e.wantList(store.ListParams{Tenant: &acme}, uid(4), uid(2))
		e.wantList(store.ListParams{Tenant: &none}, uid(3), uid(1))
		e.wantList(store.ListParams{Parent: parent}, uid(4), uid(3))
		e.wantList(store.ListParams{Parent: parent, Before: uid(4)}, uid(3))
		e.wantList(store.ListParams{Parent: uid(9)})
		e.wantList(store.ListParams{Parent: "nonsense"})
		e.wantList(store.ListParams{Job: "a", Queue: "x", Tenant: &acme, State: job.Ready, IDPrefix: uid(2)}, uid(2))
		e.wantList(store.ListParams{Job: "A"})
		e.wantList(store.ListParams{Job: "%"})
		e.wantList(store.ListParams{Queue: "_"})
	}},
	{"every state", func(e *env) {
		want := e.inEachState()
		for _, st := range job.States {
			e.wantList(store.ListParams{State: st}, want[st])
			e.wantList(store.ListParams{State: st, IDPrefix: want[st], Queue: queueA, Job: jobA}, want[st])
			e.wantList(store.ListParams{State: st, Before: want[st]})
		}
		_, err := e.db.List(e.ctx, store.ListParams{State: "hibernating"})
		e.wantRefused(err, job.CodeInvalid)
	}},
	// (O8)
	{"an id prefix is literal", func(e *env) {
		a, b, c := "01970000-aaaa-7000-8000-000000000001", "01970000-aaab-7000-8000-000000000001", "01980000-0000-7000-8000-000000000001"
		for _, id := range []string{a, b, c} {
			e.add(store.EnqueueParams{ID: id})
		}
		e.wantList(store.ListParams{IDPrefix: "0197"}, b, a)
		e.wantList(store.ListParams{IDPrefix: "01970000"}, b, a)
		e.wantList(store.ListParams{IDPrefix: "01970000-"}, b, a)
		e.wantList(store.ListParams{IDPrefix: "01970000-aaa"}, b, a)
		e.wantList(store.ListParams{IDPrefix: "01970000-aaaa"}, a)
		e.wantList(store.ListParams{IDPrefix: a}, a)
		for _, p := range []string{"%", "_", "0_97", "0197%", "01970000aaaa", "x", "01A", a + "0", "0197\x00"} {
			e.wantList(store.ListParams{IDPrefix: p})
		}
	}},
	{"by the code of the run's error", func(e *env) {
		e.register("w")
		var want []string
		for _, code := range []string{"X_CARD", "X_CARD_DECLINED", "", "X_CARD"} {
			id := e.add(store.EnqueueParams{})
			e.settle(store.SettleParams{Ref: refOf(e.claimOne("w")), Outcome: job.DeadLettered, To: job.Dead,
				Error: &job.Failure{Code: code, Message: `a \u0000 and a "quote"`, Fix: "X_CARD"}})
			if code == "X_CARD" {
				want = append([]string{id}, want...)
			}
		}
		e.wantList(store.ListParams{Code: "X_CARD"}, want...)
		e.wantList(store.ListParams{Code: "X_CARD", State: job.Dead, Limit: 1}, want[0])
		e.wantList(store.ListParams{Code: `X_CARD","message`})
		e.wantList(store.ListParams{Code: "X%"})
	}},
	{"by the time of creation, the first instant included and the last not", func(e *env) {
		var at []time.Time
		var id []string
		for range 3 {
			id = append(id, e.add(store.EnqueueParams{}))
			at = append(at, e.get(id[len(id)-1]).CreatedAt)
			e.db.Advance(time.Minute)
		}
		e.wantList(store.ListParams{Since: at[1]}, id[2], id[1])
		e.wantList(store.ListParams{Until: at[1]}, id[0])
		e.wantList(store.ListParams{Since: at[1], Until: at[2]}, id[1])
	}},
	// (O4, O7)
	{"oldest first, from a run on", func(e *env) {
		r := e.start("w", store.EnqueueParams{ID: uid(2)})
		e.finish(r, job.Completed, job.Done)
		e.add(store.EnqueueParams{ID: uid(1)})
		e.add(store.EnqueueParams{ID: uid(4)})
		e.add(store.EnqueueParams{ID: uid(3)})
		e.wantList(store.ListParams{Oldest: true}, uid(1), uid(2), uid(3), uid(4))
		e.wantList(store.ListParams{Oldest: true, After: uid(1), Limit: 2}, uid(2), uid(3))
		e.wantList(store.ListParams{Oldest: true, After: uid(1), State: job.Ready}, uid(3), uid(4))
		e.wantList(store.ListParams{After: uid(2), Before: uid(4)}, uid(3))
		_, err := e.db.List(e.ctx, store.ListParams{After: "page two"})
		e.wantRefused(err, job.CodePageInvalid)
	}},
	{"rows carry everything but input and output", func(e *env) {
		r := e.start("w", store.EnqueueParams{Tenant: "t", Key: "k", Priority: 3, Input: []byte("1"), EnqueuedBy: "me", Traceparent: "tp"})
		e.saveStep(store.StepParams{Ref: refOf(r), Name: "a", Module: "m"})
		e.settle(store.SettleParams{Ref: refOf(r), Outcome: job.Completed, To: job.Done, Output: []byte("2"), Progress: &job.Progress{Permille: 1, Note: "n"}, Retention: time.Hour})
		want := e.get(r.ID)
		want.Input, want.Output = nil, nil
		if d := cmp.Diff([]job.Run{want}, e.list(store.ListParams{})); d != "" {
			e.Fatalf("listed (-want +got):\n%s", d)
		}
	}},
}

func cmpString(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}
