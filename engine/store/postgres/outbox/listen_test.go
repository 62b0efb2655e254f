package outbox

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/jobrunner/runner/engine/store"
)

// wakes subscribes, and waits until wakes are known to arrive.
func wakes(t *testing.T, d *DB) <-chan struct{} {
	t.Helper()
	d.listen.wait = time.Hour // for a probe: it comes back, however slow the machine is
	c := make(chan struct{}, 100)
	t.Cleanup(d.Wakes(func() { c <- struct{}{} }))
	<-c // the first says that what came before was not heard
	if !d.Listening() {
		t.Fatal("woken, and not listening")
	}
	return c
}

// notified counts the notifications of the outbox that f's commits cause.
func notified(t *testing.T, cfg Config, f func()) int {
	t.Helper()
	ear := session(t, cfg)
	channel := dialect{schema: cfg.Schema}.channel()
	ear.exec("LISTEN " + pgx.Identifier{channel}.Sanitize())
	f()
	ear2 := session(t, cfg)
	if _, err := ear2.Exec(t.Context(), "SELECT pg_notify($1, 'end')", channel); err != nil {
		t.Fatal(err)
	}
	for n := 0; ; n++ {
		got, err := ear.WaitForNotification(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got.Payload == "end" {
			return n
		}
	}
}

// (W20) A commit that staged something wakes the relay, and counts for that only
// once a probe has come back.
func TestCommitWakes(t *testing.T) {
	cfg := installed(t)
	d, a := open(t, cfg), session(t, cfg)
	if d.Listening() {
		t.Error("listening before anyone asked")
	}
	c := wakes(t, d)
	a.enqueue(`'j'`)
	<-c
}

// After a connection was cut, wakes are unproven until a probe came back again.
func TestListeningIsProvenAnewAfterACut(t *testing.T) {
	cfg := installed(t)
	d, a := open(t, cfg), session(t, cfg)
	c := wakes(t, d)
	a.exec(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity
		WHERE pid <> pg_backend_pid() AND application_name = 'runner-outbox' AND query LIKE 'LISTEN "` + cfg.Schema + `%'`)
	<-c // what was said in between was not heard
	if !d.Listening() {
		t.Error("not listening")
	}
}

func TestNoListenOpensNoConnection(t *testing.T) {
	cfg := installed(t)
	cfg.NoListen = true
	d := open(t, cfg)
	stop := d.Wakes(func() { t.Error("a wake") })
	defer stop()
	d.listen.mu.Lock()
	defer d.listen.mu.Unlock()
	if d.listen.begun {
		t.Error("a listener was begun")
	}
}

// A retry wakes the relay, and has it look at everything: rows that are staged
// again stand far below what it claims now.
func TestRetryWakesForEverything(t *testing.T) {
	cfg := installed(t)
	d, a := open(t, cfg), session(t, cfg)
	a.enqueue(`'j'`)
	rows := claim(t, d, "r1", 1)
	settle(t, d, reject(rows[0], "X"))
	c := wakes(t, d)
	now := time.Unix(1_000_000, 0)
	d.floor.mu.Lock()
	d.floor.now, d.floor.after, d.floor.full = func() time.Time { return now }, 1000, now
	d.floor.mu.Unlock()
	if rows := claim(t, d, "r1", 1); len(rows) != 0 {
		t.Fatalf("claimed %v", rows)
	}
	operator := open(t, cfg)
	if _, err := operator.RetryStaged(t.Context(), store.RetryStagedParams{All: true}); err != nil {
		t.Fatal(err)
	}
	<-c
	if again := claim(t, d, "r1", 1); len(again) != 1 || again[0].ID != rows[0].ID {
		t.Errorf("claimed %v", again)
	}
}

// (W21) However much a transaction stages, it notifies once; and while one that
// will notify is open, others that begin in the same quarter of a second are
// silent, so that their commits do not wait for each other.
func TestNotificationsAreThrottled(t *testing.T) {
	cfg := installed(t)
	a, b := session(t, cfg), session(t, cfg)
	if n := notified(t, cfg, func() { a.exec(`SELECT {schema}.enqueue('j') FROM generate_series(1, 1000)`) }); n != 1 {
		t.Errorf("one transaction notified %d times", n)
	}
	if n := notified(t, cfg, func() {
		a.tx(func(tx pgx.Tx) {
			for range 3 {
				if _, err := tx.Exec(t.Context(), a.sql(`SELECT {schema}.enqueue('j'), pg_sleep(0.26)`)); err != nil {
					t.Fatal(err)
				}
			}
		})
	}); n != 1 {
		t.Errorf("a transaction over several slots notified %d times", n)
	}
	// The two stage in one statement of one session, so in one slot; the lock of
	// the first is what keeps the second silent.
	if n := notified(t, cfg, func() {
		a.tx(func(pgx.Tx) {
			a.exec(`DO $$
				DECLARE slot bigint := floor(extract(epoch FROM clock_timestamp()) * 4);
				BEGIN
					FOR i IN 0 .. 2400 LOOP -- ten minutes
						PERFORM pg_advisory_xact_lock(hashtext('` + dialect{schema: cfg.Schema}.channel() + `'), ((slot + i) % 2147483647)::integer);
					END LOOP;
				END $$`)
			b.enqueue(`'j'`)
		})
	}); n != 0 {
		t.Errorf("notified %d times beside one that is about to", n)
	}
	if n := notified(t, cfg, func() { b.enqueue(`'j'`) }); n != 1 {
		t.Errorf("notified %d times alone", n)
	}
}

// A transaction that was rolled back has told nobody, and its session knows.
func TestRollbackForgetsThatItNotified(t *testing.T) {
	cfg := installed(t)
	for _, undo := range [][]string{{"BEGIN", "ROLLBACK", "BEGIN"}, {"BEGIN; SAVEPOINT s", "ROLLBACK TO s", "SELECT"}} {
		a := session(t, cfg)
		if n := notified(t, cfg, func() {
			a.exec(undo[0])
			a.enqueue(`'gone'`)
			a.exec(undo[1])
			a.exec(undo[2])
			a.enqueue(`'j'`)
			a.exec("COMMIT")
		}); n != 1 {
			t.Errorf("%v: notified %d times", undo, n)
		}
	}
	if n := value[int](session(t, cfg), `SELECT count(*) FROM {schema}.outbox WHERE job = 'gone'`); n != 0 {
		t.Errorf("%d rows were rolled back and are there", n)
	}
}
