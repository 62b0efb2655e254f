package cli_test

import (
	"strconv"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"
)

// What only Linux can do to a process that runs.
func TestScriptsOnLinux(t *testing.T) { runScripts(t, "testdata/linux", "sqlite") }

func init() { systemCommands["limit"] = cmdLimit }

// cmdLimit is: limit NAME BYTES|none, the most that a file may grow to which the
// process writes, as on a disk that is full and has space again.
func cmdLimit(ts *testscript.TestScript, neg bool, args []string) {
	p := named(ts, args, 2, "limit NAME BYTES|none")
	most := uint64(unix.RLIM_INFINITY)
	if args[1] != "none" {
		var err error
		most, err = strconv.ParseUint(args[1], 10, 64)
		ts.Check(err)
	}
	ts.Check(unix.Prlimit(p.cmd.Process.Pid, unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: most, Max: unix.RLIM_INFINITY}, nil))
}
