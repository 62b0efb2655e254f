package wasmbin

// lives bounds how long each local of a function holds a value that is needed:
// from its first access to its last. A value that may come from an earlier
// round of a loop is needed in all of the outermost loop. It cannot, if the
// local is assigned before anything else and then used only in the construct
// of that assignment: all that follows there has come by it.
//
// Places are counted, not measured: points where code parts or meets, and
// headers of loops.
type lives struct {
	at    place // so far
	spans []life
	depth int   // of open loops
	outer place // where the outermost open loop began
	log   int   // how long the access log was there
}

type place struct{ points, loops int }

type life struct {
	first, last place
	loop        place // where it begins if it roams: the outermost loop around the first access
	home        arm   // where it was assigned first; no arm if it was read before
	roams       bool
	known       bool
}

// arm is one of a construct's sequences of instructions.
type arm struct{ depth, id int }

func (l *lives) reset(locals int) {
	if cap(l.spans) < locals {
		l.spans = make([]life, locals)
	}
	l.spans = l.spans[:locals]
	clear(l.spans)
	l.at, l.depth = place{}, 0
}

// point is a place where code parts or meets.
func (l *lives) point() { l.at.points++ }

// access is any use of a local, within the constructs of stack. What is read
// before it was written has its value from the start of the function.
func (l *lives) access(local uint32, set bool, stack []construct) {
	s := &l.spans[local]
	if !s.known {
		s.known = true
		if set {
			s.first, s.home = l.at, arm{len(stack) - 1, stack[len(stack)-1].arm}
			if s.loop = l.at; l.depth > 0 {
				s.loop = l.outer
			}
		} else {
			s.roams = true
		}
	}
	s.last = l.at
	if !s.roams && (s.home.depth >= len(stack) || stack[s.home.depth].arm != s.home.id) {
		s.roams, s.first = true, s.loop
	}
}

// enter begins a loop; log is how long the access log is.
func (l *lives) enter(log int) {
	if l.depth == 0 {
		l.outer, l.log = l.at, log
	}
	l.depth++
	l.at.loops++
}

// leave ends the innermost loop. What the outermost one took in from elsewhere
// was needed to its end.
func (l *lives) leave(log []access) {
	if l.depth--; l.depth > 0 {
		return
	}
	for _, x := range log[l.log:] {
		s := &l.spans[x.local]
		if s.roams || s.first.points <= l.outer.points {
			s.last = l.at
		}
	}
}

// sum is over all locals, how many points and loop headers each outlives.
func (l *lives) sum() (total place) {
	for _, s := range l.spans {
		total.points += s.last.points - s.first.points
		total.loops += s.last.loops - s.first.loops
	}
	return total
}
