package app

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

// scriptedStore answers claims and settles as a test says.
type scriptedStore struct {
	store.Store
	claims []store.ClaimResult
	lease  time.Duration
	during func() // happens while a claim looks
}

func (s *scriptedStore) Claim(context.Context, store.ClaimParams) (store.ClaimResult, error) {
	if s.during != nil {
		s.during()
	}
	if len(s.claims) == 0 {
		return store.ClaimResult{}, nil
	}
	r := s.claims[0]
	s.claims = s.claims[1:]
	return r, nil
}

func (s *scriptedStore) Settle(_ context.Context, batch []store.SettleParams) ([]store.SettleResult, error) {
	rs := make([]store.SettleResult, len(batch))
	for i := range rs {
		rs[i].Landed = true
	}
	return rs, nil
}

func (s *scriptedStore) Register(_ context.Context, p store.RegisterParams) error {
	s.lease = p.Lease
	return nil
}

func (s *scriptedStore) Wakes(func(string)) (stop func()) { return func() {} }

func TestVirtualTimeJumpsOnlyWhenNothingRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		threeDays := start.Add(72 * time.Hour)
		clock := &virtualClock{}
		inner := &scriptedStore{claims: []store.ClaimResult{
			{Runs: []job.Run{{ID: "a"}}},
			{NextDue: threeDays}, // while a runs
			{NextDue: threeDays}, // after it has settled
		}}
		s := newVirtualStore(inner, clock)
		wakes := 0
		stop := s.Wakes(func(string) { wakes++ })
		defer stop()
		claim := func() {
			t.Helper()
			if _, err := s.Claim(t.Context(), store.ClaimParams{}); err != nil {
				t.Fatal(err)
			}
		}
		claim()
		claim()
		if got := clock.Now(); !got.Equal(start) || wakes != 0 {
			t.Fatalf("a run is running and the clock is at %v after %d wakes, want %v and none", got, wakes, start)
		}
		if _, err := s.Settle(t.Context(), make([]store.SettleParams, 1)); err != nil {
			t.Fatal(err)
		}
		wakes = 0
		claim()
		if got := clock.Now(); !got.Equal(threeDays) || wakes != 1 {
			t.Fatalf("nothing runs and the clock is at %v after %d wakes, want %v and one", got, wakes, threeDays)
		}
		select {
		case <-s.idle:
			t.Fatal("over although a run is due")
		default:
		}
		claim() // nothing runs, nothing is due
		select {
		case <-s.idle:
		default:
			t.Fatal("not over although nothing will happen any more")
		}
		if err := s.Register(t.Context(), store.RegisterParams{Lease: time.Second}); err != nil || inner.lease != virtualLease {
			t.Errorf("lease %v, %v: a jump would end it", inner.lease, err)
		}
	})
}

// A claim that looked before a settle and answers after it says nothing of what
// the settled run waits for.
func TestVirtualTimeIsNotOverForAClaimBesideASettle(t *testing.T) {
	for name, next := range map[string]time.Time{"nothing is due": {}, "another run is due": time.Now().Add(72 * time.Hour)} {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			clock := &virtualClock{}
			inner := &scriptedStore{claims: []store.ClaimResult{{Runs: []job.Run{{ID: "a"}}}, {NextDue: next}}}
			s := newVirtualStore(inner, clock)
			wakes := 0
			defer s.Wakes(func(string) { wakes++ })()
			claim := func() {
				t.Helper()
				if _, err := s.Claim(t.Context(), store.ClaimParams{}); err != nil {
					t.Fatal(err)
				}
			}
			claim()
			inner.during = func() {
				if _, err := s.Settle(t.Context(), make([]store.SettleParams, 1)); err != nil {
					t.Error(err)
				}
			}
			claim()
			select {
			case <-s.idle:
				t.Errorf("%s: over, and the settled run was never looked at", name)
			default:
			}
			if got := clock.Now(); !got.Equal(start) || wakes != 1 {
				t.Errorf("%s: the clock is at %v after %d wakes, want %v and the settle's", name, got, wakes, start)
			}
		})
	}
}
