package app

import "testing"

func TestCollectionsAreSparedOnlyWhileLittleLives(t *testing.T) {
	for _, c := range []struct {
		live    uint64
		percent int
	}{
		{4 << 20, 1600}, {16 << 20, 400}, {40 << 20, 150}, {64 << 20, 100}, {4 << 30, 100},
	} {
		if got := sparedPercent(c.live); got != c.percent {
			t.Errorf("with %d MB alive: %d%%, want %d%%", c.live>>20, got, c.percent)
		}
	}
}
