package storetest

import (
	"bytes"
	"slices"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

var enqueueTests = []test{
	{"a run is kept as it was given", func(e *env) {
		parent := e.add(store.EnqueueParams{})
		before := e.now()
		p := e.params(store.EnqueueParams{
			Job: "report", Queue: "slow", Tenant: "acme", Key: "k", Input: []byte(`{"a":1}`), Priority: -7, MaxAttempts: 9,
			Parent: parent, EnqueuedBy: "user:1", Traceparent: "00-1-2-01",
		})
		res := e.enqueue(p)[0]
		if res != (store.EnqueueResult{ID: p.ID, State: job.Ready}) {
			e.Fatalf("answer %+v", res)
		}
		r := e.get(p.ID)
		e.wantTime("created", r.CreatedAt, before)
		e.wantTime("due", r.RunAt, before)
		want := job.Run{
			ID: p.ID, Job: "report", Queue: "slow", Tenant: "acme", Key: "k", State: job.Ready, Priority: -7, MaxAttempts: 9,
			Input: []byte(`{"a":1}`), Parent: parent, EnqueuedBy: "user:1", Traceparent: "00-1-2-01",
			RunAt: r.RunAt, CreatedAt: r.CreatedAt,
		}
		if d := cmp.Diff(want, r); d != "" {
			e.Fatalf("run (-want +got):\n%s", d)
		}
	}},
	// (E5) Immediate work is stamped by the store, whose clock decides.
	{"delayed until its time, ready when that has passed", func(e *env) {
		now := e.now()
		res := e.enqueue(
			store.EnqueueParams{Delay: time.Minute},
			store.EnqueueParams{RunAt: now.Add(time.Hour)},
			store.EnqueueParams{RunAt: now.Add(-time.Hour)},
			store.EnqueueParams{},
		)
		want := []job.State{job.Delayed, job.Delayed, job.Ready, job.Ready}
		for i, r := range res {
			if r.State != want[i] || e.get(r.ID).State != want[i] {
				e.Errorf("entry %d is %s, want %s", i, r.State, want[i])
			}
		}
		e.wantTime("due", e.get(res[0].ID).RunAt, now.Add(time.Minute))
		if got := e.get(res[1].ID).RunAt; !got.Equal(now.Add(time.Hour)) {
			e.Errorf("due %s, want the instant that was given", got)
		}
	}},
	// (I1) The namespace is (job, tenant, key), and nothing narrower or wider.
	{"a key is one job's and one tenant's", func(e *env) {
		first := e.add(store.EnqueueParams{Tenant: "a", Key: "user:42"})
		e.add(store.EnqueueParams{Tenant: "b", Key: "user:42"})
		e.add(store.EnqueueParams{Tenant: "a", Key: "user:42", Job: "other"})
		e.add(store.EnqueueParams{Tenant: "a", Key: "user:43"})
		again := e.enqueue(store.EnqueueParams{Tenant: "a", Key: "user:42"})[0]
		if !again.Deduped || again.ID != first {
			e.Fatalf("the same tenant's key answered %+v, want run %s", again, first)
		}
		for _, q := range []struct{ job, tenant, key, want string }{
			{jobA, "a", "user:42", first}, {jobA, "c", "user:42", ""}, {"none", "a", "user:42", ""}, {jobA, "a", "user:4", ""},
		} {
			got, err := e.db.FindLive(e.ctx, q.job, q.tenant, q.key)
			if err != nil || got != q.want {
				e.Errorf("FindLive(%s, %s, %s) = %q, %v, want %q", q.job, q.tenant, q.key, got, err, q.want)
			}
		}
	}},
	// The parts of the namespace are told apart, however they are spelled.
	{"a separator inside a key collides with nobody", func(e *env) {
		e.add(store.EnqueueParams{Tenant: "a", Key: "b:c"})
		e.add(store.EnqueueParams{Tenant: "a:b", Key: "c"})
		e.add(store.EnqueueParams{Tenant: "a\x00b", Key: "c"})
		e.add(store.EnqueueParams{Tenant: "a", Key: "b\x00c"})
		e.add(store.EnqueueParams{Tenant: "a", Key: "B:C"})
	}},
	// (I2)
	{"runs without a tenant share a namespace", func(e *env) {
		first := e.add(store.EnqueueParams{Key: "k"})
		if again := e.enqueue(store.EnqueueParams{Key: "k"})[0]; again.ID != first || !again.Deduped {
			e.Fatalf("answer %+v, want run %s", again, first)
		}
	}},
	{"runs without a key are never deduped", func(e *env) {
		e.add(store.EnqueueParams{})
		e.add(store.EnqueueParams{})
		if got, err := e.db.FindLive(e.ctx, jobA, "", ""); err != nil || got != "" {
			e.Fatalf("FindLive of no key = %q, %v", got, err)
		}
	}},
	// (I3) Every live state holds the key.
	{"ready, delayed, running and suspended hold the key", func(e *env) {
		e.register("w")
		hold := func(id string) {
			e.Helper()
			state := e.get(id).State
			res := e.enqueue(store.EnqueueParams{Key: "k"})[0]
			if !res.Deduped || res.ID != id || res.State != state {
				e.Fatalf("a %s holder answered %+v", state, res)
			}
		}
		id := e.add(store.EnqueueParams{Key: "k", Delay: time.Second})
		hold(id)
		e.db.Advance(time.Second)
		r := e.claimOne("w")
		hold(id)
		e.finish(r, job.Slept, job.Suspended)
		hold(id)
		r = e.claimOne("w")
		e.finish(r, job.Interrupted, job.Ready)
		hold(id)
	}},
	// (I3)
	{"done, failed, dead and cancelled free the key", func(e *env) {
		e.register("w")
		for _, end := range []struct {
			outcome job.Outcome
			to      job.State
		}{{job.Completed, job.Done}, {job.Dropped, job.Failed}, {job.DeadLettered, job.Dead}, {"", job.Cancelled}} {
			id := e.add(store.EnqueueParams{Key: "k"})
			r := e.claimOne("w")
			if end.to == job.Cancelled {
				if _, err := e.db.Cancel(e.ctx, store.CancelParams{ID: id}); err != nil {
					e.Fatal(err)
				}
			} else {
				e.finish(r, end.outcome, end.to)
			}
			e.wantState(id, end.to)
		}
		e.add(store.EnqueueParams{Key: "k"})
	}},
	// (M2, M3)
	{"entries of one batch with one key are one run", func(e *env) {
		res := e.enqueue(store.EnqueueParams{Key: "k1"}, store.EnqueueParams{Key: "k2"}, store.EnqueueParams{Key: "k1"})
		if res[0].Deduped || res[1].Deduped || !res[2].Deduped || res[2].ID != res[0].ID || res[1].ID == res[0].ID {
			e.Fatalf("answers %+v", res)
		}
		if n := len(e.list(store.ListParams{})); n != 2 {
			e.Fatalf("%d runs, want 2", n)
		}
	}},
	// (I7)
	{"an id is used once, whatever became of its run", func(e *env) {
		r := e.start("w", store.EnqueueParams{Key: "k"})
		same := func(want job.State) {
			e.Helper()
			res := e.enqueue(store.EnqueueParams{ID: r.ID, Job: "other", Key: "else"})[0]
			if res != (store.EnqueueResult{ID: r.ID, Deduped: true, State: want}) {
				e.Fatalf("answer %+v", res)
			}
		}
		same(job.Running)
		e.finish(r, job.Completed, job.Done)
		same(job.Done)
		twice := e.enqueue(store.EnqueueParams{ID: uid(900)}, store.EnqueueParams{ID: uid(900)})
		if twice[0].Deduped || !twice[1].Deduped {
			e.Fatalf("one id twice in a batch: %+v", twice)
		}
		if n := len(e.list(store.ListParams{})); n != 2 {
			e.Fatalf("%d runs, want 2", n)
		}
	}},
	{"a taken id goes before a taken key", func(e *env) {
		r := e.start("w", store.EnqueueParams{})
		e.finish(r, job.Completed, job.Done)
		e.add(store.EnqueueParams{Key: "k"})
		if res := e.enqueue(store.EnqueueParams{ID: r.ID, Key: "k"})[0]; res.ID != r.ID {
			e.Fatalf("answer %+v, want run %s", res, r.ID)
		}
	}},
	{"a cancelled run's key can be used again, and then blocks its requeue", func(e *env) {
		first := e.add(store.EnqueueParams{Key: "k"})
		if _, err := e.db.Cancel(e.ctx, store.CancelParams{ID: first}); err != nil {
			e.Fatal(err)
		}
		e.add(store.EnqueueParams{Key: "k"})
		_, err := e.db.Requeue(e.ctx, store.RequeueParams{ID: first})
		e.wantRefused(err, job.CodeDuplicate)
		e.wantState(first, job.Cancelled)
	}},
	{"an id that is no canonical UUID is refused with its whole batch", func(e *env) {
		for _, bad := range []string{"nonsense", strings.ToUpper(uid(0xabc)), "{" + uid(1) + "}", uid(1) + "0"} {
			_, err := e.db.Enqueue(e.ctx, []store.EnqueueParams{e.params(store.EnqueueParams{}), e.params(store.EnqueueParams{ID: bad})})
			e.wantRefused(err, job.CodeIDInvalid)
		}
		if n := len(e.list(store.ListParams{})); n != 0 {
			e.Fatalf("%d runs were inserted beside a refused one", n)
		}
	}},
	// (M5)
	{"an empty batch does nothing", func(e *env) {
		if res, err := e.db.Enqueue(e.ctx, nil); err != nil || len(res) != 0 {
			e.Fatalf("answer %v, %v", res, err)
		}
	}},
	// (E6, Z5) Payloads are bytes.
	{"inputs of every kind and size survive to the claim", func(e *env) {
		e.register("w")
		var want [][]byte
		for _, in := range payloads() {
			e.add(store.EnqueueParams{Input: in})
			want = append(want, in)
		}
		runs := e.claim("w", len(want))
		if len(runs) != len(want) {
			e.Fatalf("claimed %d of %d", len(runs), len(want))
		}
		slices.SortFunc(runs, func(a, b job.Run) int { return strings.Compare(a.ID, b.ID) })
		for i, r := range runs {
			if !bytes.Equal(r.Input, want[i]) || !bytes.Equal(e.get(r.ID).Input, want[i]) {
				e.Errorf("input %d of %d bytes came back as %d bytes", i, len(want[i]), len(r.Input))
			}
		}
	}},
	{"texts survive as they are", func(e *env) {
		p := e.params(store.EnqueueParams{
			Job: "jöb 'quoted' --", Queue: "q%_\\", Tenant: "ten\"ant\n", Key: "k\x00ey", EnqueuedBy: "Zoë 🚀", Traceparent: "t'; DROP TABLE runs; --",
		})
		e.enqueue(p)
		r := e.get(p.ID)
		got := []string{r.Job, r.Queue, r.Tenant, r.Key, r.EnqueuedBy, r.Traceparent}
		if want := []string{p.Job, p.Queue, p.Tenant, p.Key, p.EnqueuedBy, p.Traceparent}; !slices.Equal(got, want) {
			e.Fatalf("texts %q, want %q", got, want)
		}
	}},
	{"a cancelled context inserts nothing", func(e *env) {
		ctx, cancel := contextWithCancel(e.ctx)
		cancel()
		if _, err := e.db.Enqueue(ctx, []store.EnqueueParams{e.params(store.EnqueueParams{})}); err == nil {
			e.Fatal("no error")
		}
		if n := len(e.list(store.ListParams{})); n != 0 {
			e.Fatalf("%d runs", n)
		}
	}},
}

// payloads are bytes that a text or JSON column would not keep.
func payloads() [][]byte {
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	return [][]byte{
		[]byte(`{"nul":"\u0000","dup":1,"dup":2,"big":12345678901234567890.10}`),
		[]byte(` [ 1 ,2 ] `),
		[]byte(`null`),
		[]byte("\x00"),
		[]byte("invalid \xff\xfe utf-8"),
		all,
		bytes.Repeat([]byte{'x'}, 1024),
		bytes.Repeat([]byte{'x'}, 1025),
		bytes.Repeat([]byte("0123456789abcdef"), 1<<16), // 1 MiB
	}
}
