package cli_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

const repository = "github.com/jobrunner/runner"

// buildModules builds the handlers that scripts run into dir: the script's own
// in two versions, and the examples.
func buildModules(dir string) error {
	type build struct{ out, pkg, ldflags string }
	for _, b := range []build{
		{"gate-v1.wasm", "/cmd/runner/internal/cli/testdata/gateguest", "-s -w"},
		{"gate-v2.wasm", "/cmd/runner/internal/cli/testdata/gateguest", "-s -w -X main.version=v2"},
		{"onboard.wasm", "/examples/onboard", "-s -w"},
		{"approval.wasm", "/examples/approval", "-s -w"},
	} {
		cmd := exec.Command("go", "build", "-buildvcs=false", "-buildmode=c-shared", "-trimpath", "-ldflags="+b.ldflags, "-o", filepath.Join(dir, b.out), repository+b.pkg)
		cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0", "GOFLAGS=")
		if text, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("build %s: %w\n%s", b.out, err, text)
		}
	}
	cmd := exec.Command("go", "run", "-buildvcs=false", repository+"/examples/noop", "-o", filepath.Join(dir, "noop.wasm"))
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build noop.wasm: %w\n%s", err, text)
	}
	return nil
}
