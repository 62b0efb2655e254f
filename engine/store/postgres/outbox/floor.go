package outbox

import (
	"sync"
	"time"
)

const (
	// floorLag is how far the floor stays behind: a transaction that is open for
	// less after it staged a row is found at once when it commits.
	floorLag = 10 * time.Second
	// fullEvery is how long rows below the floor may wait: of transactions that
	// were open for longer, of relays that died, and rejected ones that a person
	// has staged again.
	fullEvery = 10 * time.Second
)

// floor is where claims begin to look. It saves them the dead entries of rows
// that were dealt with, which stay in the index as long as any snapshot in the
// database is open. Safe for concurrent use.
type floor struct {
	mu      sync.Mutex
	after   int64     // claims look at rows after this one
	mark    int64     // the floor to be
	marked  time.Time // when mark was set
	highest int64     // of the rows claimed so far
	full    time.Time // when a claim last looked at everything; zero is never
	open    int       // claimed and not settled yet

	now func() time.Time // nil is time.Now
}

// view is what one claim looks at.
type view struct {
	after int64
	at    time.Time
}

func (f *floor) clock() time.Time {
	if f.now != nil {
		return f.now()
	}
	return time.Now()
}

// begin says where a claim is to look.
func (f *floor) begin() view {
	f.mu.Lock()
	defer f.mu.Unlock()
	v := view{after: f.after, at: f.clock()}
	if f.open > 0 || f.full.IsZero() || v.at.Sub(f.full) >= fullEvery {
		v.after = 0
	}
	return v
}

// found notes what a claim got: n rows, the last of them at seq.
func (f *floor) found(v view, n int, seq int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if v.after == 0 {
		f.full = v.at
	}
	f.open = n
	f.highest = max(f.highest, seq)
	switch {
	case f.marked.IsZero():
		f.mark, f.marked = f.highest, v.at
	case v.at.Sub(f.marked) >= floorLag:
		f.after = f.mark
		f.mark, f.marked = f.highest, v.at
	}
}

// settled notes that n claimed rows are dealt with.
func (f *floor) settled(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.open = max(0, f.open-n)
}

// fail has the next claim look at everything.
func (f *floor) fail() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.full = time.Time{}
}
