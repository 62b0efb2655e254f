package sim_test

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/jobrunner/runner/engine/internal/leaktest"
	"github.com/jobrunner/runner/engine/job"
)

var (
	oneSeed = flag.Uint64("sim.seed", 0, "simulate this seed only, and print its whole trail")
	seeds   = flag.Int("sim.seeds", 12, "how many seeds to simulate")
	again   = flag.Int("sim.again", 1, "simulate each seed so often, and say how often it went the same way")
	first   = flag.Uint64("sim.first", 1, "simulate this seed and those after it; 0 draws seeds")
)

func TestMain(m *testing.M) {
	flag.Parse()
	// One thread leaves the order of goroutines to the runtime's queue, which is
	// nearly always the same.
	runtime.GOMAXPROCS(1)
	os.Exit(leaktest.Main(m))
}

// TestWhateverOrderKeepsEveryPromise simulates seeds.
func TestWhateverOrderKeepsEveryPromise(t *testing.T) {
	list := []uint64{*oneSeed}
	if *oneSeed == 0 {
		list = make([]uint64, *seeds)
		for i := range list {
			if list[i] = *first + uint64(i); *first == 0 {
				list[i] = rand.Uint64()>>24 + 1
			}
		}
	}
	began, steps, claims, ended, counts := time.Now(), 0, 0, map[job.State]int{}, map[string]int{}
	for i, seed := range list {
		if i > 0 && i%100 == 0 {
			fmt.Printf("%d of %d seeds, %v\n", i, len(list), time.Since(began).Round(time.Second))
		}
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			sums, faults := map[uint64]int{}, map[string]int{}
			for i := range *again {
				out := simulate(t, seed, bug{})
				steps += out.steps
				claims += out.claims
				for s, n := range out.ended {
					ended[s] += n
				}
				for what, n := range out.counts {
					counts[what] += n
				}
				sums[out.sum]++
				faults[out.fault]++
				if out.fault != "" && i == 0 {
					t.Errorf("%s\n\n%s\n\nagain: go test ./engine/sim -run Whatever -sim.seed=%d", out.fault, out.last(80), seed)
				}
				if *oneSeed != 0 && i == 0 {
					fmt.Println(out.last(len(out.trail)))
				}
			}
			if *again > 1 {
				t.Logf("%d simulations went %d ways: %v; %v", *again, len(sums), slices.Sorted(maps.Values(sums)), faults)
			}
		})
	}
	// Not to the test's log: make sim shows it when all is well.
	fmt.Printf("%d seeds, %d operations, %d claims, in %v; runs at the end: %v\n", len(list), steps, claims, time.Since(began).Round(time.Millisecond), ended)
	checkExercised(t, len(list), counts)
	if ended[job.Done] == 0 {
		t.Error("no run was ever done: the simulation proves nothing")
	}
}
