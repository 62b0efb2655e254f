package outbox

import (
	"testing"
	"time"
)

// The floor follows at a distance, every so often everything is looked at, and
// what is open or failed is looked for at once.
func TestFloorFollowsAtADistance(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	f := &floor{now: func() time.Time { return now }}
	pass := func(advance time.Duration, seq int64) int64 {
		now = now.Add(advance)
		v := f.begin()
		f.found(v, 1, seq)
		f.settled(1)
		return v.after
	}
	for i, step := range []struct {
		advance time.Duration
		seq     int64
		after   int64
	}{
		{0, 10, 0},                   // never looked
		{time.Second, 20, 0},         // no floor yet
		{9 * time.Second, 100, 0},    // 10 s on: everything again, and the floor becomes 10
		{time.Second, 200, 10},       //
		{8 * time.Second, 300, 10},   //
		{time.Second, 400, 0},        // 20 s on: everything, and the floor becomes 100
		{time.Second, 401, 100},      //
		{time.Millisecond, 402, 100}, //
		{10 * time.Second, 500, 0},   // everything; the floor becomes 400
		{time.Millisecond, 501, 400}, //
	} {
		if after := pass(step.advance, step.seq); after != step.after {
			t.Fatalf("step %d looks after %d, want %d", i, after, step.after)
		}
	}
	f.found(f.begin(), 3, 600)
	f.settled(2)
	if v := f.begin(); v.after != 0 {
		t.Errorf("with a row of ours left open it looks after %d", v.after)
	}
	f.settled(1)
	if v := f.begin(); v.after != 400 {
		t.Errorf("with all settled it looks after %d", v.after)
	}
	f.fail()
	if v := f.begin(); v.after != 0 {
		t.Errorf("after a failure it looks after %d", v.after)
	}
}

// A transaction that commits long after it staged is found below the floor.
func TestRowThatCommitsLateIsFound(t *testing.T) {
	cfg := installed(t)
	d, a, slow := open(t, cfg), session(t, cfg), session(t, cfg)
	now := time.Unix(1_000_000, 0)
	d.floor.now = func() time.Time { return now }

	tx, err := slow.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var late string
	if err := tx.QueryRow(t.Context(), slow.sql(`SELECT {schema}.enqueue('late')::text`)).Scan(&late); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		now = now.Add(floorLag)
		a.enqueue(`'j'`)
		rows := claim(t, d, "r1", 10)
		if len(rows) != 1 {
			t.Fatalf("claimed %v", rows)
		}
		settle(t, d, publish(rows[0]))
	}
	if d.floor.after == 0 {
		t.Fatal("there is no floor")
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if rows := claim(t, d, "r1", 10); len(rows) != 0 {
		t.Fatalf("below the floor, %v", rows)
	}
	now = now.Add(fullEvery)
	if rows := claim(t, d, "r1", 10); len(rows) != 1 || rows[0].ID != late {
		t.Errorf("claimed %v, want %s", rows, late)
	}
}
