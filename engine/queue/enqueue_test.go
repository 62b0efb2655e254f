package queue_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/internal/enginetest"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/manifest"
	"github.com/jobrunner/runner/engine/queue"
	"github.com/jobrunner/runner/engine/store"
	"github.com/jobrunner/runner/engine/store/sqlite"
)

// open returns a queue with a few jobs over a database in memory.
func open(t *testing.T) (*queue.Queue, *enginetest.Store) {
	t.Helper()
	db := &enginetest.Store{Store: enginetest.Memory(t)}
	g := &enginetest.Guest{Name: "q", Handlers: map[string]enginetest.Handler{"free": nil, "keyed": nil, "tenant": nil, "checked": nil}}
	m := enginetest.Serve(g, func(m *manifest.Manifest) {
		m.Jobs["keyed"].Key = enginetest.Key("user:{id}")
		m.Jobs["keyed"].Priority = 7
		m.Jobs["tenant"].Tenant = enginetest.Tenant("{org}")
		m.Jobs["tenant"].Key = enginetest.Key("user:{id}")
		m.Jobs["checked"].Input = enginetest.Schema(t, `{"type":"object","required":["n"],"properties":{"n":{"type":"integer"}}}`)
	}).Manifest
	return queue.New(queue.Config{Store: db, Manifest: func() *manifest.Manifest { return m }}), db
}

func code(t *testing.T, err error, want string) {
	t.Helper()
	if got := abi.CodeOf(err); got != want {
		t.Errorf("error is %v, want code %s", err, want)
	}
}

func TestARefusedRequestSaysWhyAndWritesNothing(t *testing.T) {
	q, db := open(t)
	priority := 101
	for name, c := range map[string]struct {
		r    queue.Request
		code string
		says string
	}{
		"unknown job":            {queue.Request{Job: "constructor"}, job.CodeUnknownJob, "constructor"},
		"not JSON":               {queue.Request{Job: "free", Input: []byte(`{"a":}`)}, job.CodeInputInvalid, "byte 5"},
		"not UTF-8":              {queue.Request{Job: "free", Input: []byte("\"\xff\"")}, job.CodeInputInvalid, "free"},
		"one key twice":          {queue.Request{Job: "free", Input: []byte(`{"a":1,"\u0061":2}`)}, job.CodeInputInvalid, "byte"},
		"too large":              {queue.Request{Job: "free", Input: []byte(`"` + strings.Repeat("x", abi.MaxInput) + `"`)}, job.CodeInputInvalid, "1048576"},
		"against the schema":     {queue.Request{Job: "checked", Input: []byte(`{"n":"one"}`)}, job.CodeInputInvalid, "n"},
		"key of missing field":   {queue.Request{Job: "keyed", Input: []byte(`{}`)}, job.CodeKeyInvalid, "id"},
		"key too long":           {queue.Request{Job: "free", Key: strings.Repeat("k", job.MaxKey+1)}, job.CodeKeyInvalid, "512"},
		"key with NUL":           {queue.Request{Job: "free", Key: "a\x00b"}, job.CodeKeyInvalid, "NUL"},
		"tenant of nobody":       {queue.Request{Job: "tenant", Input: []byte(`{"id":1}`)}, job.CodeKeyInvalid, "org"},
		"tenant of another":      {queue.Request{Job: "tenant", Tenant: "a", Input: []byte(`{"org":"b","id":1}`)}, job.CodeTenantMismatch, `"b"`},
		"id in braces":           {queue.Request{Job: "free", ID: "{01890a5d-ac96-774b-bcce-b302099a8057}"}, job.CodeIDInvalid, "canonical"},
		"id in upper case":       {queue.Request{Job: "free", ID: "01890A5D-AC96-774B-BCCE-B302099A8057"}, job.CodeIDInvalid, "canonical"},
		"priority":               {queue.Request{Job: "free", Priority: &priority}, job.CodeInvalid, "101"},
		"attempts":               {queue.Request{Job: "free", MaxAttempts: -1}, job.CodeInvalid, "-1"},
		"delay in the past":      {queue.Request{Job: "free", Delay: -time.Second}, job.CodeInvalid, "past"},
		"delay beyond sense":     {queue.Request{Job: "free", Delay: queue.MaxDelay + 1}, job.CodeInvalid, "ten years"},
		"delay and instant":      {queue.Request{Job: "free", Delay: 1, RunAt: time.Now()}, job.CodeInvalid, "one of them"},
		"instant beyond sense":   {queue.Request{Job: "free", RunAt: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)}, job.CodeInvalid, "9999"},
		"traceparent too long":   {queue.Request{Job: "free", Traceparent: strings.Repeat("0", 256)}, job.CodeInvalid, "traceparent"},
		"enqueued_by too long":   {queue.Request{Job: "free", EnqueuedBy: strings.Repeat("x", 256)}, job.CodeInvalid, "enqueued_by"},
		"depth beyond the ABI's": {queue.Request{Job: "free", Input: []byte(strings.Repeat("[", 1001) + strings.Repeat("]", 1001))}, job.CodeInputInvalid, "byte"},
	} {
		_, err := q.Enqueue(t.Context(), c.r)
		code(t, err, c.code)
		if err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %q does not say %q", name, err, c.says)
		}
	}
	if n := db.Count("Enqueue"); n != 0 {
		t.Errorf("the store was asked %d times", n)
	}
}

func TestAnEnqueuedRunCarriesItsDeclarationOrWhatTheRequestSaysInstead(t *testing.T) {
	q, db := open(t)
	low := -3
	plain, err := q.Enqueue(t.Context(), queue.Request{Job: "keyed", Input: []byte(`{"id":1}`)})
	if err != nil {
		t.Fatal(err)
	}
	other, err := q.Enqueue(t.Context(), queue.Request{
		Job: "keyed", Input: []byte(`{"id":1}`), Key: "mine", Tenant: "acme", Priority: &low, MaxAttempts: 9,
		EnqueuedBy: "ann", Traceparent: "00-1-2-01", Delay: time.Hour,
	})
	if err != nil {
		t.Fatal(err)
	}
	a, _ := db.Get(t.Context(), plain.ID)
	b, _ := db.Get(t.Context(), other.ID)
	if a.Key != "user:1" || a.Tenant != "" || a.Priority != 7 || a.MaxAttempts != 3 || a.State != job.Ready || string(a.Input) != `{"id":1}` {
		t.Errorf("declared: %+v", a)
	}
	if b.Key != "mine" || b.Tenant != "acme" || b.Priority != -3 || b.MaxAttempts != 9 || b.State != job.Delayed ||
		b.EnqueuedBy != "ann" || b.Traceparent != "00-1-2-01" {
		t.Errorf("overridden: %+v", b)
	}
	if other.State != job.Delayed || plain.State != job.Ready {
		t.Errorf("states answered: %s, %s", plain.State, other.State)
	}
	if a.ID >= b.ID {
		t.Errorf("ids %s and %s do not sort as they were made", a.ID, b.ID)
	}
}

func TestTheNamespaceOfAKeyIsJobAndTenant(t *testing.T) {
	q, _ := open(t)
	enqueue := func(jobName, input string) queue.Result {
		r, err := q.Enqueue(t.Context(), queue.Request{Job: jobName, Input: []byte(input)})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	a := enqueue("tenant", `{"org":"a","id":1}`)
	b := enqueue("tenant", `{"org":"b","id":1}`)
	other := enqueue("keyed", `{"id":1}`)
	again := enqueue("tenant", `{"org":"a","id":1}`)
	if a.Deduped || b.Deduped || other.Deduped || a.ID == b.ID || a.ID == other.ID {
		t.Errorf("tenants and jobs share a key: %+v %+v %+v", a, b, other)
	}
	if !again.Deduped || again.ID != a.ID {
		t.Errorf("the second enqueue of tenant a answered %+v, want %s deduped", again, a.ID)
	}
}

func TestOnConflictFailNamesTheHolder(t *testing.T) {
	q, _ := open(t)
	first, err := q.Enqueue(t.Context(), queue.Request{Job: "keyed", Input: []byte(`{"id":1}`), OnConflict: queue.Fail})
	if err != nil {
		t.Fatal(err)
	}
	_, err = q.Enqueue(t.Context(), queue.Request{Job: "keyed", Input: []byte(`{"id":1}`), OnConflict: queue.Fail})
	code(t, err, job.CodeDuplicate)
	if !strings.Contains(err.Error(), first.ID) {
		t.Errorf("%q does not name %s", err, first.ID)
	}
}

func TestEightEnqueuesOfOneKeyMakeOneRun(t *testing.T) {
	q, _ := open(t)
	results := make(chan queue.Result)
	for range 8 {
		go func() {
			r, err := q.Enqueue(context.Background(), queue.Request{Job: "keyed", Input: []byte(`{"id":1}`)})
			if err != nil {
				t.Error(err)
			}
			results <- r
		}()
	}
	ids, deduped := map[string]bool{}, 0
	for range 8 {
		r := <-results
		ids[r.ID] = true
		if r.Deduped {
			deduped++
		}
	}
	if len(ids) != 1 || deduped != 7 {
		t.Errorf("%d runs, %d deduped; want 1 and 7", len(ids), deduped)
	}
}

func TestAnImmediateRunIsDueWhateverTheEnqueuersClockSays(t *testing.T) {
	for _, skew := range []time.Duration{-10 * time.Minute, 10 * time.Minute} {
		q, db := open(t)
		behind, err := sqlite.Open(t.Context(), sqlite.Config{
			Path: sqlite.Memory, Create: true, Clock: func() time.Time { return time.Now().Add(skew) },
		})
		if err != nil {
			t.Fatal(err)
		}
		defer behind.Close()
		db.Store = behind
		r, err := q.Enqueue(t.Context(), queue.Request{Job: "free"})
		if err != nil {
			t.Fatal(err)
		}
		run, err := db.Get(t.Context(), r.ID)
		if err != nil {
			t.Fatal(err)
		}
		if !run.RunAt.Equal(run.CreatedAt) || run.State != job.Ready {
			t.Errorf("due at %s, created at %s, %s: want the store's one instant", run.RunAt, run.CreatedAt, run.State)
		}
	}
}

func TestABatchIsAllCheckedBeforeTheFirstWrite(t *testing.T) {
	q, db := open(t)
	_, err := q.EnqueueMany(t.Context(), []queue.Request{{Job: "free"}, {Job: "free", Input: []byte(`{`)}, {Job: "nope"}})
	code(t, err, job.CodeInputInvalid)
	if err == nil || !strings.Contains(err.Error(), "entry 1") {
		t.Errorf("%v does not name entry 1", err)
	}
	if n := db.Count("Enqueue"); n != 0 {
		t.Errorf("the store was asked %d times", n)
	}
}

func TestABatchAnswersEachEntryInOrder(t *testing.T) {
	q, _ := open(t)
	held, err := q.Enqueue(t.Context(), queue.Request{Job: "keyed", Input: []byte(`{"id":0}`)})
	if err != nil {
		t.Fatal(err)
	}
	in := func(id string) queue.Request { return queue.Request{Job: "keyed", Input: []byte(`{"id":` + id + `}`)} }
	got, err := q.EnqueueMany(t.Context(), []queue.Request{in("1"), in("2"), in("1"), in("0")})
	if err != nil {
		t.Fatal(err)
	}
	if got[0].Deduped || got[1].Deduped || !got[2].Deduped || got[2].ID != got[0].ID || !got[3].Deduped || got[3].ID != held.ID {
		t.Errorf("got %+v", got)
	}
}

func TestABatchIsBoundedAndMayBeEmpty(t *testing.T) {
	q, db := open(t)
	if got, err := q.EnqueueMany(t.Context(), nil); err != nil || len(got) != 0 || got == nil {
		t.Errorf("an empty batch answers %v, %v", got, err)
	}
	_, err := q.EnqueueMany(t.Context(), make([]queue.Request, queue.MaxEnqueue+1))
	code(t, err, job.CodeInvalid)
	if n := db.Count("Enqueue"); n != 0 {
		t.Errorf("the store was asked %d times", n)
	}
	many := make([]queue.Request, 2500)
	for i := range many {
		many[i] = queue.Request{Job: "free"}
	}
	if got, err := q.EnqueueMany(t.Context(), many); err != nil || len(got) != 2500 {
		t.Errorf("%d results, %v", len(got), err)
	}
	if n := db.Count("Enqueue"); n != 3 {
		t.Errorf("2,500 runs took %d writes, want 3", n)
	}
}

func TestAnEnqueueWhoseAnswerWasLostIsRepeatedUnderItsID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, db := open(t)
		lost := 2
		db.Between = func(_ context.Context, op string, call func() error) error {
			if op == "Enqueue" && lost > 0 {
				lost--
				return enginetest.Lost(call)
			}
			return call()
		}
		one, err := q.Enqueue(t.Context(), queue.Request{Job: "free"})
		if err != nil || one.Deduped {
			t.Errorf("answered %+v, %v; want a new run", one, err)
		}
		lost = 1
		many, err := q.EnqueueMany(t.Context(), []queue.Request{{Job: "free"}, {Job: "free"}})
		if err != nil || many[0].Deduped || many[1].Deduped {
			t.Errorf("answered %+v, %v; want two new runs", many, err)
		}
		runs, err := q.List(t.Context(), store.ListParams{})
		if err != nil || len(runs) != 3 {
			t.Errorf("%d runs, %v; want 3", len(runs), err)
		}
	})
}

func TestARepeatedIDInsertsNothingInAnyState(t *testing.T) {
	q, _ := open(t)
	const id = "01890a5d-ac96-774b-bcce-b302099a8057"
	first, err := q.Enqueue(t.Context(), queue.Request{Job: "free", ID: id})
	if err != nil || first.Deduped || first.ID != id {
		t.Fatalf("%+v, %v", first, err)
	}
	if _, err := q.Cancel(t.Context(), store.CancelParams{ID: id, Reason: "enough"}); err != nil {
		t.Fatal(err)
	}
	again, err := q.Enqueue(t.Context(), queue.Request{Job: "free", ID: id})
	if err != nil || !again.Deduped || again.ID != id {
		t.Errorf("%+v, %v; want deduped", again, err)
	}
}

func TestAnEnqueueGivesUpOnAStoreThatStaysAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, db := open(t)
		db.Between = func(_ context.Context, op string, call func() error) error {
			if op == "Enqueue" {
				return enginetest.Away()
			}
			return call()
		}
		began := time.Now()
		_, err := q.Enqueue(t.Context(), queue.Request{Job: "free"})
		if err == nil || time.Since(began) > 10*time.Second {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		if err := q.Wait(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestAKeyIsFreeAgainOnceItsRunHasEnded(t *testing.T) {
	q, _ := open(t)
	in := queue.Request{Job: "keyed", Input: []byte(`{"id":1}`)}
	first, err := q.Enqueue(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := q.Cancel(t.Context(), store.CancelParams{ID: first.ID}); err != nil {
		t.Fatal(err)
	}
	second, err := q.Enqueue(t.Context(), in)
	if err != nil || second.Deduped {
		t.Fatalf("%+v, %v; want a new run", second, err)
	}
	_, err = q.Retry(t.Context(), store.RequeueParams{ID: first.ID})
	code(t, err, job.CodeDuplicate)
}

func TestVerbsRefuseRunsInTheWrongState(t *testing.T) {
	q, _ := open(t)
	r, err := q.Enqueue(t.Context(), queue.Request{Job: "free"})
	if err != nil {
		t.Fatal(err)
	}
	_, err = q.Retry(t.Context(), store.RequeueParams{ID: r.ID})
	code(t, err, job.CodeNotRequeueable)
	_, err = q.Retry(t.Context(), store.RequeueParams{ID: r.ID, Attempts: -1})
	code(t, err, job.CodeInvalid)
	if _, err := q.Cancel(t.Context(), store.CancelParams{ID: r.ID, Reason: "enough"}); err != nil {
		t.Fatal(err)
	}
	_, err = q.Cancel(t.Context(), store.CancelParams{ID: r.ID, Reason: "again"})
	code(t, err, job.CodeNotCancellable)
	run, _ := q.Get(t.Context(), r.ID)
	if run.Error.Message != "enough" {
		t.Errorf("the reason became %q", run.Error.Message)
	}
	_, err = q.Cancel(t.Context(), store.CancelParams{ID: "01890a5d-ac96-774b-bcce-b302099a8057"})
	code(t, err, job.CodeNotFound)
	if !errors.Is(err, &abi.Error{Code: job.CodeNotFound}) {
		t.Error("the code is not found by errors.Is")
	}
}
