package cli_test

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// The commands that scripts have for long-lived processes. A script waits for
// what a process prints or for its end, never for time to pass.
//
//	start NAME PROGRAM ARG…     run it; what it prints goes to NAME.log
//	startpiped NAME PROGRAM …   the same for one whose files may not grow: by way of a pipe
//	await NAME REGEXP           until a line of its output matches (from the line after the last match)
//	signal NAME TERM|INT|HUP|KILL|STOP|CONT
//	ended NAME CODE             until it has ended, with that exit code or "killed"
//	capture VAR REGEXP FILE     VAR is the first group of the first match in FILE (stdout: the last command's)
//	code N CMD ARG…             runs CMD, which must exit with N
//	get URL [REGEXP]            makes an HTTP request, again until the body matches; that is stdout
//	repeat REGEXP CMD ARG…      runs CMD, again until it exits with 0 and its stdout matches: of what may answer late
//	unprivileged N CMD ARG…     as code, without root's rights
//	count N REGEXP FILE         FILE has exactly N lines that match
//	each FILE REGEXP CMD ARG…   runs CMD ARG… with the group of each match in FILE; it must exit 0
//	expand FILE…                replaces $VARIABLES in the files
//	rewind NAME DURATION        makes a schedule that much later; see cmdRewind
//	lapse NAME                  the lease of a killed process is over; see cmdLapse
//	overtake                    until no run is live, leases of processes that have newer ones are over; see cmdOvertake
//	left NAME                   a drained process has said goodbye, and holds nothing; see cmdLeft
//	postgres …                  a server of the script's own; see cmdPostgres
func processCommands() map[string]func(ts *testscript.TestScript, neg bool, args []string) {
	all := map[string]func(*testscript.TestScript, bool, []string){
		"start":        cmdStart,
		"startpiped":   cmdStartPiped,
		"await":        cmdAwait,
		"signal":       cmdSignal,
		"ended":        cmdEnded,
		"capture":      cmdCapture,
		"code":         cmdCode,
		"get":          cmdGet,
		"repeat":       cmdRepeat,
		"count":        cmdCount,
		"each":         cmdEach,
		"expand":       cmdExpand,
		"gate":         cmdGate,
		"unprivileged": cmdUnprivileged,
		"lapse":        cmdLapse,
		"left":         cmdLeft,
		"overtake":     cmdOvertake,
		"postgres":     cmdPostgres,
		"rewind":       cmdRewind,
	}
	maps.Copy(all, systemCommands)
	return all
}

// systemCommands are those that only this system has.
var systemCommands = map[string]func(*testscript.TestScript, bool, []string){}

type processesKey struct{}

// processes are those of one script, which is one goroutine.
type processes struct{ byName map[string]*process }

// process is a started program. It writes its output into its log itself: what it
// said before a script sees something else that it did is there to be read. All of
// this is the script's goroutine's, but for err.
type process struct {
	cmd  *exec.Cmd
	done chan struct{}
	err  error    // after done
	log  *os.File // for reading
	seen int64    // offset behind the last awaited line
}

// pollEvery is how long to wait before looking again at what says nothing by
// itself.
const pollEvery = 5 * time.Millisecond

// await blocks until a whole line after the last awaited one matches; false is
// the end of the process without one.
func (p *process) await(re *regexp.Regexp) (bool, error) {
	for {
		ended := false
		select {
		case <-p.done:
			ended = true
		case <-time.After(pollEvery):
		}
		text, err := io.ReadAll(io.NewSectionReader(p.log, p.seen, 1<<40))
		if err != nil {
			return false, err
		}
		for {
			line, rest, whole := bytes.Cut(text, []byte("\n"))
			if !whole {
				break
			}
			p.seen += int64(len(line)) + 1
			if re.Match(line) {
				return true, nil
			}
			text = rest
		}
		if ended {
			return false, nil
		}
	}
}

// said is all that the process has printed.
func (p *process) said() string {
	text, err := io.ReadAll(io.NewSectionReader(p.log, 0, 1<<40))
	return string(text) + errorText(err)
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func cmdStart(ts *testscript.TestScript, neg bool, args []string) { start(ts, neg, args, false) }

func cmdStartPiped(ts *testscript.TestScript, neg bool, args []string) { start(ts, neg, args, true) }

func start(ts *testscript.TestScript, neg bool, args []string, piped bool) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: start NAME PROGRAM ARG…")
	}
	all := ts.Value(processesKey{}).(*processes)
	if old := all.byName[args[0]]; old != nil {
		select {
		case <-old.done:
		default:
			ts.Fatalf("process %s is still running", args[0])
		}
	}
	log, err := os.OpenFile(ts.MkAbs(args[0]+".log"), os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	ts.Check(err)
	p := &process{cmd: exec.Command(lookPath(ts, args[1]), args[2:]...), done: make(chan struct{}), log: log}
	p.cmd.Dir = ts.MkAbs(".")
	p.cmd.Env = environ(ts)
	p.cmd.Stdout = log
	if piped {
		p.cmd.Stdout = struct{ io.Writer }{log} // no file to os/exec
	}
	p.cmd.Stderr = p.cmd.Stdout
	ts.Check(p.cmd.Start())
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	all.byName[args[0]] = p
	ts.Defer(func() {
		_ = p.cmd.Process.Kill()
		<-p.done
		_ = log.Close()
	})
}

func executable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && !info.IsDir() && info.Mode()&0o111 != 0
}

// environ is what the script's own commands get of its environment.
func environ(ts *testscript.TestScript) []string {
	var env []string
	for _, name := range []string{"PATH", "HOME", "TMPDIR", "WORK", "MODULES", "GATE", "NO_COLOR", "RUNNER_DATABASE_URL", "GOCOVERDIR"} {
		env = append(env, name+"="+ts.Getenv(name))
	}
	return env
}

func named(ts *testscript.TestScript, args []string, n int, use string) *process {
	if len(args) != n {
		ts.Fatalf("usage: %s", use)
	}
	p := ts.Value(processesKey{}).(*processes).byName[args[0]]
	if p == nil {
		ts.Fatalf("no process %s was started", args[0])
	}
	return p
}

func cmdAwait(ts *testscript.TestScript, _ bool, args []string) {
	p := named(ts, args, 2, "await NAME REGEXP")
	re, err := regexp.Compile(args[1])
	ts.Check(err)
	found, err := p.await(re)
	ts.Check(err)
	if !found {
		ts.Fatalf("%s ended without printing %q; it printed:\n%s", args[0], args[1], p.said())
	}
}

func cmdSignal(ts *testscript.TestScript, _ bool, args []string) {
	p := named(ts, args, 2, "signal NAME TERM|INT|HUP|KILL|STOP|CONT")
	sig, ok := map[string]syscall.Signal{"TERM": syscall.SIGTERM, "INT": syscall.SIGINT, "HUP": syscall.SIGHUP, "KILL": syscall.SIGKILL, "STOP": syscall.SIGSTOP, "CONT": syscall.SIGCONT}[args[1]]
	if !ok {
		ts.Fatalf("unknown signal %s", args[1])
	}
	ts.Check(p.cmd.Process.Signal(sig))
}

func cmdEnded(ts *testscript.TestScript, _ bool, args []string) {
	p := named(ts, args, 2, "ended NAME CODE|killed")
	<-p.done
	got := "0"
	var exit *exec.ExitError
	if errors.As(p.err, &exit) {
		got = strconv.Itoa(exit.ExitCode())
		if exit.ExitCode() < 0 {
			got = "killed"
		}
	}
	if got != args[1] {
		ts.Fatalf("%s ended with %s (%v), want %s; it printed:\n%s", args[0], got, p.err, args[1], p.said())
	}
}

func cmdCapture(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) != 3 {
		ts.Fatalf("usage: capture VAR REGEXP FILE")
	}
	m := pattern(ts, args[1]).FindStringSubmatch(ts.ReadFile(args[2]))
	if len(m) < 2 {
		ts.Fatalf("%s has no match with a group for %q:\n%s", args[2], args[1], ts.ReadFile(args[2]))
	}
	ts.Setenv(args[0], m[1])
}

func cmdCount(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: count N REGEXP FILE")
	}
	re, err := regexp.Compile(args[1])
	ts.Check(err)
	got := 0
	for line := range strings.SplitSeq(ts.ReadFile(args[2]), "\n") {
		if re.MatchString(line) {
			got++
		}
	}
	if strconv.Itoa(got) != args[0] {
		ts.Fatalf("%s has %d lines that match %q, want %s:\n%s", args[2], got, args[1], args[0], ts.ReadFile(args[2]))
	}
}

func cmdExpand(ts *testscript.TestScript, neg bool, args []string) {
	for _, name := range args {
		file := ts.MkAbs(name)
		text, err := os.ReadFile(file)
		ts.Check(err)
		ts.Check(os.WriteFile(file, []byte(os.Expand(string(text), ts.Getenv)), 0o600))
	}
}

func cmdEach(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 3 {
		ts.Fatalf("usage: each FILE REGEXP CMD ARG…")
	}
	re, err := regexp.Compile(args[1])
	ts.Check(err)
	matches := re.FindAllStringSubmatch(ts.ReadFile(args[0]), -1)
	if len(matches) == 0 {
		ts.Fatalf("%s has no match for %q", args[0], args[1])
	}
	all := slices.Clone(args[3:])
	for _, m := range matches {
		all = append(all, m[1])
	}
	ts.Check(ts.Exec(args[2], all...))
}
