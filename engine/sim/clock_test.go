package sim_test

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/jobrunner/runner/engine/store"
)

// timed are the times that a process tells a store, and whose they are. All else
// that is decided by a time is decided by the store's own, so that it is nothing to
// a simulation that its processes have one clock between them, and the store another.
var timed = map[string]string{
	"EnqueueParams.RunAt":   "when a client, or a schedule, wants the run",
	"StepParams.WakeAt":     "what a record says, which the store wrote",
	"FireParams.Occurrence": "the schedule's, reckoned from its row",
	"FireParams.From":       "the schedule's row",
	"FireParams.To":         "the schedule's, reckoned from its row and the store's now",
	"ListParams.Since":      "what an operator looks for",
	"ListParams.Until":      "what an operator looks for",
	"LogLine.At":            "for people: it orders nothing",
}

// TestNoOperationDecidesByAProcessesClock looks at every parameter of a store for
// times that a process could have from its own clock.
func TestNoOperationDecidesByAProcessesClock(t *testing.T) {
	found := map[string]bool{}
	var look func(of reflect.Type, in string, seen []reflect.Type)
	look = func(of reflect.Type, in string, seen []reflect.Type) {
		switch of.Kind() {
		case reflect.Slice, reflect.Pointer, reflect.Array, reflect.Map:
			look(of.Elem(), in, seen)
		case reflect.Struct:
			if of == reflect.TypeFor[time.Time]() {
				found[in] = true
				return
			}
			if slices.Contains(seen, of) {
				return
			}
			for f := range of.Fields() {
				look(f.Type, of.Name()+"."+f.Name, append(seen, of))
			}
		}
	}
	for m := range reflect.TypeFor[store.Store]().Methods() {
		for in := range m.Type.Ins() {
			look(in, m.Name, nil)
		}
	}
	for name := range found {
		if timed[name] == "" {
			t.Errorf("%s is a time that a process tells the store: say whose it is, or leave it to the store's clock", name)
		}
	}
	for name := range timed {
		if !found[name] {
			t.Errorf("%s is no time that a process tells the store", name)
		}
	}
}
