package sqlite

import (
	"strings"
	"testing"

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
