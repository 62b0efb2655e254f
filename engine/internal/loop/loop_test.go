package loop_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jobrunner/runner/engine/internal/loop"
)

func TestBackoffDoublesToItsCeilingAndStartsOverAfterReset(t *testing.T) {
	b := loop.Backoff{Floor: 250 * time.Millisecond, Ceiling: 2 * time.Second}
	for i, want := range []time.Duration{250, 500, 1000, 2000, 2000} {
		if got := b.Next(); got != want*time.Millisecond {
			t.Errorf("wait %d is %v, want %v", i, got, want*time.Millisecond)
		}
	}
	b.Reset()
	if got := b.Next(); got != b.Floor {
		t.Errorf("after Reset the wait is %v, want the floor", got)
	}
}

func TestJitterStaysWithinATenth(t *testing.T) {
	for range 1000 {
		if d := loop.Jitter(10 * time.Second); d < 9*time.Second || d > 11*time.Second {
			t.Fatalf("10s became %v", d)
		}
	}
	if d := loop.Jitter(2); d != 2 {
		t.Errorf("a wait too short to spread became %v", d)
	}
}

func TestEveryGoesOnAfterFailuresAndCountsThemInARow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var told []int
		rounds := 0
		loop.Every(ctx, loop.EveryParams{
			Interval: time.Second,
			Round: func(context.Context) error {
				rounds++
				switch rounds {
				case 1, 2, 4:
					return errors.New("down")
				case 6:
					cancel()
					return errors.New("ended by us")
				}
				return nil
			},
			Failed: func(_ error, n int) { told = append(told, n) },
		})
		if want := []int{1, 2, 1}; len(told) != 3 || told[0] != want[0] || told[1] != want[1] || told[2] != want[2] {
			t.Errorf("told %v, want %v", told, want)
		}
	})
}

func TestLoudSpeaksAtPowersOfTwo(t *testing.T) {
	var loud []int
	for n := range 20 {
		if loop.Loud(n) {
			loud = append(loud, n)
		}
	}
	if len(loud) != 5 || loud[0] != 1 || loud[4] != 16 {
		t.Errorf("loud at %v", loud)
	}
}
