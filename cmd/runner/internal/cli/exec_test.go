package cli_test

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// cmdCode runs a command for its exit code, which says more than that it
// failed. Its output is the script's stdout and stderr.
func cmdCode(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: code N CMD ARG…")
	}
	runForCode(ts, args, nil)
}

// nobody is a user without rights, by convention.
const nobody = 65534

// cmdUnprivileged is cmdCode for a user who is bound by permissions. Root gives
// its rights up for the command.
func cmdUnprivileged(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: unprivileged N CMD ARG…")
	}
	if os.Geteuid() != 0 {
		runForCode(ts, args, nil)
		return
	}
	// Temporary folders are made for their owner alone.
	for _, dir := range []string{ts.Getenv("WORK"), filepath.Dir(lookPath(ts, args[1]))} {
		for dir != filepath.Clean(os.TempDir()) && dir != "/" {
			info, err := os.Stat(dir)
			ts.Check(err)
			ts.Check(os.Chmod(dir, info.Mode()|0o055))
			dir = filepath.Dir(dir)
		}
	}
	runForCode(ts, args, &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}})
}

func runForCode(ts *testscript.TestScript, args []string, attr *syscall.SysProcAttr) {
	var stdout, stderr bytes.Buffer
	cmd := exec.Command(lookPath(ts, args[1]), args[2:]...)
	cmd.Dir, cmd.Env, cmd.SysProcAttr = ts.MkAbs("."), environ(ts), attr
	cmd.Stdout, cmd.Stderr = io.MultiWriter(&stdout, ts.Stdout()), io.MultiWriter(&stderr, ts.Stderr())
	err := cmd.Run()
	got := 0
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		got = exit.ExitCode()
	} else if err != nil {
		ts.Fatalf("%v", err)
	}
	if strconv.Itoa(got) != args[0] {
		ts.Fatalf("%s ended with %d, want %s\n%s%s", strings.Join(args[1:], " "), got, args[0], stdout.String(), stderr.String())
	}
}

func cmdGet(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 || len(args) > 2 {
		ts.Fatalf("usage: get URL [REGEXP]")
	}
	re := pattern(ts, append(args, "")[1])
	for {
		resp, err := http.Get(args[0])
		ts.Check(err)
		body, err := io.ReadAll(resp.Body)
		ts.Check(errors.Join(err, resp.Body.Close()))
		if re.Match(body) {
			_, err = ts.Stdout().Write(body)
			ts.Check(err)
			return
		}
		time.Sleep(pollEvery)
	}
}

// cmdRepeat is for what a busy machine may have answer late: a completion that
// gives up after half a second, a metric that follows what it counts.
func cmdRepeat(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: repeat REGEXP CMD ARG…")
	}
	re := pattern(ts, args[0])
	for {
		cmd := exec.Command(lookPath(ts, args[1]), args[2:]...)
		cmd.Dir, cmd.Env = ts.MkAbs("."), environ(ts)
		if out, err := cmd.Output(); err == nil && re.Match(out) {
			_, err = ts.Stdout().Write(out)
			ts.Check(err)
			return
		}
		time.Sleep(pollEvery)
	}
}

// pattern is a regular expression whose ^ and $ are those of lines.
func pattern(ts *testscript.TestScript, text string) *regexp.Regexp {
	re, err := regexp.Compile("(?m)" + text)
	ts.Check(err)
	return re
}

// lookPath is the program of that name in the script's PATH.
func lookPath(ts *testscript.TestScript, name string) string {
	for _, dir := range filepath.SplitList(ts.Getenv("PATH")) {
		if full := filepath.Join(dir, name); !strings.Contains(name, "/") && executable(full) {
			return full
		}
	}
	return name
}
