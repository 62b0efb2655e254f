package sqlite

import (
	"context"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

// Every filter, alone and with every other, prepares: a statement names its
// index, and SQLite refuses one that the index cannot serve.
func TestEveryFilterHasAPlan(t *testing.T) {
	s := open(t, Config{Path: Memory})
	tenant := "t"
	err := s.w.do(t.Context(), func(tx *tx) error {
		for _, state := range append([]job.State{""}, job.States...) {
			for bits := range 1 << 6 {
				p := store.ListParams{State: state}
				for i, set := range []func(){
					func() { p.Job = "j" }, func() { p.Queue = "q" }, func() { p.Tenant = &tenant },
					func() { p.IDPrefix = "0197" }, func() { p.Parent = id(1) }, func() { p.Before = id(2) },
				} {
					if bits&(1<<i) != 0 {
						set()
					}
				}
				text, _, none, err := listQuery(p)
				if err != nil || none {
					t.Fatalf("%+v: none %v, %v", p, none, err)
				}
				for _, detail := range explain(t, tx.conn, "EXPLAIN QUERY PLAN "+text, 3) {
					if strings.HasPrefix(detail, "SCAN runs") && !strings.Contains(detail, "USING") {
						t.Errorf("%+v: %s", p, detail)
					}
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A text in the filter is a value, never a part of the statement.
func TestFiltersAreBound(t *testing.T) {
	hostile := "x' OR '1'='1"
	text, bind, _, err := listQuery(store.ListParams{Job: hostile, Queue: hostile, Tenant: &hostile})
	if err != nil || strings.Contains(text, hostile) || len(bind) != 3 {
		t.Fatalf("%q with %d values, %v", text, len(bind), err)
	}
	if _, _, _, err := listQuery(store.ListParams{State: job.State(hostile)}); err == nil {
		t.Fatal("a state is spliced into the statement unchecked")
	}
}

// A listing has the runs of which the whole filter is true, to the byte, newest
// first, or is refused with a code.
func FuzzAListingIsWhatItsFilterSays(f *testing.F) {
	names := []string{"a", "A", "a%", "_", "%", "", "a'", "ä", "a\u0308", "a ", "null", "0197", "\U0010ffff"}
	s := open(f, Config{Path: Memory})
	var batch []store.EnqueueParams
	for i, name := range names {
		p := store.EnqueueParams{ID: id(i + 1), Job: "j" + name, Queue: "q" + names[len(names)-1-i], Tenant: name, Key: name, Input: []byte("1"), MaxAttempts: 1}
		if i > 0 {
			p.Parent = id(1)
		}
		if i%3 == 0 {
			p.Delay = time.Hour
		}
		batch = append(batch, p)
	}
	if _, err := s.Enqueue(context.Background(), batch); err != nil {
		f.Fatal(err)
	}
	all, err := s.List(context.Background(), store.ListParams{})
	if err != nil || len(all) != len(names) {
		f.Fatal(len(all), err)
	}
	for _, name := range append(names, "x' OR '1'='1", "\x00", "\xff", "j", "ready") {
		f.Add("j"+name, "", "", "", "", "", "", "", int64(0), int64(0), 0, false, false)
		f.Add("", "q"+name, name, "ready", "", "", "", "", int64(0), int64(0), 3, true, true)
		f.Add("", "", "", "delayed", "0"+name, id(1), id(5), "", int64(0), int64(1), 1, false, true)
		f.Add("", "", "", name, name, name, name, name, int64(math.MaxInt64), int64(math.MinInt64), -1, false, true)
	}
	f.Fuzz(func(t *testing.T, name, queue, tenant, state, prefix, parent, before, after string, since, until int64, limit int, ofTenant, oldest bool) {
		p := store.ListParams{Job: name, Queue: queue, State: job.State(state), IDPrefix: prefix, Parent: parent, Before: before, After: after, Limit: limit, Oldest: oldest}
		if ofTenant {
			p.Tenant = &tenant
		}
		if since != 0 {
			p.Since = time.Unix(since, 0)
		}
		if until != 0 {
			p.Until = time.Unix(until, 0)
		}
		got, err := s.List(context.Background(), p)
		if err != nil {
			if code := abi.CodeOf(err); code != job.CodeInvalid && code != job.CodePageInvalid || len(err.Error()) > 1<<10 {
				t.Fatalf("%+v: %v", p, err)
			}
			return
		}
		var want []string
		for _, r := range all { // newest first
			switch {
			case name != "" && r.Job != name, queue != "" && r.Queue != queue, ofTenant && r.Tenant != tenant, state != "" && string(r.State) != state,
				!strings.HasPrefix(r.ID, prefix), parent != "" && r.Parent != parent, before != "" && r.ID >= before, after != "" && r.ID <= after,
				since != 0 && r.CreatedAt.Before(p.Since), until != 0 && !r.CreatedAt.Before(p.Until):
				continue
			}
			want = append(want, r.ID)
		}
		if oldest {
			slices.Reverse(want)
		}
		if limit > 0 {
			want = want[:min(len(want), limit)]
		}
		var ids []string
		for _, r := range got {
			ids = append(ids, r.ID)
		}
		if !slices.Equal(ids, want) {
			t.Fatalf("%+v: %v, want %v", p, ids, want)
		}
	})
}
