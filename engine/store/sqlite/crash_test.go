package sqlite

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

// childEnv makes the test binary a child that works on the database at its
// value's path until it is killed.
const childEnv = "RUNNER_SQLITE_TEST_CHILD"

// runChild is a worker process in small. It prints what was answered, a line
// each, after the answer: what the parent has read must be there after a kill.
func runChild(arg string) int {
	mode, path, _ := strings.Cut(arg, "|")
	release, err := LockServe(path)
	if err != nil {
		fmt.Println("error", err)
		return 1
	}
	defer release()
	if mode == "lock" {
		fmt.Println("locked", os.Getpid())
		io.Copy(io.Discard, os.Stdin)
		return 0
	}
	ctx := context.Background()
	s, err := Open(ctx, Config{Path: path, Create: true})
	if err != nil {
		fmt.Println("error", err)
		return 1
	}
	worker := "w" + strconv.Itoa(os.Getpid())
	if err := s.Register(ctx, store.RegisterParams{ID: worker, Lease: time.Hour, Alone: true}); err != nil {
		fmt.Println("error", err)
		return 1
	}
	var out sync.Mutex
	say := func(args ...any) {
		out.Lock()
		defer out.Unlock()
		fmt.Fprintln(os.Stdout, args...)
	}
	var n atomic.Int64
	n.Store(time.Now().UnixMicro() & (1<<47 - 1))
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for {
				p := params(int(n.Add(1)))
				if _, err := s.Enqueue(ctx, []store.EnqueueParams{p}); err != nil {
					say("error", err)
					return
				}
				say("enqueued", p.ID)
			}
		})
		wg.Go(func() {
			for {
				res, err := s.Claim(ctx, store.ClaimParams{Worker: worker, Queues: []store.QueueLimit{{Queue: "q", Limit: 3}}})
				if err != nil {
					say("error", err)
					return
				}
				for _, r := range res.Runs {
					say("claimed", r.ID, r.Claims)
					ref := job.Ref{RunID: r.ID, Worker: worker, Claim: r.Claims}
					if _, err := s.SaveSteps(ctx, []store.StepParams{{Ref: ref, Name: "a", Kind: job.KindStep, Status: job.StepCompleted, Output: []byte(worker)}}); err != nil {
						say("error", err)
						return
					}
					say("step", r.ID, worker)
					if _, err := s.Settle(ctx, []store.SettleParams{{Ref: ref, Outcome: job.Completed, To: job.Done, Output: []byte(worker)}}); err != nil {
						say("error", err)
						return
					}
					say("done", r.ID, worker)
				}
			}
		})
	}
	wg.Wait()
	return 1
}

// child starts the test binary as one; the caller kills it.
func child(t *testing.T, arg string) (*exec.Cmd, *bufio.Reader) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), childEnv+"="+arg)
	cmd.Stderr = os.Stderr
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	return cmd, bufio.NewReader(out)
}

// A process that is killed at any moment has lost nothing that it was answered,
// and nothing that it held stays held.
func TestKilledProcessLosesNothingAnswered(t *testing.T) {
	path := filepath.Join(t.TempDir(), "runs.db")
	answered := map[string]map[string]string{"enqueued": {}, "claimed": {}, "step": {}, "done": {}}
	for round := range 4 {
		cmd, out := child(t, "work|"+path)
		for lines := 0; ; lines++ {
			line, err := out.ReadString('\n')
			if err != nil {
				break // a line without its end was cut by the kill
			}
			f := strings.Fields(line)
			if f[0] == "error" {
				t.Fatalf("round %d: child: %s", round, line)
			}
			value := ""
			if len(f) > 2 {
				value = f[2]
			}
			answered[f[0]][f[1]] = value
			if lines == 300+round*200 {
				cmd.Process.Kill()
			}
		}
		cmd.Wait()
		checkAnswered(t, path, answered)
	}
	for what, ids := range answered {
		if len(ids) < 100 {
			t.Errorf("only %d %s: the child did too little", len(ids), what)
		}
	}
}

func checkAnswered(t *testing.T, path string, answered map[string]map[string]string) {
	t.Helper()
	release, err := LockServe(path)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	s, err := Open(t.Context(), Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var integrity string
	err = s.r.do(t.Context(), func(c *conn) error {
		q, _, err := c.db.Prepare("PRAGMA integrity_check")
		if err != nil {
			return err
		}
		defer q.Close()
		q.Step()
		integrity = q.ColumnText(0)
		return q.Err()
	})
	if err != nil || integrity != "ok" {
		t.Fatalf("integrity %q, %v", integrity, err)
	}
	for id := range answered["enqueued"] {
		if _, err := s.Get(t.Context(), id); err != nil {
			t.Errorf("enqueued run %s: %v", id, err)
		}
	}
	for id, claim := range answered["claimed"] {
		want, _ := strconv.ParseInt(claim, 10, 64)
		if r, err := s.Get(t.Context(), id); err != nil || r.Claims < want {
			t.Errorf("run %s was claimed under %s: %+v, %v", id, claim, r, err)
		}
	}
	for id, worker := range answered["step"] {
		steps, err := s.ListSteps(t.Context(), id)
		if err != nil || len(steps) != 1 || string(steps[0].Output) != worker {
			t.Errorf("step of run %s by %s: %+v, %v", id, worker, steps, err)
		}
	}
	for id, worker := range answered["done"] {
		r, err := s.Get(t.Context(), id)
		if err != nil || r.State != job.Done || string(r.Output) != worker {
			t.Errorf("run %s was done by %s: %+v, %v", id, worker, r, err)
		}
	}
	// What the dead process held comes back as soon as another serves alone.
	if err := s.Register(t.Context(), store.RegisterParams{ID: fmt.Sprint("check", time.Now().UnixNano()), Lease: time.Hour, Alone: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Reclaim(t.Context(), store.ReclaimParams{}); err != nil {
		t.Fatal(err)
	}
	if n := stats(t, s).Running; n != 0 {
		t.Errorf("%d runs are still held by the dead", n)
	}
}

func TestAFileOfSeveralNamesIsNotOpened(t *testing.T) {
	dir := t.TempDir()
	path, other := filepath.Join(dir, "runs.db"), filepath.Join(dir, "other.db")
	s := open(t, Config{Path: path, Create: true})
	enqueue(t, s, 1)
	if err := os.Link(path, other); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{path, other} {
		_, err := Open(t.Context(), Config{Path: name, Create: true})
		wantCode(t, err, job.CodeDatabaseUnavailable)
		if !strings.Contains(err.Error(), name+" has 2 names") {
			t.Errorf("%v", err)
		}
		m, err := NewMigrator(Config{Path: name, Create: true})
		if err != nil {
			t.Fatal(err)
		}
		_, err = m.Migrate(t.Context())
		wantCode(t, err, job.CodeDatabaseUnavailable)
		_, err = m.Version(t.Context())
		wantCode(t, err, job.CodeDatabaseUnavailable)
	}
	// Who had it open goes on, and with one name it is opened again.
	enqueue(t, s, 2)
	if err := os.Remove(other); err != nil {
		t.Fatal(err)
	}
	open(t, Config{Path: path})
}

func TestOneProcessServes(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "runs.db")
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link.db")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	cmd, out := child(t, "lock|"+path)
	line, err := out.ReadString('\n')
	if err != nil || !strings.HasPrefix(line, "locked") {
		t.Fatalf("child said %q, %v", line, err)
	}
	pid := strings.Fields(line)[1]
	for _, name := range []string{path, link} {
		_, err := LockServe(name)
		wantCode(t, err, job.CodeDatabaseBusy)
		if !strings.Contains(err.Error(), "process "+pid) {
			t.Errorf("error %q does not name process %s", err, pid)
		}
	}
	// Others may still write.
	s := open(t, Config{Path: path})
	enqueue(t, s, 1)

	cmd.Process.Kill()
	cmd.Wait()
	release, err := LockServe(link)
	if err != nil {
		t.Fatalf("after the holder died: %v", err)
	}
	if _, err = LockServe(path); abi.CodeOf(err) != job.CodeDatabaseBusy {
		t.Fatalf("held by this process: %v", err)
	}
	if err := release(); err != nil {
		t.Fatal(err)
	}
	release, err = LockServe(path)
	if err != nil {
		t.Fatalf("after release: %v", err)
	}
	release()
	if _, err := LockServe(filepath.Join(dir, "no", "such.db")); abi.CodeOf(err) != job.CodeDatabaseUnavailable {
		t.Fatalf("a folder that is missing: %v", err)
	}
	if release, err := LockServe(Memory); err != nil || release() != nil {
		t.Fatalf("in memory: %v", err)
	}
	if b, _ := os.ReadFile(path + ".lock"); !bytes.Equal(b, []byte(strconv.Itoa(os.Getpid())+"\n")) {
		t.Errorf("the lock file says %q", b)
	}
}
