package chaostest

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

const repository = "github.com/jobrunner/runner"

// build builds the runner and the handler into dir. With skewed, the runner's
// clock is RUNNER_TEST_SKEW seconds off. A plant is a bug that it has; "" is none.
func build(t *testing.T, dir string, skewed bool, plant string) {
	t.Helper()
	args := []string{"build", "-trimpath", "-o", filepath.Join(dir, "runner")}
	replaced := map[string]string{}
	if skewed {
		skewedClock(t, dir, replaced)
	}
	if plant != "" {
		planted(t, dir, plant, replaced)
	}
	if len(replaced) > 0 {
		overlay, err := json.Marshal(map[string]any{"Replace": replaced})
		if err != nil {
			t.Fatal(err)
		}
		list := filepath.Join(dir, "overlay.json")
		if err := os.WriteFile(list, overlay, 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, "-overlay", list)
	}
	goBuild(t, []string{"CGO_ENABLED=0"}, append(args, repository+"/cmd/runner")...)
	goBuild(t, []string{"CGO_ENABLED=0", "GOOS=wasip1", "GOARCH=wasm"}, "build", "-buildmode=c-shared", "-trimpath", "-ldflags=-s -w",
		"-o", filepath.Join(dir, "guest.wasm"), repository+"/cmd/runner/internal/chaostest/testdata/guest")
}

func goBuild(t *testing.T, env []string, args ...string) {
	t.Helper()
	cmd := exec.Command("go", slices.Insert(args, 1, "-buildvcs=false")...)
	cmd.Env = append(os.Environ(), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// skewedClock adds a package time whose Now is off by what the environment says.
// The clock that durations are measured with stays right, as it does on a machine
// whose date is wrong.
func skewedClock(t *testing.T, dir string, replaced map[string]string) {
	t.Helper()
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(strings.TrimSpace(string(root)), "src", "time", "time.go")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	const from = "\tsec, nsec, mono := runtimeNow()\n"
	skewed := strings.Replace(string(text), from, from+"\tsec += skew\n", 1)
	if skewed == string(text) {
		t.Fatalf("time.Now of %s looks other than expected, so no clock can be skewed", file)
	}
	skewed += `
var skew = func() (sec int64) {
	text, _ := syscall.Getenv("RUNNER_TEST_SKEW")
	negative := len(text) > 0 && text[0] == '-'
	for _, c := range []byte(text) {
		if c >= '0' && c <= '9' {
			sec = 10*sec + int64(c-'0')
		}
	}
	if negative {
		return -sec
	}
	return sec
}()
`
	skewed = strings.Replace(skewed, "import (\n", "import (\n\t\"syscall\"\n", 1)
	replaced[file] = filepath.Join(dir, "time.go")
	if err := os.WriteFile(replaced[file], []byte(skewed), 0o600); err != nil {
		t.Fatal(err)
	}
}

// writeManifest writes the manifest of one process, and returns its path. The
// process is told apart by the address that it has of the effects server.
func writeManifest(t *testing.T, dir, name, effects string) string {
	t.Helper()
	file := filepath.Join(dir, name+".toml")
	text := fmt.Sprintf(`[runner]
lease = %q
drain = "2s"
[queues.default]
workers = %d
[modules.guest]
path = "guest.wasm"
[modules.guest.allow]
http = ["%s/*"]
env = { EFFECTS = "%s/%s" }
`, lease, slots, effects, effects, name)
	for name, timeout := range map[string]time.Duration{"effects": 10 * time.Minute, "timed": tight} {
		text += fmt.Sprintf(`
[jobs.%s]
module = "guest"
handler = "effects"
tenant = "{tenant}"
key = "{run.id}"
timeout = %q
retry = { attempts = 1000, delay = "50ms", max_delay = "500ms" }
retention = "30d"
`, name, timeout)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
