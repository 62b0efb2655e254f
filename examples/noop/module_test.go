package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/abi/wire"
)

func TestModuleIsSmallAndAlwaysTheSame(t *testing.T) {
	file := filepath.Join(t.TempDir(), "noop.wasm")
	if err := write(file); err != nil {
		t.Fatal(err)
	}
	written, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	again, err := Module()
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(written, again) {
		t.Error("two builds differ, so deployments would")
	}
	if len(written) > 512 {
		t.Errorf("%d bytes", len(written))
	}
}

func TestModuleDescribesItself(t *testing.T) {
	module, err := Module()
	if err != nil {
		t.Fatal(err)
	}
	from := bytes.Index(module, []byte(`{"abi"`))
	to := bytes.LastIndex(module, []byte("null"))
	if from < 0 || to < from {
		t.Fatalf("no data segment with a description and a result in %q", module)
	}
	d, err := wire.DecodeDescription(module[from:to])
	if err != nil || d.ABI != abi.Version || d.Handlers[0].Name != Handler {
		t.Errorf("%+v, %v", d, err)
	}
}
