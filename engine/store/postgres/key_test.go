package postgres

import (
	"context"
	"testing"
	"time"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

// A key that is the run's own id has no row of its own, and is a key like any
// other nevertheless.
func TestARunsOwnIDIsAKeyLikeAnyOther(t *testing.T) {
	ctx := context.Background()
	d := openWithWorker(t)
	n := 0
	entry := func(id, key string) store.EnqueueParams {
		if n++; id == "" {
			id = idAt(time.Now(), n)
		}
		return store.EnqueueParams{ID: id, Job: "j", Queue: "q", Tenant: "t", Key: key, MaxAttempts: 1}
	}
	enqueue := func(batch ...store.EnqueueParams) []store.EnqueueResult {
		t.Helper()
		res, err := d.Enqueue(ctx, batch)
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	want := func(res store.EnqueueResult, id string, deduped bool) {
		t.Helper()
		if res.ID != id || res.Deduped != deduped {
			t.Fatalf("answer %+v, want run %s, deduped %v", res, id, deduped)
		}
	}
	live := func(key, id string) {
		t.Helper()
		if got, err := d.FindLive(ctx, "j", "t", key); err != nil || got != id {
			t.Fatalf("the key %s is held by %q, %v, want %q", key, got, err, id)
		}
	}
	x := idAt(time.Now(), 1000)
	want(enqueue(entry(x, x))[0], x, false)
	live(x, x)
	if r, err := d.Get(ctx, x); err != nil || r.Key != x {
		t.Fatalf("%+v, %v", r, err)
	}
	// Another run with that key is the same work, waiting and running.
	want(enqueue(entry("", x))[0], x, true)
	r := d.claimOne(t, x)
	if r.Key != x {
		t.Fatalf("claimed with the key %q", r.Key)
	}
	want(enqueue(entry("", x))[0], x, true)
	// Of another tenant it is not.
	other := entry("", x)
	other.Tenant = "u"
	if res := enqueue(other)[0]; res.Deduped {
		t.Fatalf("answer %+v", res)
	}
	if _, err := d.Settle(ctx, []store.SettleParams{{Ref: refOf(r), Outcome: job.Completed, To: job.Done}}); err != nil {
		t.Fatal(err)
	}
	live(x, "")
	// Now another may have it, and then keeps the first from coming back.
	y := entry("", x)
	want(enqueue(y)[0], y.ID, false)
	live(x, y.ID)
	_, err := d.Requeue(ctx, store.RequeueParams{ID: x})
	if abi.CodeOf(err) != job.CodeDuplicate {
		t.Fatal(err)
	}
	if _, err := d.Cancel(ctx, store.CancelParams{ID: y.ID}); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Requeue(ctx, store.RequeueParams{ID: x}); err != nil {
		t.Fatal(err)
	}
	live(x, x)
	_, err = d.Requeue(ctx, store.RequeueParams{ID: y.ID})
	if abi.CodeOf(err) != job.CodeDuplicate {
		t.Fatal(err)
	}
	// A key that is an id, before there is a run of it.
	z := idAt(time.Now(), 2000)
	early := entry("", z)
	want(enqueue(early)[0], early.ID, false)
	want(enqueue(entry(z, z))[0], early.ID, true)
	if _, err := d.Get(ctx, z); abi.CodeOf(err) != job.CodeNotFound {
		t.Fatal(err)
	}
	// In one batch, in either order.
	a, b := idAt(time.Now(), 3000), idAt(time.Now(), 3001)
	res := enqueue(entry(a, a), entry("", a), entry("", b), entry(b, b))
	want(res[0], a, false)
	want(res[1], a, true)
	want(res[3], res[2].ID, true)
	// Among many that go in by COPY.
	c := idAt(time.Now(), 4000)
	first := entry("", c)
	want(enqueue(first)[0], first.ID, false)
	var many []store.EnqueueParams
	for i := range 2 * copyMin {
		id := idAt(time.Now(), 5000+i)
		many = append(many, entry(id, id))
	}
	many[copyMin] = entry(c, c)
	for i, res := range enqueue(many...) {
		if i == copyMin {
			want(res, first.ID, true)
		} else {
			want(res, many[i].ID, false)
		}
	}
}
