package wasmbin

// accessLog is the order in which a function's loops use locals.
//
// At the header of a loop a tick may call the host. A compiler that allocates
// registers block by block then stores, at every assignment, each variable of
// the loop that lives across this call: in every round, for a call that nearly
// never happens. So on the way to the call each such local is replaced by a
// copy of itself. The copy lives across the call in place of the variable, and
// the round that does not call stores nothing. Which locals to copy is a matter
// of speed only; a copy is always right.
type accessLog struct {
	list   []access
	tables []int    // how long the list was at each br_table
	stamp  []uint32 // of each local: the loop that looked at it last, plus 1 if it may be copied
	loop   uint32   // the loop that looks, counted in twos
	budget int
}

type access struct {
	local uint32
	set   bool
}

// span is a part of a slice.
type span struct{ from, to int }

const (
	// maxLogged is how many accesses of a loop are looked at, and maxCopies how
	// many locals are copied: beyond that registers do not suffice anyway.
	maxLogged = 512
	maxCopies = 24
	// maxLooked bounds the accesses looked at in one function, over all loops.
	maxLooked = 1 << 20
)

func (a *accessLog) reset(locals int) {
	a.list, a.tables = a.list[:0], a.tables[:0]
	a.loop, a.budget = 0, maxLooked
	if cap(a.stamp) < locals {
		a.stamp = make([]uint32, locals)
	}
	a.stamp = a.stamp[:locals]
	clear(a.stamp)
}

func (a *accessLog) add(local uint32, set bool) { a.list = append(a.list, access{local, set}) }

// table is called at each br_table.
func (a *accessLog) table() { a.tables = append(a.tables, len(a.list)) }

// carried appends the locals that the loop whose accesses start at from
// probably carries from one round to the next: those it assigns after it read
// them. A loop that starts with a br_table resumes anywhere, so there the order
// says nothing and all that it assigns count.
func (a *accessLog) carried(from int, out []uint32) []uint32 {
	list := a.list[from:min(len(a.list), from+maxLogged)]
	if a.budget -= len(list); a.budget < 0 {
		return out
	}
	resumes := false
	for i := len(a.tables) - 1; i >= 0 && a.tables[i] >= from; i-- {
		resumes = resumes || a.tables[i] <= from+1
	}
	a.loop += 2
	room := maxCopies
	for _, x := range list {
		s := &a.stamp[x.local]
		switch {
		case *s < a.loop: // its first access
			if *s = a.loop; !x.set {
				*s++
				continue
			}
			if !resumes {
				continue
			}
		case *s == a.loop || !x.set: // not carried, or copied already; or a further read
			continue
		}
		*s = a.loop
		if room--; room < 0 {
			break
		}
		out = append(out, x.local)
	}
	return out
}
