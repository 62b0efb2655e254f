package sim_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jobrunner/runner/engine/store"
)

// timed are the times that a process tells a store, and whose they are. All else
// that is decided by a time is decided by the store's own: the clocks of processes matter only to
// what is planted.
var timed = map[string]string{
	"EnqueueParams.RunAt":   "when a client, or a schedule, wants the run",
	"StepParams.WakeAt":     "what a record says, which the store wrote",
	"FireParams.Occurrence": "the schedule's, reckoned from its row",
	"FireParams.From":       "the schedule's row",
	"FireParams.To":         "the schedule's, reckoned from its row and the store's now",
	"ListParams.Since":      "what an operator looks for",
	"ListParams.Until":      "what an operator looks for",
	"AuditParams.Since":     "what an operator looks for",
	"AuditParams.Until":     "what an operator looks for",
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

// TestNoProcessTellsTheTimeOfDay looks at what becomes of time.Now in the engine:
// it is held against another time of the process, and never made a number or a text
// that a database could be told.
func TestNoProcessTellsTheTimeOfDay(t *testing.T) {
	since := []string{"Add", "Sub", "Before", "After", "Equal", "IsZero"}
	looked := 0
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if d != nil && d.IsDir() && strings.HasSuffix(path, "test") {
			return fs.SkipDir // what tests are made of
		}
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok || !startsNow(sel.X) {
				return true
			}
			looked++
			if !slices.Contains(since, sel.Sel.Name) {
				t.Errorf("%s: time.Now() is used by %s: a time of day is the database's to tell", set.Position(sel.Sel.Pos()), sel.Sel.Name)
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if looked < 10 {
		t.Fatalf("%d uses were found: this looks at nothing", looked)
	}
}

// startsNow reports whether an expression is time.Now(), or made of it by methods.
func startsNow(e ast.Expr) bool {
	c, ok := e.(*ast.CallExpr)
	if !ok {
		return false
	}
	sel, ok := c.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	pkg, ok := sel.X.(*ast.Ident)
	return ok && pkg.Name == "time" && sel.Sel.Name == "Now" || startsNow(sel.X)
}
