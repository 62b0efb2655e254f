package wasmbin

import (
	"errors"
	"fmt"
	"sort"
	"strings"
)

// Scan reads a module and reports what it needs and whether its state can be
// restored. Its error is an *Error; a module that can be read but must not be
// run is reported, not an error. Scan does not check the types of
// instructions: the runtime does when it compiles the module.
//
// The time is linear in the size of the module, the memory about twice its
// size at most.
func Scan(b []byte) (rep *Report, err error) {
	defer contain(&err)
	_, _, rep, err = scan(b, nil)
	return rep, err
}

// scan is Scan, and hands each function's walk to visit, if there is one and
// the module is not rejected before its code.
func scan(b []byte, visit func(w *walker, i int)) (*parsed, *walker, *Report, error) {
	rep := &Report{MemoryMax: pageLimit}
	p, err := parse(b)
	done, err := rejected(rep, err)
	if err != nil {
		return nil, nil, nil, err
	}
	p.describe(rep)
	if done {
		return p, nil, rep, nil
	}
	rep.Reject = append(rep.Reject, p.rejectState()...)
	w := newWalker(p)
	for i := range p.bodies {
		if err := w.function(i); err != nil {
			if _, err := rejected(rep, p.inFunction(i, err)); err != nil {
				return nil, nil, nil, err
			}
			return p, nil, rep, nil
		}
		if visit != nil && len(rep.Reject) == 0 {
			visit(w, i)
		}
	}
	w.report(rep)
	_, rep.HostData = p.hostData(w.facts.dataNamed)
	return p, w, rep, nil
}

// rejected sorts what stopped the reading into the report or the error.
func rejected(rep *Report, err error) (bool, error) {
	if err == nil {
		return false, nil
	}
	if u := (*unsupported)(nil); errors.As(err, &u) {
		rep.Reject = append(rep.Reject, u.reason)
		return true, nil
	}
	return true, err
}

// inFunction says in which function a problem is.
func (p *parsed) inFunction(i int, err error) error {
	if e := (*Error)(nil); errors.As(err, &e) {
		return &Error{e.Kind, e.Offset, fmt.Sprintf("function %d: %s", i+int(p.nImpFuncs), e.Detail)}
	}
	return err
}

// describe fills in what needs no judgement.
func (p *parsed) describe(rep *Report) {
	for _, im := range p.imports {
		x := Import{Module: im.module, Name: im.name, Kind: im.kind}
		if im.kind == KindFunc {
			x.Type = p.types[im.typ].String()
		}
		rep.Imports = append(rep.Imports, x)
	}
	for _, ex := range p.exports {
		x := Export{Name: ex.name, Kind: ex.kind}
		if ex.kind == KindFunc {
			x.Type = p.types[p.funcTypes[ex.index]].String()
		}
		rep.Exports = append(rep.Exports, x)
	}
	if len(p.memories) > 0 {
		m := p.memories[0]
		rep.MemoryMin = m.min
		if m.hasMax {
			rep.MemoryMax = m.max
		}
	}
	rep.Start = p.start != nil
	rep.Functions = len(p.bodies)
	if s := p.sections[secCode]; s != nil {
		rep.CodeBytes = len(s.body)
	}
	rep.DataSegments = len(p.datas)
	for _, d := range p.datas {
		rep.DataBytes += len(d.bytes)
	}
}

// rejectState are the reasons against the module's state: what is shared with
// others or is not one 32-bit memory.
func (p *parsed) rejectState() (why []string) {
	for _, im := range p.imports {
		switch im.kind {
		case KindTable, KindMemory, KindGlobal:
			why = append(why, fmt.Sprintf("imports the %s %s.%s; a host provides functions only, so build with the module's own %s", im.kind, im.module, im.name, im.kind))
		}
	}
	defined := len(p.memories) - p.nImpMems
	switch {
	case len(p.memories) == 0:
		why = append(why, reasonNoMemory)
	case defined > 1 || defined == 1 && p.nImpMems > 0:
		why = append(why, fmt.Sprintf("has %d memories; a handler defines exactly one", len(p.memories)))
	}
	for _, m := range p.memories {
		if m.shared {
			why = append(why, reasonThreads)
			break
		}
	}
	if d := p.dataOutside(); d != "" {
		why = append(why, d)
	}
	return why
}

// report fills in what the walk found.
func (w *walker) report(rep *Report) {
	rep.Instructions = w.facts.instrs
	for _, ops := range [][]string{{"table.set", "table.grow", "table.fill", "table.init", "table.copy"}, {"data.drop"}, {"elem.drop"}} {
		var found []string
		for _, op := range ops {
			if w.facts.freshOnly[op] {
				found = append(found, op)
			}
		}
		if len(found) == 0 {
			continue
		}
		what := "changes tables while it runs"
		switch found[0] {
		case "data.drop":
			what = "drops data segments"
		case "elem.drop":
			what = "drops element segments"
		}
		rep.FreshOnly = append(rep.FreshOnly, what+" ("+strings.Join(found, ", ")+")")
	}
	for _, g := range w.p.globals[w.p.nImpGlobs:] {
		if !g.mutable {
			continue
		}
		switch g.typ {
		case typeV128:
			rep.FreshOnly = append(rep.FreshOnly, "has a mutable v128 global")
		case typeFunc, typeExtern:
			rep.FreshOnly = append(rep.FreshOnly, "has a mutable "+g.typ.String()+" global")
		default:
			continue
		}
		break
	}
	if w.p.extConst {
		w.facts.features[featureExtConst] = true
	}
	for f := range w.facts.features {
		rep.Features = append(rep.Features, f)
	}
	sort.Strings(rep.Features)
}
