package app

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// gcHeadroom is how much a process may allocate between two collections at
// least, whatever little of it lives.
const gcHeadroom = 64 << 20

// SpareCollections has the garbage collector run more rarely while little is
// alive: a server lives in 10 or 20 MB and allocates some 5 KB for each run, so
// that by Go's own measure a fourth of its time would go into collections. It
// costs up to 64 MiB of memory. As soon as more than that is alive, Go's own
// measure holds. It does nothing where GOGC or GOMEMLIMIT is set. Call it once.
func SpareCollections(getenv func(string) string) {
	if getenv("GOGC") != "" || getenv("GOMEMLIMIT") != "" {
		return
	}
	g := &spared{sample: []metrics.Sample{{Name: "/gc/heap/live:bytes"}}}
	g.after()
}

// spared sets the percentage anew after each collection.
type spared struct {
	sample  []metrics.Sample
	percent int
}

// sentinel dies with each collection. It has a pointer so that it is not
// allocated together with others.
type sentinel struct{ s *spared }

func (g *spared) after() {
	metrics.Read(g.sample)
	live := uint64(4 << 20) // before the first collection: the least that Go counts with
	if v := g.sample[0].Value; v.Kind() == metrics.KindUint64 {
		live = max(v.Uint64(), live)
	}
	if p := sparedPercent(live); p != g.percent {
		g.percent = p
		debug.SetGCPercent(p)
	}
	runtime.AddCleanup(&sentinel{g}, func(g *spared) { g.after() }, g)
}

// sparedPercent is GOGC for a process of which so many bytes live, in steps
// large enough that it seldom changes.
func sparedPercent(live uint64) int {
	return int(max(100, gcHeadroom*100/live/50*50))
}
