package queue

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

// doubler is a batcher whose write doubles, or does what step says.
func doubler(write func(ctx context.Context, batch []int) ([]int, error)) *batcher[int, int] {
	return &batcher[int, int]{
		write:   write,
		size:    func(*int) int { return 1 },
		observe: func(int) {},
	}
}

func double(_ context.Context, batch []int) ([]int, error) {
	out := make([]int, len(batch))
	for i, n := range batch {
		out[i] = 2 * n
	}
	return out, nil
}

func TestWhatArrivesDuringAWriteSharesTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var batches [][]int
		gate := make(chan struct{})
		b := doubler(func(ctx context.Context, batch []int) ([]int, error) {
			batches = append(batches, slices.Clone(batch))
			<-gate
			return double(ctx, batch)
		})
		answers := make([]int, 6)
		for i := range answers {
			b.submit(t.Context(), i, func(r int, err error) {
				answers[i] = r
				if err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		close(gate)
		if err := b.wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		if len(batches) != 2 || !slices.Equal(batches[0], []int{0}) || !slices.Equal(batches[1], []int{1, 2, 3, 4, 5}) {
			t.Errorf("batches are %v", batches)
		}
		if !slices.Equal(answers, []int{0, 2, 4, 6, 8, 10}) {
			t.Errorf("answers are %v", answers)
		}
	})
}

func TestAnEntryThatTheStoreRefusesHarmsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refusal := &abi.Error{Code: job.CodeInvalid, Message: "thirteen"}
		gate := make(chan struct{})
		b := doubler(func(ctx context.Context, batch []int) ([]int, error) {
			<-gate
			if slices.Contains(batch, 13) {
				return nil, refusal
			}
			return double(ctx, batch)
		})
		got := map[int]error{}
		values := map[int]int{}
		for _, n := range []int{1, 12, 13, 14} {
			b.submit(t.Context(), n, func(r int, err error) { got[n], values[n] = err, r })
		}
		close(gate)
		synctest.Wait()
		if got[1] != nil || got[12] != nil || got[14] != nil || !errors.Is(got[13], refusal) || values[14] != 28 {
			t.Errorf("answers are %v %v", got, values)
		}
	})
}

func TestAWriteIsRepeatedWhileItsOutcomeIsUnclear(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, transient := range []error{
			store.ErrUnknown,
			&abi.Error{Code: job.CodeDatabaseBusy},
			&abi.Error{Code: job.CodeDatabaseUnavailable},
			context.DeadlineExceeded,
		} {
			tries := 0
			b := doubler(func(ctx context.Context, batch []int) ([]int, error) {
				if tries++; tries < 8 {
					return nil, transient
				}
				return double(ctx, batch)
			})
			began := time.Now()
			if r, err := b.do(t.Context(), 4); err != nil || r != 8 {
				t.Errorf("%v: answered %d, %v", transient, r, err)
			}
			if took := time.Since(began); took < 10*time.Millisecond || took > 10*time.Second {
				t.Errorf("%v: seven repeats took %v, want them spaced", transient, took)
			}
		}
	})
}

func TestWhoGivesUpHearsWhatTheStoreIsInTroubleWith(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		away := &abi.Error{Code: job.CodeDatabaseUnavailable, Message: "the server is gone"}
		var err error = away
		b := doubler(func(ctx context.Context, batch []int) ([]int, error) {
			if err != nil {
				return nil, err
			}
			<-ctx.Done() // hangs
			return nil, ctx.Err()
		})
		short := func() error {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			_, err := b.do(ctx, 1)
			return err
		}
		got := short()
		if !errors.Is(got, away) || !errors.Is(got, context.DeadlineExceeded) || !errors.Is(got, store.ErrUnknown) {
			t.Errorf("gave up with %v", got)
		}
		if err := b.wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		if abi.CodeOf(got) != job.CodeDatabaseUnavailable {
			t.Errorf("the code is %q", abi.CodeOf(got))
		}
		b.trouble, err = nil, nil
		if got := short(); errors.Is(got, away) || !errors.Is(got, context.DeadlineExceeded) || !errors.Is(got, store.ErrUnknown) {
			t.Errorf("gave up on a store that hangs with %v", got)
		}
		if err := b.wait(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

func TestAnEntryGivesUpWithItsContextAndOthersGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var away atomic.Bool
		away.Store(true)
		b := doubler(func(ctx context.Context, batch []int) ([]int, error) {
			if away.Load() {
				return nil, store.ErrUnknown
			}
			return double(ctx, batch)
		})
		short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		gaveUp, answered := make(chan error, 1), make(chan int, 1)
		b.submit(short, 1, func(_ int, err error) { gaveUp <- err })
		b.submit(t.Context(), 2, func(r int, err error) {
			if err != nil {
				t.Error(err)
			}
			answered <- r
		})
		time.Sleep(3 * time.Second)
		if err := <-gaveUp; !errors.Is(err, store.ErrUnknown) {
			t.Errorf("the first gave up with %v", err)
		}
		select {
		case r := <-answered:
			t.Errorf("the second was answered %d while the store was away", r)
		default:
		}
		away.Store(false)
		if err := b.wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		if r := <-answered; r != 4 {
			t.Errorf("the second answered %d", r)
		}
	})
}

func TestAnErrorThatNoRepeatMendsIsAnsweredAtOnce(t *testing.T) {
	full := &abi.Error{Code: job.CodeDatabaseFull}
	tries := 0
	b := doubler(func(context.Context, []int) ([]int, error) { tries++; return nil, full })
	if _, err := b.do(t.Context(), 1); !errors.Is(err, full) || tries != 1 {
		t.Errorf("after %d tries: %v", tries, err)
	}
}

func TestARefusalAfterALostAnswerLeavesTheOutcomeUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		full := &abi.Error{Code: job.CodeDatabaseFull}
		gate := make(chan struct{})
		tries := 0
		b := doubler(func(ctx context.Context, batch []int) ([]int, error) {
			switch tries++; tries {
			case 1:
				<-gate // two more gather meanwhile
				return double(ctx, batch)
			case 2:
				return nil, store.ErrUnknown
			}
			return nil, full
		})
		b.submit(t.Context(), 1, func(_ int, err error) {
			if err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		// What is found out of each alone leaves the doubt about both.
		answers := make(chan error, 2)
		for range 2 {
			b.submit(t.Context(), 1, func(_ int, err error) { answers <- err })
		}
		close(gate)
		for range 2 {
			if err := <-answers; !errors.Is(err, full) || !errors.Is(err, store.ErrUnknown) {
				t.Errorf("error is %v, want the refusal and the doubt", err)
			}
		}
	})
}

func TestACallerWhoLeavesLearnsThatTheOutcomeIsUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		b := doubler(func(ctx context.Context, batch []int) ([]int, error) { <-gate; return double(ctx, batch) })
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			synctest.Wait()
			cancel()
		}()
		if _, err := b.do(ctx, 1); !errors.Is(err, store.ErrUnknown) || !errors.Is(err, context.Canceled) {
			t.Errorf("error is %v", err)
		}
		close(gate)
	})
}

func TestABatchIsBoundedInEntriesAndBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sizes []int
		gate := make(chan struct{})
		b := doubler(func(ctx context.Context, batch []int) ([]int, error) {
			<-gate
			sizes = append(sizes, len(batch))
			return double(ctx, batch)
		})
		b.size = func(n *int) int { return *n }
		done := func(int, error) {}
		b.submit(t.Context(), 1, done)
		synctest.Wait()
		b.submit(t.Context(), maxBatchBytes+1, done) // alone
		b.submit(t.Context(), maxBatchBytes/2, done)
		b.submit(t.Context(), maxBatchBytes/2, done)
		for range maxBatch + 1 {
			b.submit(t.Context(), 0, done)
		}
		close(gate)
		synctest.Wait()
		if want := []int{1, 1, maxBatch, 3}; !slices.Equal(sizes, want) {
			t.Errorf("batches of %v, want %v", sizes, want)
		}
	})
}

func TestAStoreThatMiscountsIsAnError(t *testing.T) {
	b := doubler(func(context.Context, []int) ([]int, error) { return nil, nil })
	if _, err := b.do(t.Context(), 1); abi.CodeOf(err) != job.CodeInternal {
		t.Errorf("error is %v", err)
	}
}

func BenchmarkBatcher(b *testing.B) {
	w := doubler(double)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := w.do(context.Background(), 1); err != nil {
				b.Error(err)
			}
		}
	})
}

// What is known about an attempt waits until a person has dealt with the
// database; who asks for something new is told what is wrong.
func TestAnAttemptsWritesOutlastWhatAPersonMends(t *testing.T) {
	for _, code := range []string{
		job.CodeDatabaseDenied, job.CodeDatabaseFull, job.CodeDatabaseMissing, job.CodeDatabaseReadOnly, job.CodeDatabaseSchema,
	} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			mended := began.Add(10 * time.Second)
			f := &failing{until: mended, err: &abi.Error{Code: code, Message: "not now"}}
			q := New(Config{Store: f})
			if _, err := q.Settle(t.Context(), store.SettleParams{}); err != nil || time.Now().Before(mended) {
				t.Errorf("%s: a settle answered %v after %v", code, err, time.Since(began))
			}
			f.until = time.Now().Add(10 * time.Second)
			if _, err := q.SaveStep(t.Context(), store.StepParams{}); err != nil || time.Now().Before(f.until) {
				t.Errorf("%s: a step answered %v", code, err)
			}
			f.until = time.Now().Add(10 * time.Second)
			if _, err := q.enqueues.do(t.Context(), store.EnqueueParams{}); abi.CodeOf(err) != code {
				t.Errorf("an enqueue answered %v, want %s", err, code)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if _, err := q.Settle(ctx, store.SettleParams{}); abi.CodeOf(err) != code {
				t.Errorf("a settle whose lease ended answered %v, want %s", err, code)
			}
			if err := q.Wait(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// failing answers an error until a while has passed.
type failing struct {
	store.Store
	until time.Time
	err   error
}

func (f *failing) now() error {
	if time.Now().Before(f.until) {
		return f.err
	}
	return nil
}

func (f *failing) Enqueue(_ context.Context, batch []store.EnqueueParams) ([]store.EnqueueResult, error) {
	return make([]store.EnqueueResult, len(batch)), f.now()
}

func (f *failing) Settle(_ context.Context, batch []store.SettleParams) ([]store.SettleResult, error) {
	return make([]store.SettleResult, len(batch)), f.now()
}

func (f *failing) SaveSteps(_ context.Context, batch []store.StepParams) ([]store.StepResult, error) {
	return make([]store.StepResult, len(batch)), f.now()
}

func TestEntriesThatWaitForTheStoreAreSpokenOf(t *testing.T) {
	full := &abi.Error{Code: job.CodeDatabaseFull, Message: "no space"}
	for name, end := range map[string]func(fails *atomic.Bool, giveUp context.CancelFunc){
		"written":  func(fails *atomic.Bool, _ context.CancelFunc) { fails.Store(false) },
		"given up": func(_ *atomic.Bool, giveUp context.CancelFunc) { giveUp() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var fails atomic.Bool
				var heard []error
				b := doubler(func(ctx context.Context, batch []int) ([]int, error) {
					if fails.Load() {
						return nil, full
					}
					return double(ctx, batch)
				})
				b.outlasts = mendable
				b.stalled = func(err error, _ int) { heard = append(heard, err) }

				fails.Store(true) // for less than it takes to be worth a word
				b.submit(t.Context(), 1, func(int, error) {})
				time.Sleep(stallAfter / 2)
				fails.Store(false)
				if err := b.wait(t.Context()); err != nil || len(heard) != 0 {
					t.Errorf("a short stall: %v, heard %v", err, heard)
				}

				fails.Store(true)
				ctx, giveUp := context.WithCancel(t.Context())
				defer giveUp()
				b.submit(ctx, 1, func(int, error) {})
				time.Sleep(time.Minute)
				synctest.Wait()
				if n := len(heard); n < 2 || n > 8 || !errors.Is(heard[0], full) {
					t.Errorf("in a minute of trouble: %v", heard)
				}
				if err := b.stuck(); !errors.Is(err, full) {
					t.Errorf("in trouble: %v", err)
				}
				heard = nil
				end(&fails, giveUp)
				if err := b.wait(t.Context()); err != nil {
					t.Fatal(err)
				}
				if err := b.stuck(); err != nil || len(heard) != 1 || heard[0] != nil {
					t.Errorf("after it: %v, heard %v", err, heard)
				}
			})
		})
	}
}
