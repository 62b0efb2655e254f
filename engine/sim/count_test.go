package sim_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// count notes that something has happened. It is the driver's.
func (w *world) count(what string, n ...int) {
	if len(n) == 0 {
		n = []int{1}
	}
	w.counts[what] += n[0]
}

// tally counts the fates of operations.
func (w *world) tally(c *call, f fate) {
	switch {
	case c.p.dead.Load() || f == proceed && !c.left:
	case f == proceed:
		w.count("given up " + c.op)
	default:
		w.count(fates[f] + " " + c.op)
	}
}

// fates is what each is called in a count; those of a kill are counted there.
var fates = map[fate]string{
	refuse: "refused", full: "full", lose: "answer lost", late: "answer late", vanish: "vanished", breaking: "broken", double: "delivered twice",
}

// What every batch of seeds has to have met: of some operation at least, and in a
// large batch of each operation that commits.
var (
	misfortunes = []string{
		"refused", "full", "answer lost", "answer late", "vanished", "broken", "given up", "delivered twice", "killed before", "killed after",
		"deploy", "drain", "clock jump",
	}
	boundaries = []string{"refused", "full", "answer lost", "answer late", "delivered twice", "killed before", "killed after"}
	commits    = []string{
		"Enqueue", "Claim", "Settle", "SaveSteps", "Register", "Renew", "Deregister", "Reclaim", "LeadSchedules", "FireSchedule",
		"outbox.Claim", "outbox.Settle",
	}
)

// Sizes of batches, in seeds, of which that is asked.
const (
	someSeeds = 10
	manySeeds = 500
)

// checkExercised fails for what no seed of a batch has met: a simulation that
// never meets a misfortune says nothing of it.
func checkExercised(t *testing.T, n int, counts map[string]int) {
	t.Helper()
	if n < someSeeds {
		return
	}
	total := map[string]int{}
	for what, k := range counts {
		for _, m := range misfortunes {
			if strings.HasPrefix(what, m) {
				total[m] += k
			}
		}
	}
	for _, m := range misfortunes {
		if total[m] == 0 {
			t.Errorf("no seed met %q", m)
		}
	}
	if n < manySeeds {
		return
	}
	fmt.Println("met:", total)
	for _, op := range commits {
		for _, b := range boundaries {
			if b == "delivered twice" && !repeatable[op] {
				continue
			}
			if counts[b+" "+op] == 0 {
				t.Errorf("no seed met %q; met were %v", b+" "+op, slices.Sorted(maps.Keys(counts)))
			}
		}
	}
}
