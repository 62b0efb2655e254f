package cli

import (
	"bytes"
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
	err := e.lines("-", func(name string, batch []inputLine) error {
		first, last := batch[0], batch[len(batch)-1]
		got = append(got, fmt.Sprintf("%s: %d from %d (%.1s) to %d (%.1s)", name, len(batch), first.number, first.text, last.number, last.text))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"stdin: 1000 from 1 (1) to 1999 (2)", "stdin: 1000 from 2001 (1) to 3999 (2)", "stdin: 8 from 4001 (x) to 4008 (x)", "stdin: 2 from 4009 (x) to 4010 (x)"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
