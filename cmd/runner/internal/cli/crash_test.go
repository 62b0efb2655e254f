package cli_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/jobrunner/runner/engine/store/postgres/pgtest"
)

// stepOf is one step of one run.
type stepOf struct{ run, step string }

// crashing is a folder whose server is killed again and again.
type crashing struct {
	t        *testing.T
	dir      string
	program  string
	database string // "" is the manifest's
}

const (
	crashRuns = 300
	crashes   = 6
	// bodiesBetween is how many step bodies a server runs before it is killed:
	// enough that a run which one kill interrupts has ended before the next, for
	// one that takes three workers with it in a row is buried.
	bodiesBetween = 150
)

func TestNoRecordedStepRunsAgainHoweverOftenTheServerIsKilled(t *testing.T) {
	t.Run("sqlite", func(t *testing.T) { killAgainAndAgain(t, "") })
	t.Run("postgres", func(t *testing.T) { killAgainAndAgain(t, pgtest.Database(t)) })
}

func killAgainAndAgain(t *testing.T, database string) {
	program, err := exec.LookPath("runner") // this test binary, as the scripts have it
	if err != nil {
		t.Fatal(err)
	}
	c := crashing{t: t, dir: t.TempDir(), program: program, database: database}
	wasm, err := os.ReadFile(filepath.Join(modules, "gate-v1.wasm"))
	if err != nil {
		t.Fatal(err)
	}
	c.write("gate.wasm", string(wasm))
	c.write("jobs.toml", fmt.Sprintf(`[runner]
data_dir = %q
lease = "10m" # of a server that is slow; of one that is killed the test says when it is over
[queues.default]
workers = 8
[modules.gate]
path = "gate.wasm"
[jobs.chain]
module = "gate"
tenant = "none"
key = "{name}"
retry = { attempts = 20 }
`, filepath.Join(modules, "data")))
	var inputs strings.Builder
	for i := range crashRuns {
		fmt.Fprintf(&inputs, "{\"name\":\"%d\"}\n", i)
	}
	c.write("inputs.jsonl", inputs.String())
	c.runner("migrate", "up")
	c.runner("enqueue", "chain", "--input-lines", "inputs.jsonl")

	recorded := map[stepOf]bool{}
	interrupted := 0
	for kill := range crashes + 1 {
		last := kill == crashes
		c.lapse()
		bodies := c.serve(last)
		for s, n := range bodies {
			if recorded[s] {
				t.Errorf("step %s of run %s was recorded, and its body ran again after kill %d", s.step, s.run, kill)
			} else if n > 1 {
				t.Errorf("the body of step %s of run %s ran %d times on one server", s.step, s.run, n)
			}
		}
		states := map[string]int{}
		for _, r := range c.histories() {
			states[r.State]++
			for _, s := range r.History {
				if s.Status == "completed" {
					recorded[stepOf{r.ID, s.Name}] = true
				}
			}
		}
		interrupted += states["running"]
		if last && states["done"] != crashRuns {
			t.Errorf("%v, want all %d done", states, crashRuns)
		}
	}
	if want := crashRuns * 4; len(recorded) != want {
		t.Errorf("%d steps are recorded, want %d", len(recorded), want)
	}
	if interrupted == 0 {
		t.Error("no kill met a run under way, so nothing was tested")
	}
	t.Logf("%d runs were under way at %d kills", interrupted, crashes)
}

func (c crashing) write(name, text string) {
	c.t.Helper()
	if err := os.WriteFile(filepath.Join(c.dir, name), []byte(text), 0o600); err != nil {
		c.t.Fatal(err)
	}
}

func (c crashing) command(args ...string) *exec.Cmd {
	cmd := exec.Command(c.program, args...)
	cmd.Dir = c.dir
	cmd.Env = append(os.Environ(), "RUNNER_DATABASE_URL="+c.database)
	return cmd
}

func (c crashing) runner(args ...string) []byte {
	c.t.Helper()
	cmd := c.command(args...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		c.t.Fatalf("runner %v: %v\n%s", args, err, stderr.String())
	}
	return out
}

// lapse ends the leases of the servers that were killed. In a file there is
// nothing to end: one server takes over from another.
func (c crashing) lapse() {
	c.t.Helper()
	if c.database == "" {
		return
	}
	ctx := c.t.Context()
	conn, err := pgx.Connect(ctx, c.database)
	if err != nil {
		c.t.Fatal(err)
	}
	_, err = conn.Exec(ctx, "UPDATE runner.workers SET expires_at = now() - interval '1 second'")
	if err := errors.Join(err, conn.Close(ctx)); err != nil {
		c.t.Fatal(err)
	}
}

// serve starts a server, kills it after bodiesBetween step bodies unless it is
// the last, stops it when every run has ended, and answers how often each
// step's body ran on it.
func (c crashing) serve(last bool) map[stepOf]int {
	c.t.Helper()
	cmd := c.command("serve", "--log-format", "json", "--listen", "")
	out, err := cmd.StderrPipe()
	if err != nil {
		c.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill() }()
	wait := c.command(append([]string{"jobs", "wait"}, c.ids()...)...)
	if err := wait.Start(); err != nil {
		c.t.Fatal(err)
	}
	waited, started, silent := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(waited)
		err := wait.Wait()
		switch code := wait.ProcessState.ExitCode(); {
		case code < 0: // killed below
			return
		case code > 0:
			c.t.Errorf("following the runs: %v", err)
		}
		// All may have ended before this server began. One that has not says in words
		// that it was told to stop.
		select {
		case <-started:
		case <-silent:
		}
		_ = cmd.Process.Signal(syscall.SIGTERM)
	}()
	bodies, n := map[stepOf]int{}, 0
	sc := bufio.NewScanner(out)
	for sc.Scan() {
		var l struct{ Msg, Line, Run, Step string }
		if err := json.Unmarshal(sc.Bytes(), &l); err != nil {
			c.t.Fatalf("the server says %s", sc.Text())
		}
		if l.Msg == "serve.started" {
			close(started)
		}
		if l.Line != "body "+l.Step {
			continue
		}
		bodies[stepOf{l.Run, l.Step}]++
		if n++; n == bodiesBetween && !last {
			if err := cmd.Process.Kill(); err != nil {
				c.t.Fatal(err)
			}
		}
	}
	close(silent)
	_ = cmd.Wait() // it was killed
	_ = wait.Process.Kill()
	<-waited
	return bodies
}

type crashedRun struct {
	ID, State string
	History   []struct{ Name, Status string }
}

func (c crashing) ids() []string {
	var listed struct{ Runs []crashedRun }
	if err := json.Unmarshal(c.runner("jobs", "ls", "--limit", "1000", "--json"), &listed); err != nil {
		c.t.Error(err)
	}
	var ids []string
	for _, r := range listed.Runs {
		ids = append(ids, r.ID)
	}
	return ids
}

func (c crashing) histories() []crashedRun {
	c.t.Helper()
	var all []crashedRun
	dec := json.NewDecoder(strings.NewReader(string(c.runner(append([]string{"jobs", "show", "--json"}, c.ids()...)...))))
	for {
		var r crashedRun
		if err := dec.Decode(&r); err == io.EOF {
			return all
		} else if err != nil {
			c.t.Fatal(err)
		}
		all = append(all, r)
	}
}
