package loop_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jobrunner/runner/engine/internal/loop"
)

func TestAServiceBeginsNothingMoreOnceItIsQuiesced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s loop.Service
		s.Quiesce()
		if !s.Stop(t.Context(), loop.StopParams{}) {
			t.Error("a service that has not begun did not stop")
		}
		for range 2 { // it may be started again
			var accepted, given error
			if !s.Start(func(l *loop.Life) {
				<-l.Accepting.Done()
				accepted, given = l.Accepting.Err(), l.Ctx.Err()
			}) {
				t.Fatal("it did not start")
			}
			if s.Start(func(*loop.Life) { t.Error("it runs twice") }) {
				t.Fatal("it started twice")
			}
			s.Quiesce()
			if !s.Stop(t.Context(), loop.StopParams{Abandoned: func() { t.Error("given up") }}) {
				t.Error("it did not stop")
			}
			if accepted == nil || given != nil {
				t.Errorf("accepting ended with %v, its context with %v", accepted, given)
			}
		}
	})
}

func TestAStopThatWaitsTooLongGivesUpWhatIsUnderWay(t *testing.T) {
	for _, deaf := range []time.Duration{0, time.Second, 10 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			var s loop.Service
			s.Start(func(l *loop.Life) {
				<-l.Ctx.Done()
				time.Sleep(deaf)
			})
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			told := 0
			began := time.Now()
			ended := s.Stop(ctx, loop.StopParams{Grace: 5 * time.Second, Abandoned: func() { told++ }})
			if want := deaf < 5*time.Second; ended != want || told != 1 {
				t.Errorf("a stop of what takes %v to notice answered %v, and told %d times", deaf, ended, told)
			}
			if took, want := time.Since(began), time.Minute+min(deaf, 5*time.Second); took != want {
				t.Errorf("it took %v, want %v", took, want)
			}
			time.Sleep(deaf)
		})
	}
}

func TestSignalsThatNobodyHasHeardAreOne(t *testing.T) {
	s := loop.NewSignal()
	s.Give()
	s.Give()
	if <-s; len(s) != 0 {
		t.Error("a signal was kept twice")
	}
}

func TestNoTwoHoldersHaveOneName(t *testing.T) {
	if a, b := loop.Holder(), loop.Holder(); a == b || len(a) > 64+32+30 {
		t.Errorf("%q and %q", a, b)
	}
}
