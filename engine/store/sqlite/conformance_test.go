package sqlite

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/jobrunner/runner/engine/store"
	"github.com/jobrunner/runner/engine/store/storetest"
)

// testDB is a Store on a virtual clock.
type testDB struct {
	*Store
	clock *storetest.Clock
}

func (d testDB) Advance(t time.Duration) { d.clock.Advance(t) }

func (d testDB) exec(tb testing.TB, text string, args ...any) {
	tb.Helper()
	err := d.w.do(tb.Context(), func(tx *tx) error {
		s, _, err := tx.db.Prepare(text)
		if err != nil {
			return err
		}
		defer s.Close()
		q := call{c: tx.conn, s: s}
		for _, a := range args {
			switch a := a.(type) {
			case string:
				q.text(a)
			case uuid:
				q.blob(a[:])
			case int:
				q.int(int64(a))
			}
		}
		return q.exec()
	})
	if err != nil {
		tb.Fatal(err)
	}
}

// unchecked is exec without the checks of the schema.
func (d testDB) unchecked(tb testing.TB, text string, args ...any) {
	tb.Helper()
	d.exec(tb, "PRAGMA ignore_check_constraints = ON")
	defer d.exec(tb, "PRAGMA ignore_check_constraints = OFF")
	d.exec(tb, text, args...)
}

func (d testDB) PlantRunState(tb testing.TB, runID, state string) {
	id, _ := parseUUID(runID)
	d.unchecked(tb, "UPDATE runs SET state = ?1 WHERE id = ?2", state, id)
}

func (d testDB) PlantStepStatus(tb testing.TB, runID, step, status string) {
	id, _ := parseUUID(runID)
	d.unchecked(tb, "UPDATE steps SET status = ?1 WHERE name = ?2 AND run = (SELECT seq FROM runs WHERE id = ?3)", status, step, id)
}

func openTest(tb testing.TB, path string) storetest.DB {
	clock := storetest.NewClock()
	return testDB{open(tb, Config{Path: path, Clock: clock.Now}), clock}
}

func TestConformanceInMemory(t *testing.T) {
	storetest.Run(t, func(tb testing.TB) storetest.DB { return openTest(tb, Memory) })
}

func TestConformanceInFile(t *testing.T) {
	storetest.Run(t, func(tb testing.TB) storetest.DB { return openTest(tb, filepath.Join(tb.TempDir(), "runs.db")) })
}

func TestCountsStop(t *testing.T) {
	storetest.RunBounds(t, func(tb testing.TB) storetest.DB {
		d := openTest(tb, Memory).(testDB)
		d.bounds = storetest.LowBounds()
		return d
	})
}

func TestRandom(t *testing.T) {
	for _, seed := range []uint64{*seed, *seed + 1} {
		storetest.Random(t, func(tb testing.TB) storetest.DB { return openTest(tb, Memory) }, seed, 1500)
	}
}

func TestHammer(t *testing.T) {
	t.Run("memory", func(t *testing.T) {
		storetest.Hammer(t, func(tb testing.TB) storetest.DB { return openTest(tb, Memory) }, *seed, 200)
	})
	t.Run("file", func(t *testing.T) {
		storetest.Hammer(t, func(tb testing.TB) storetest.DB { return openTest(tb, filepath.Join(tb.TempDir(), "runs.db")) }, *seed, 200)
	})
}

func TestRandomLimits(t *testing.T) {
	for _, seed := range []uint64{*seed, *seed + 1, *seed + 2} {
		storetest.RandomLimits(t, func(tb testing.TB) storetest.DB { return openTest(tb, Memory) }, seed, 3000)
	}
}

func TestHammerLimits(t *testing.T) {
	clock := storetest.NewClock()
	path := filepath.Join(t.TempDir(), "runs.db")
	stores := []store.Store{
		open(t, Config{Path: path, Clock: clock.Now}), open(t, Config{Path: path, Clock: clock.Now}),
	}
	storetest.HammerLimits(t, stores, clock.Advance, *seed, 300)
}
