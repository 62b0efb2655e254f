package sim_test

import (
	"context"
	"reflect"
	"testing"
	"testing/synctest"

	"github.com/jobrunner/runner/engine/store"
	"github.com/jobrunner/runner/engine/store/sqlite"
)

// exempt are the methods of a store that do not wait for a turn, and why.
var exempt = map[string]string{
	"Name":      "it is a constant",
	"Close":     "processes do not close the database, which is the simulation's",
	"Listening": "it is answered without the database",
	"Wakes":     "it asks for news, which come between operations; some of them are lost",
	"Stats":     "it feeds gauges, which nothing depends on",
}

// optional are the methods beside those of store.Store by which a store is known
// to do more. A process whose store has one goes another way, and a view hides it.
var optional = []reflect.Type{reflect.TypeFor[store.HandsOver](), reflect.TypeFor[store.Recorder](), reflect.TypeFor[store.Migrator]()}

// TestNoOperationBypassesTheTurnstile calls every method of a store on the view
// that processes have of one. Behind it is no database: what does not wait for its
// turn has nothing to be done by.
func TestNoOperationBypassesTheTurnstile(t *testing.T) {
	role := reflect.TypeFor[store.Store]()
	for m := range role.Methods() {
		if exempt[m.Name] != "" {
			continue
		}
		t.Run(m.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &world{}
				w.turn.arrived = make(chan struct{}, 1)
				w.book = newBook(w)
				v := &view{Store: (*sqlite.Store)(nil), p: &process{w: w, name: "e1"}}
				ended := make(chan any, 1)
				go func() {
					defer func() { ended <- recover() }()
					args := []reflect.Value{}
					for in := range m.Type.Ins() {
						if in == reflect.TypeFor[context.Context]() {
							args = append(args, reflect.ValueOf(t.Context()))
							continue
						}
						args = append(args, reflect.Zero(in))
					}
					reflect.ValueOf(v).MethodByName(m.Name).Call(args)
				}()
				synctest.Wait()
				waiting := w.turn.sorted()
				if len(waiting) != 1 || waiting[0].op != m.Name {
					t.Error("it does not wait for its turn: add it to the view, or to the exempt ones with a reason")
				}
				for _, c := range waiting {
					w.turn.release(c, refuse)
				}
				if broken := <-ended; broken != nil && len(waiting) == 1 {
					t.Error(broken)
				}
			})
		})
	}
	for name := range exempt {
		if _, ok := role.MethodByName(name); !ok {
			t.Errorf("%s is exempt, and no method of a store", name)
		}
	}
}

// TestTheViewHidesNothingOfTheStore holds the view against what the embedded store
// can do beyond store.Store.
func TestTheViewHidesNothingOfTheStore(t *testing.T) {
	real, seen := reflect.TypeFor[*sqlite.Store](), reflect.TypeFor[*view]()
	for _, o := range optional {
		if real.Implements(o) != seen.Implements(o) {
			t.Errorf("the store implements %v: %v; the view: %v", o, real.Implements(o), seen.Implements(o))
		}
	}
	role := reflect.TypeFor[store.Store]()
	for m := range real.Methods() {
		if _, known := role.MethodByName(m.Name); !known && !ofOptional(m.Name) {
			t.Errorf("the store has a method %s that no role names: a process may ask for it, and would not find it here", m.Name)
		}
	}
}

func ofOptional(name string) bool {
	for _, o := range optional {
		if _, ok := o.MethodByName(name); ok {
			return true
		}
	}
	return false
}
