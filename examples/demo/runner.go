package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// runner runs the built program in the demo's folder.
type runner struct {
	program, dir string
	database     string // a URL; "" is the manifest's
}

func (r runner) command(args ...string) *exec.Cmd {
	cmd := exec.Command(r.program, args...)
	cmd.Dir = r.dir
	cmd.Env = append(os.Environ(), "RUNNER_DATABASE_URL="+r.database) // whatever is set outside
	return cmd
}

// run runs a command for what it does, and shows what it says.
func (r runner) run(args ...string) error {
	cmd := r.command(args...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("runner %s: %w", strings.Join(args, " "), err)
	}
	return nil
}

// run and step as the runner prints them, as far as the demo looks.
type (
	run struct {
		ID       string    `json:"id"`
		Job      string    `json:"job"`
		State    string    `json:"state"`
		Attempt  int       `json:"attempt"`
		Claims   int       `json:"claims"`
		History  []step    `json:"history"`
		Attempts []attempt `json:"attempts"`
	}
	step struct {
		Name     string `json:"name"`
		Kind     string `json:"kind"`
		Status   string `json:"status"`
		Failures int    `json:"failures"`
	}
	attempt struct {
		Outcome string `json:"outcome"`
	}
)

// list is every run, without its history.
func (r runner) list() ([]run, error) {
	out, err := r.command("jobs", "ls", "--limit", "1000", "--json").Output()
	if err != nil {
		return nil, fmt.Errorf("runner jobs ls: %w", err)
	}
	var listed struct {
		Runs []run `json:"runs"`
	}
	return listed.Runs, json.Unmarshal(out, &listed)
}

// histories is every run with its history.
func (r runner) histories() ([]run, error) {
	runs, err := r.list()
	if err != nil {
		return nil, err
	}
	args := []string{"jobs", "show", "--json"}
	for _, one := range runs {
		args = append(args, one.ID)
	}
	out, err := r.command(args...).Output()
	if err != nil {
		return nil, fmt.Errorf("runner jobs show: %w", err)
	}
	runs = runs[:0]
	for dec := json.NewDecoder(strings.NewReader(string(out))); dec.More(); {
		var one run
		if err := dec.Decode(&one); err != nil {
			return nil, err
		}
		runs = append(runs, one)
	}
	return runs, nil
}

// follow waits until no run is live any more.
func (r runner) follow() ([]run, error) {
	const patience = time.Minute
	for deadline := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		runs, err := r.list()
		if err != nil {
			return nil, err
		}
		live := 0
		for _, one := range runs {
			switch one.State {
			case "ready", "delayed", "running", "suspended":
				live++
			}
		}
		if live == 0 {
			return r.histories()
		}
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("%d runs have not ended within %v", live, patience)
		}
	}
}

func (r runner) timeline(id string) error {
	fmt.Println()
	return r.run("jobs", "show", id)
}

// server is a `runner serve` and what it logs. Its goroutine reads the log;
// mu guards what it has read.
type server struct {
	cmd  *exec.Cmd
	done chan struct{}

	mu    sync.Mutex
	more  *sync.Cond
	log   []line
	ended bool
}

// line is one line of a server's log.
type line struct {
	Event string `json:"msg"`
	Text  string `json:"line"` // of a handler
	Run   string `json:"run"`
	Step  string `json:"step"`
}

// serve starts a server and waits until it works.
func (r runner) serve(log string) (*server, error) {
	s := &server{cmd: r.command("serve", "--log-format", "json", "--listen", ""), done: make(chan struct{})}
	s.more = sync.NewCond(&s.mu)
	file, err := os.Create(filepath.Join(r.dir, log))
	if err != nil {
		return nil, err
	}
	out, err := s.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(s.done)
		s.read(io.TeeReader(out, file))
		_ = s.cmd.Wait() // a killed server's error says nothing
		_ = file.Close()
	}()
	fmt.Printf("runner serve (process %d)\n", s.cmd.Process.Pid)
	return s, s.await("serve.started", 1)
}

func (s *server) read(r io.Reader) {
	sc := bufio.NewScanner(r)
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		var l line
		if json.Unmarshal(sc.Bytes(), &l) != nil {
			fmt.Println(sc.Text()) // it could not start, and says why
			continue
		}
		s.mu.Lock()
		s.log = append(s.log, l)
		s.more.Broadcast()
		s.mu.Unlock()
	}
	s.mu.Lock()
	s.ended = true
	s.more.Broadcast()
	s.mu.Unlock()
}

// await waits until an event, or a handler's line, has been logged n times.
func (s *server) await(what string, n int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for seen, found := 0, 0; ; s.more.Wait() {
		for ; seen < len(s.log); seen++ {
			if s.log[seen].Event == what || s.log[seen].Text == what {
				found++
			}
		}
		if found >= n {
			return nil
		}
		if s.ended {
			return errStopped
		}
	}
}

// kill ends the server as a power cut would, if it is still there.
func (s *server) kill() {
	_ = s.cmd.Process.Signal(syscall.SIGKILL) // it may have ended
	<-s.done
}

// stop asks the server to end and expects it to do so in order.
func (s *server) stop() error {
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	<-s.done
	if code := s.cmd.ProcessState.ExitCode(); code != 0 {
		return fmt.Errorf("the server ended with %d", code)
	}
	return nil
}

// bodies is how often the body of each step ran on this server.
func (s *server) bodies() map[key]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := map[key]int{}
	for _, l := range s.log {
		if l.Step != "" && l.Text == "body "+l.Step {
			n[key{l.Run, l.Step}]++
		}
	}
	return n
}
