package cli

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/job"
)

func TestInputIsTextFileOrStdin(t *testing.T) {
	file := filepath.Join(t.TempDir(), "in.json")
	if err := os.WriteFile(file, []byte(" {\"a\":1}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	e := &env{Params: Params{Stdin: strings.NewReader("[2]\n")}}
	for arg, want := range map[string]string{`{"x":3}`: `{"x":3}`, "@" + file: `{"a":1}`, "-": "[2]"} {
		got, err := e.readInput(arg)
		if err != nil || string(got) != want {
			t.Errorf("readInput(%s) = %q, %v; want %q", arg, got, err, want)
		}
	}
	if _, err := e.readInput("@" + file + ".missing"); abi.CodeOf(err) != codeFile || exitCode(err) != exitCannot {
		t.Errorf("missing file: %v", err)
	}
	e.Stdin = bytes.NewReader(make([]byte, abi.MaxInput+1))
	if _, err := e.readInput("-"); abi.CodeOf(err) != job.CodeInputInvalid {
		t.Errorf("too large: %v", err)
	}
}

func TestLinesComeInBatchesWithTheirLineNumbers(t *testing.T) {
	many := strings.Repeat("1\n\n2\n\n", linesBatch)
	large := strings.Repeat(strings.Repeat("x", abi.MaxInput)+"\n", 10)
	e := &env{Params: Params{Stdin: strings.NewReader(many + large)}}
	var got []string
	next, err := e.lines("-", func(name string, batch []inputLine) error {
		first, last := batch[0], batch[len(batch)-1]
		got = append(got, fmt.Sprintf("%s: %d from %d (%.1s) to %d (%.1s)", name, len(batch), first.number, first.text, last.number, last.text))
		return nil
	})
	if err != nil || next != 0 {
		t.Fatal(next, err)
	}
	want := []string{"stdin: 1000 from 1 (1) to 1999 (2)", "stdin: 1000 from 2001 (1) to 3999 (2)", "stdin: 8 from 4001 (x) to 4008 (x)", "stdin: 2 from 4009 (x) to 4010 (x)"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// What stops a file of lines stops it at a line, before which all is done.
func TestLinesSayWhereToGoOn(t *testing.T) {
	stop := errors.New("stopped")
	many := strings.Repeat("\n1\n", linesBatch) // the first batch ends with line 2000
	for _, c := range []struct {
		what, text string
		at         int // batch that is not done
		next       int
	}{
		{"the first batch", many + many, 1, 2},
		{"the second", many + many, 2, 2002},
		{"one that is cut short", many + "1\n", 2, 2001},
		{"a line that is too large", many + "1\n" + strings.Repeat("x", abi.MaxInput+3) + "\n", 0, 2001},
		{"a line that is too large, and nothing before it", "1\n" + strings.Repeat("x", abi.MaxInput+3) + "\n", 0, 0},
		{"nothing", many + many, 0, 0},
	} {
		e := &env{Params: Params{Stdin: strings.NewReader(c.text)}}
		n, done := 0, 0
		next, err := e.lines("-", func(_ string, batch []inputLine) error {
			if n++; n == c.at {
				return stop
			}
			done = batch[len(batch)-1].number
			return nil
		})
		if next != c.next || (err == nil) != (c.what == "nothing") || next > 0 && next <= done {
			t.Errorf("%s: go on from line %d, %v, want %d; done are those up to %d", c.what, next, err, c.next, done)
		}
	}
}
