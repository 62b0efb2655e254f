package sqlite

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/ncruces/go-sqlite3"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
	"github.com/jobrunner/runner/engine/store/storetest"
)

func id(n int) string { return fmt.Sprintf("01970000-0000-7000-8000-%012x", n) }

func params(n int) store.EnqueueParams {
	return store.EnqueueParams{ID: id(n), Job: "j", Queue: "q", Input: []byte("{}"), MaxAttempts: 3}
}

func enqueue(t testing.TB, s *Store, n int) {
	t.Helper()
	if _, err := s.Enqueue(t.Context(), []store.EnqueueParams{params(n)}); err != nil {
		t.Fatalf("enqueue %d: %v", n, err)
	}
}

func wantCode(t testing.TB, err error, code string) {
	t.Helper()
	var coded *abi.Error
	if !errors.As(err, &coded) || coded.Code != code {
		t.Fatalf("error is %v, want %s", err, code)
	}
	if coded.Message == "" || coded.Fix == "" && code != job.CodeInvalid {
		t.Fatalf("%s tells nobody what to do: %+v", code, coded)
	}
}

func exists(t testing.TB, s *Store, n int) bool {
	t.Helper()
	_, err := s.Get(t.Context(), id(n))
	if err != nil && abi.CodeOf(err) != job.CodeNotFound {
		t.Fatal(err)
	}
	return err == nil
}

// hold keeps the writer busy until release is called, so that what is done
// meanwhile waits together.
func hold(t *testing.T, s *Store) (release func()) {
	t.Helper()
	taken, free, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		_ = s.w.do(context.Background(), func(*tx) error {
			select {
			case <-taken:
			default:
				close(taken)
			}
			<-free
			return nil
		})
	}()
	<-taken
	return func() { close(free); <-done }
}

// waiting blocks until n ops wait for the writer.
func waiting(s *Store, n int) {
	for {
		s.w.mu.Lock()
		have := len(s.w.pending)
		s.w.mu.Unlock()
		if have >= n {
			return
		}
		time.Sleep(time.Millisecond) // a poll of a condition, not a wait for time
	}
}

func TestWaitingWritesShareOneCommit(t *testing.T) {
	f, vfs := newFaults()
	s := open(t, Config{Path: filepath.Join(t.TempDir(), "runs.db"), vfs: vfs})
	release := hold(t, s)
	errs := make(chan error)
	for n := range 20 {
		go func() {
			_, err := s.Enqueue(t.Context(), []store.EnqueueParams{params(n)})
			errs <- err
		}()
	}
	waiting(s, 20)
	before := f.syncs.Load()
	release()
	for range 20 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if n := f.syncs.Load() - before; n != 1 {
		t.Fatalf("20 writes that waited together took %d syncs, want 1", n)
	}
}

func TestEveryAnswerWasSyncedFirst(t *testing.T) {
	f, vfs := newFaults()
	s := open(t, Config{Path: filepath.Join(t.TempDir(), "runs.db"), vfs: vfs})
	for n := range 5 {
		before := f.syncs.Load()
		enqueue(t, s, n)
		if f.syncs.Load() == before {
			t.Fatal("a write was answered without a sync")
		}
	}
}

// One op's failure takes nobody along: neither those before it nor after it.
func TestAFailedOpFailsAlone(t *testing.T) {
	s := open(t, Config{Path: Memory})
	release := hold(t, s)
	boom := errors.New("boom")
	errs := make([]chan error, 5)
	for n := range errs {
		errs[n] = make(chan error, 1)
		go func() {
			errs[n] <- s.w.do(t.Context(), func(tx *tx) error {
				if _, err := tx.enqueue([]store.EnqueueParams{params(n)}); err != nil {
					return err
				}
				if n == 2 {
					return boom
				}
				return nil
			})
		}()
	}
	waiting(s, len(errs))
	release()
	for n := range errs {
		err := <-errs[n]
		if n == 2 {
			if !errors.Is(err, boom) {
				t.Errorf("op 2 answered %v", err)
			}
			continue
		}
		if err != nil {
			t.Errorf("op %d answered %v", n, err)
		}
	}
	for n := range errs {
		if got := exists(t, s, n); got != (n != 2) {
			t.Errorf("run %d exists: %v", n, got)
		}
	}
	if n := stats(t, s).Ready; n != 4 {
		t.Errorf("%d runs are ready, want 4", n)
	}
}

func stats(t testing.TB, s *Store) store.QueueStats {
	t.Helper()
	st, err := s.Stats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(st.Queues) == 0 {
		return store.QueueStats{}
	}
	return st.Queues[0]
}

func TestAContextThatEndsWhileWaitingWithdraws(t *testing.T) {
	s := open(t, Config{Path: Memory})
	release := hold(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	errs := make(chan error)
	go func() {
		_, err := s.Enqueue(ctx, []store.EnqueueParams{params(1)})
		errs <- err
	}()
	waiting(s, 1)
	cancel()
	if err := <-errs; !errors.Is(err, context.Canceled) || errors.Is(err, store.ErrUnknown) {
		t.Fatalf("answer %v", err)
	}
	release()
	if exists(t, s, 1) {
		t.Fatal("a withdrawn write was done")
	}
}

// A panic below, as the driver has when its memory is exhausted, is an error of
// the op, and the store goes on with another connection.
func TestAPanicCostsTheConnectionNotTheStore(t *testing.T) {
	s := open(t, Config{Path: filepath.Join(t.TempDir(), "runs.db")})
	enqueue(t, s, 1)
	err := s.w.do(t.Context(), func(tx *tx) error {
		if _, err := tx.enqueue([]store.EnqueueParams{params(2)}); err != nil {
			return err
		}
		panic("out of memory")
	})
	if abi.CodeOf(err) != job.CodeDatabaseUnavailable || errors.Is(err, store.ErrUnknown) {
		t.Fatalf("answer %v", err)
	}
	enqueue(t, s, 3)
	if level, err := s.w.c.pragma("synchronous"); err != nil || level != 2 {
		t.Errorf("the new connection syncs at level %d, %v, want 2 (FULL)", level, err)
	}
	for n, want := range map[int]bool{1: true, 2: false, 3: true} {
		if exists(t, s, n) != want {
			t.Errorf("run %d exists: %v", n, !want)
		}
	}
	err = s.r.do(t.Context(), func(*conn) error { panic("out of memory") })
	if abi.CodeOf(err) != job.CodeDatabaseUnavailable {
		t.Fatalf("answer %v", err)
	}
	if !exists(t, s, 3) {
		t.Error("reads do not go on after a panic")
	}
}

// What a panic leaves open on a connection does not keep its memory.
func TestAConnectionIsClosedWhateverIsOpenOnIt(t *testing.T) {
	s := open(t, Config{Path: filepath.Join(t.TempDir(), "runs.db")})
	c, err := openConn(s.cfg, sqlite3.OPEN_READWRITE)
	if err != nil {
		t.Fatal(err)
	}
	if q := c.use(qGetRun); q.err != nil {
		t.Fatal(q.err)
	}
	for range 3 {
		stmt, _, err := c.db.Prepare("SELECT 1 UNION SELECT 2")
		if err != nil || !stmt.Step() {
			t.Fatal(err)
		}
	}
	if err := c.abandon(); err != nil {
		t.Fatalf("the connection was not closed: %v", err)
	}
}

func TestALostDatabaseInMemoryStaysLost(t *testing.T) {
	s := open(t, Config{Path: Memory})
	_ = s.w.do(t.Context(), func(*tx) error { panic("out of memory") })
	_, err := s.Enqueue(t.Context(), []store.EnqueueParams{params(1)})
	if abi.CodeOf(err) != job.CodeDatabaseUnavailable {
		t.Fatalf("answer %v", err)
	}
}

func TestClosedStoreRefuses(t *testing.T) {
	for _, path := range []string{Memory, filepath.Join(t.TempDir(), "runs.db")} {
		s := open(t, Config{Path: path})
		stop := s.Wakes(func(string) {})
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		stop()
		if err := s.Close(); err != nil {
			t.Fatalf("the second close: %v", err)
		}
		_, err := s.Enqueue(t.Context(), []store.EnqueueParams{params(1)})
		if abi.CodeOf(err) != job.CodeDatabaseUnavailable {
			t.Errorf("write after close: %v", err)
		}
		if _, err = s.Get(t.Context(), id(1)); abi.CodeOf(err) != job.CodeDatabaseUnavailable {
			t.Errorf("read after close: %v", err)
		}
		s.Wakes(func(string) {})()
	}
}

// Another process's commit wakes, without a queue.
func TestForeignCommitsWake(t *testing.T) {
	path := filepath.Join(t.TempDir(), "runs.db")
	s := open(t, Config{Path: path, PollInterval: time.Millisecond})
	woken := make(chan string, 1000)
	stop := s.Wakes(func(q string) { woken <- q })
	defer stop()
	enqueue(t, s, 1)
	if q := <-woken; q != "q" {
		t.Fatalf("own commit woke %q", q)
	}
	other := open(t, Config{Path: path})
	for n := 2; ; n++ {
		// The first of the other's commits may fall before the first look.
		enqueue(t, other, n)
		select {
		case q := <-woken:
			if q != "" {
				t.Fatalf("a foreign commit woke %q", q)
			}
			if !exists(t, s, n) {
				t.Fatal("the run is not there")
			}
			return
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func TestDelaysRunOnTheGivenClock(t *testing.T) {
	clock := storetest.NewClock()
	s := open(t, Config{Path: Memory, Clock: clock.Now})
	p := params(1)
	p.Delay = time.Hour
	if _, err := s.Enqueue(t.Context(), []store.EnqueueParams{p}); err != nil {
		t.Fatal(err)
	}
	if n := stats(t, s).Delayed; n != 1 {
		t.Fatalf("%d delayed", n)
	}
	clock.Advance(time.Hour)
	if n := stats(t, s).Ready; n != 1 {
		t.Fatalf("%d ready", n)
	}
}
