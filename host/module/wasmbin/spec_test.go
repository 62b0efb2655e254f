package wasmbin_test

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jobrunner/runner/host/module/wasmbin"
)

// The modules of WebAssembly's own test suite come with wazero's source. Each
// is held to the same as in the fuzz tests; those without a memory get one,
// because otherwise they would be rejected for that alone.
func TestModulesOfTheSpecification(t *testing.T) {
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/tetratelabs/wazero").Output()
	if err != nil {
		t.Fatalf("where is wazero's source: %v", err)
	}
	root := filepath.Join(strings.TrimSpace(string(dir)), "internal", "integration_test", "spectest")
	accepted, all := 0, 0
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".wasm" {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		all++
		t.Run(strings.TrimPrefix(path, root+string(filepath.Separator)), func(t *testing.T) {
			b := withMemory(t, b)
			checkModule(t, b)
			rep, err := wasmbin.Scan(b)
			switch {
			case err == nil && len(rep.Reject) == 0:
				accepted++
			case err != nil && validate(b) == nil:
				t.Errorf("valid, but Scan says: %v", err)
			}
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if all < 5000 || accepted < 2000 {
		t.Errorf("%d of %d modules were accepted: the suite has lost its use", accepted, all)
	}
}

// withMemory adds a memory if that is all that is missing.
func withMemory(t *testing.T, b []byte) []byte {
	rep, err := wasmbin.Scan(b)
	if err != nil || len(rep.Reject) != 1 || !strings.Contains(rep.Reject[0], "no memory") {
		return b
	}
	parts, at := split(t, b), 0
	for i, p := range parts {
		if p.id > 0 && p.id < 5 {
			at = i + 1
		}
	}
	return join(append(parts[:at:at], append([]part{{5, []byte{1, 0, 1}}}, parts[at:]...)...))
}
