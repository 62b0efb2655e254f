package postgres

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/jobrunner/runner/engine/store"
	"github.com/jobrunner/runner/engine/store/postgres/pgtest"
	"github.com/jobrunner/runner/engine/store/storetest"
)

// lines is a log that tests read while it is written.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.b.String(), text)
}

// Through a transaction pooler everything means the same. Fewer server
// connections than the store's has each statement meet another session.
func TestConformanceThroughPgBouncer(t *testing.T) {
	url := pgtest.Bouncer(t, sharedDatabase(t), "default_pool_size=3")
	storetest.Run(t, func(tb testing.TB) storetest.DB { return openThrough(tb, url, nil) })
}

// openThrough opens a store through a pooler, which it has to find out.
func openThrough(tb testing.TB, url string, log *slog.Logger) db {
	d := openThroughURL(tb, Config{Logger: log}, url)
	if !d.pooled {
		tb.Fatal("the pooler was not noticed")
	}
	return d
}

func TestPgBouncerIsToldOnceAndWorksByPolling(t *testing.T) {
	var log lines
	url := pgtest.Bouncer(t, sharedDatabase(t), "default_pool_size=2")
	d := openThrough(t, url, slog.New(slog.NewTextHandler(&log, nil)))
	if n := log.count("found by polling"); n != 1 {
		t.Fatalf("said %d times that wakes do not arrive", n)
	}
	stop := d.Wakes(func(string) {})
	defer stop()
	if d.Listening() {
		t.Fatal("it listens through a transaction pooler")
	}
	// More at once than there are server connections.
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			ctx := context.Background()
			for n := range 20 {
				id := idAt(time.Now(), i*1000+n)
				if _, err := d.Enqueue(ctx, []store.EnqueueParams{{ID: id, Job: "j", Queue: "q", Key: fmt.Sprint(n), MaxAttempts: 1}}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if st, err := d.Stats(context.Background()); err != nil || st.Queues[0].Ready != 20 {
		t.Fatalf("%+v, %v", st, err)
	}
	if log.count("found by polling") != 1 {
		t.Fatal("said so again")
	}
}

// A proxy that accepts LISTEN and delivers nothing is found out, and said once.
func TestListeningIsProved(t *testing.T) {
	var log lines
	s := open(t, migrated(t, Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}))
	through, err := pgx.ParseConfig(pgtest.Bouncer(t, s.cfg.URL))
	if err != nil {
		t.Fatal(err)
	}
	s.listen = newListener(s, through)
	s.listen.wait = 50 * time.Millisecond
	stop := s.Wakes(func(q string) { t.Errorf("woken for %q", q) })
	defer stop()
	// It goes on trying. (On a busy machine a probe may not even be sent in time.)
	for s.listen.failed.Load() < 3 || log.count("do not arrive") == 0 {
		if err := pauseFor(t.Context(), 10*time.Millisecond); err != nil {
			t.Fatal(err)
		}
	}
	if n := log.count("do not arrive"); n != 1 || s.Listening() {
		t.Fatalf("said %d times that wakes do not arrive, listening %v", n, s.Listening())
	}
}
