package cli

import (
	"bytes"
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
	e := &env{Params: Params{Stdin: strings.NewReader("1\n\n2\n3\n\n\n4")}}
	var got []string
	err := e.lines("-", 2, func(first int, batch [][]byte) error {
		got = append(got, string(rune('0'+first))+":"+string(bytes.Join(batch, []byte(","))))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"1:1,2", "4:3,4"}, got); diff != "" {
		t.Error(diff)
	}
}
