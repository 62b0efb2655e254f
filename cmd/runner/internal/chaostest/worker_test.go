package chaostest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sync"
	"syscall"
	"testing"
	"time"
)

// worker is the place of one process, which a supervisor fills again whenever
// it is empty, as systemd or Kubernetes do.
type worker struct {
	name string
	skew time.Duration
	fail func(format string, args ...any) // safe for concurrent use

	busy sync.Mutex // one trouble at a time

	mu      sync.Mutex // guards all below
	cmd     *exec.Cmd
	log     *os.File
	told    told
	from    int64 // where what cmd says begins in the log
	begun   bool  // its first process works; no trouble is made before
	closing bool
	ended   chan struct{}
}

// told is which signals the process was sent that end it.
type told struct{ kill, term bool }

// workerParams are what a process is started with.
type workerParams struct {
	name     string
	dir      string // of binary and manifest
	database string // through the proxy
	skew     time.Duration
	fail     func(format string, args ...any)
}

// startWorker starts a process and its supervisor.
func startWorker(p workerParams) (*worker, error) {
	log, err := os.OpenFile(filepath.Join(p.dir, p.name+".log"), os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	w := &worker{name: p.name, skew: p.skew, fail: p.fail, log: log, ended: make(chan struct{})}
	if err := w.start(p); err != nil {
		return nil, errors.Join(err, log.Close())
	}
	go w.supervise(p)
	return w, nil
}

// errClosing is why no process is started any more.
var errClosing = errors.New("the place is closed")

func (w *worker) start(p workerParams) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closing {
		return errClosing
	}
	cmd := exec.Command(filepath.Join(p.dir, "runner"), "serve", "-f", p.name+".toml", "--listen", "", "--log-format", "json")
	cmd.Dir = p.dir
	cmd.Env = append(os.Environ(), "RUNNER_DATABASE_URL="+p.database, fmt.Sprintf("RUNNER_TEST_SKEW=%d", int(p.skew.Seconds())))
	cmd.Stdout, cmd.Stderr = w.log, w.log
	from, err := w.log.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	w.cmd, w.told, w.from = cmd, told{}, from
	return nil
}

// awaitStart waits until the first process works, and looks at its clock. It reports
// whether one could be started.
func (w *worker) awaitStart() bool {
	for {
		said, _ := os.ReadFile(w.log.Name())
		if bytes.Contains(said, []byte(`"serve.started"`)) {
			var first struct{ Time time.Time }
			if err := json.NewDecoder(bytes.NewReader(said)).Decode(&first); err != nil {
				w.fail("%s logs %v: %s", w.name, err, said)
			} else if off := time.Until(first.Time) - w.skew; off.Abs() > 5*time.Minute {
				w.fail("the clock of %s is %v off from where it should be", w.name, off)
			}
			w.mu.Lock()
			w.begun = true
			w.mu.Unlock()
			return true
		}
		select {
		case <-w.ended:
			return false
		case <-time.After(20 * time.Millisecond):
		}
	}
}

var busy = regexp.MustCompile("X_DATABASE_(UNAVAILABLE|BUSY): ")

// supervise waits for the process to end, judges how it did, and starts another.
func (w *worker) supervise(p workerParams) {
	defer close(w.ended)
	for {
		w.mu.Lock()
		cmd, from := w.cmd, w.from
		w.mu.Unlock()
		_ = cmd.Wait() // how it ended is in its state
		w.mu.Lock()
		sent, begun, closing := w.told, w.begun, w.closing
		w.mu.Unlock()
		if !begun && sent == (told{}) {
			// Only a machine that is too busy has it end before there is trouble.
			said, _ := io.ReadAll(io.NewSectionReader(w.log, from, 1<<30))
			if !busy.Match(said) {
				w.fail("%s ended with %v when it was started: %s", w.name, cmd.ProcessState, said)
				return
			}
		}
		w.judge(cmd.ProcessState, sent, from)
		if sent == (told{}) && !closing {
			time.Sleep(200 * time.Millisecond) // as a supervisor does, so that it does not spin
		}
		switch err := w.start(p); {
		case errors.Is(err, errClosing):
			return
		case err != nil:
			w.fail("%s cannot be started: %v", w.name, err)
			return
		}
	}
}

// judge says so when a process ended as it should not.
func (w *worker) judge(s *os.ProcessState, told told, from int64) {
	said, _ := io.ReadAll(io.NewSectionReader(w.log, from, 1<<30))
	if i := bytes.Index(said, []byte("goroutine ")); i >= 0 {
		w.fail("%s broke: %s", w.name, said[max(0, i-500):min(len(said), i+3000)])
		return
	}
	databaseAway := bytes.Contains(said, []byte("X_DATABASE_"))
	switch status := s.Sys().(syscall.WaitStatus); {
	case status.Signaled() && told.kill && status.Signal() == syscall.SIGKILL:
	case status.Signaled() && told.term && status.Signal() == syscall.SIGTERM && len(bytes.TrimSpace(said)) == 0:
		// So soon after its start that it did not hear signals yet.
	case told.term && status.Exited() && status.ExitStatus() == 0:
	case told.term && status.Exited() && (databaseAway || bytes.Contains(said, []byte("X_INTERRUPTED"))):
		// It could not say goodbye, and its lease does; or it had not begun.
	case status.Exited() && status.ExitStatus() == 2 && databaseAway && !bytes.Contains(said, []byte(`"serve.started"`)):
		// The server was away when it was to start.
	default:
		w.fail("%s ended with %v after %+v: %s", w.name, s, told, said[max(0, len(said)-3000):])
	}
}

// signal sends the process that is there now a signal. One that ends it is
// expected to.
func (w *worker) signal(sig syscall.Signal) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.send(sig)
}

// send is signal, with mu held.
func (w *worker) send(sig syscall.Signal) {
	switch sig {
	case syscall.SIGKILL:
		w.told.kill = true
	case syscall.SIGTERM:
		w.told.term = true
	}
	_ = w.cmd.Process.Signal(sig) // it may have ended
}

// pause stops the process for d.
func (w *worker) pause(d time.Duration) {
	w.signal(syscall.SIGSTOP)
	time.Sleep(d)
	w.signal(syscall.SIGCONT)
}

// close drains the process for good.
func (w *worker) close() {
	w.mu.Lock()
	w.closing = true // at once with the signal: no process is started that does not get it
	w.send(syscall.SIGTERM)
	w.mu.Unlock()
	select {
	case <-w.ended:
	case <-time.After(endPatience):
		w.fail("%s does not end when it is told to", w.name)
		w.signal(syscall.SIGKILL)
		<-w.ended
	}
	_ = w.log.Close()
}

// A process that ends of itself while its place is closed is not followed by one
// that nobody tells to end.
func TestAClosedPlaceIsNotFilledAgain(t *testing.T) {
	dir := t.TempDir()
	ends, err := exec.LookPath("true")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(ends, filepath.Join(dir, "runner")); err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	w := &worker{name: "w", fail: t.Errorf, log: log, ended: make(chan struct{})}
	p := workerParams{name: "w", dir: dir}
	if err := w.start(p); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, "runner")); err != nil {
		t.Fatal(err) // another would end the test, as one that cannot be started
	}
	w.told.term, w.closing = true, true
	w.supervise(p)
	w.close()
}
