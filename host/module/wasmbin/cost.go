package wasmbin

import "fmt"

// cost estimates how long a function takes to compile.
//
// A compiler that turns locals into values and assigns registers is far from
// linear: a module of 16 KB with 40 loops over 4,000 locals keeps wazero busy
// for most of a minute, one of 50 KB with 2,000 mutable globals takes it 7 GB.
// Neither can be stopped once it has begun. The terms below were fitted to such
// functions; for what toolchains emit they are some times too high, and stay
// far below the limits.
type cost struct {
	instrs     int
	constructs int // blocks, loops and ifs
	loops      int
	labels     int // of all br_table
	visits     int // calls, ticks included: after each, every mutable global is loaded again
	merges     int // over all blocks and ifs, how many locals may have two values at their end
	carried    int // over all loops, how many locals and parameters are needed at their header
	kept       int // over all points where code parts or meets, how many values are needed
}

// Limits of one function and of all together, in nanoseconds.
const (
	maxFunctionCost = 20e9
	maxModuleCost   = 150e9
	// maxReloads bounds mutable globals times visits of one function: the
	// compiler keeps about 170 bytes of each.
	maxReloads = 2_000_000
	// maxKept bounds cost.kept: 75 bytes of each.
	maxKept = 10_000_000
	// maxLabels bounds the labels of one function's br_table: 3 KB of each.
	maxLabels = 100_000
)

// estimate is in nanoseconds.
func (c cost) estimate(mutableGlobals int) float64 {
	square := func(n int) float64 { return float64(n) * float64(n) }
	return 1000*float64(c.instrs) +
		60*square(c.constructs) +
		900*square(c.loops) +
		0.2*square(c.labels) +
		2000*float64(c.kept) +
		0.02*square(c.merges) +
		1.5*square(c.carried) +
		200*float64(c.visits)*float64(mutableGlobals)
}

// checkCost refuses a function, or a module, that would take too long.
func (w *walker) checkCost(r *reader) {
	c := &w.cost
	lived := w.lives.sum()
	c.carried += lived.loops
	c.kept += lived.points
	e := c.estimate(w.mutable)
	w.facts.cost += e
	switch {
	case c.visits*w.mutable > maxReloads:
		r.fail(TooComplex, fmt.Sprintf("%d calls with %d mutable globals take too much memory to compile", c.visits, w.mutable))
	case c.kept > maxKept:
		r.fail(TooComplex, fmt.Sprintf("too many values are needed for too long to compile (%d locals)", len(w.locals)))
	case c.labels > maxLabels:
		r.fail(TooComplex, fmt.Sprintf("br_table with %d labels", c.labels))
	case e > maxFunctionCost:
		r.fail(TooComplex, fmt.Sprintf("takes too long to compile (%d locals, %d loops, %d blocks, %d instructions); split it up, or build with optimisation",
			len(w.locals), c.loops, c.constructs-c.loops, c.instrs))
	case w.facts.cost > maxModuleCost:
		r.fail(TooComplex, "all functions together take too long to compile")
	}
}
