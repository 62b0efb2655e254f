package abitest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// BuildGo compiles a package main, named by import path or by folder, to a
// handler module and returns its bytes. The compiler's cache makes it quick
// from the second time on. It fails the test if the package does not compile.
func BuildGo(tb testing.TB, pkg string) []byte {
	tb.Helper()
	file := filepath.Join(tb.TempDir(), "guest.wasm")
	cmd := exec.Command("go", "build", "-buildvcs=false", "-buildmode=c-shared", "-ldflags=-s -w", "-trimpath", "-o", file, pkg)
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0", "GOFLAGS="+flagsWithoutRace(os.Getenv("GOFLAGS")))
	if out, err := cmd.CombinedOutput(); err != nil {
		tb.Fatalf("%s: %v\n%s", strings.Join(cmd.Args, " "), err, out)
	}
	wasm, err := os.ReadFile(file)
	if err != nil {
		tb.Fatal(err)
	}
	return wasm
}

// flagsWithoutRace drops what the caller's own build may ask for and Wasm does
// not have.
func flagsWithoutRace(flags string) string {
	var kept []string
	for f := range strings.FieldsSeq(flags) {
		if f != "-race" && f != "-msan" && f != "-asan" && !strings.HasPrefix(f, "-cover") {
			kept = append(kept, f)
		}
	}
	return strings.Join(kept, " ")
}
