package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// build builds the runner and the modules into bin/ of the repository, as make
// does, and answers that folder. What is up to date is left alone.
func build() (string, error) {
	mod, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("ask go for the module: %w", err)
	}
	root := filepath.Dir(strings.TrimSpace(string(mod)))
	if _, err := os.Stat(filepath.Join(root, "cmd", "runner")); err != nil {
		return "", errors.New("run this inside a checkout of the runner")
	}
	bin := filepath.Join(root, "bin")
	wasm := []string{"GOOS=wasip1", "GOARCH=wasm"}
	for _, b := range []struct {
		env  []string
		args []string
	}{
		{[]string{"CGO_ENABLED=0"}, []string{"-trimpath", "-o", filepath.Join(bin, "runner"), "./cmd/runner"}},
		{wasm, []string{"-buildmode=c-shared", "-ldflags=-s -w", "-trimpath", "-o", filepath.Join(bin, "onboard.wasm"), "./examples/onboard"}},
		{wasm, []string{"-buildmode=c-shared", "-ldflags=-s -w", "-trimpath", "-o", filepath.Join(bin, "invoices.wasm"), "./examples/invoices"}},
	} {
		cmd := exec.Command("go", append([]string{"build"}, b.args...)...)
		cmd.Dir, cmd.Env = root, append(os.Environ(), b.env...)
		if text, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("go build %s: %w\n%s", strings.Join(b.args, " "), err, text)
		}
	}
	return bin, nil
}

// manifest declares the jobs that the demo runs as jobs.toml of the repository does,
// but for three things: a small queue, so that work is left when the server is
// killed, an onboarding that takes seconds instead of days, and a lease that lapses
// while one watches.
const manifest = `[runner]
lease = "5s"

[queues.ledger]
workers = 8

[modules.onboard]
path = "onboard.wasm"
allow.env = { COOL_OFF = "4s", DIGEST_AFTER = "1s" }

[modules.invoices]
path = "invoices.wasm"

[jobs.onboard-org]
module = "onboard"
tenant = "{orgId}"
key = "onboard:{orgId}"

[jobs.send-digest]
module = "onboard"
tenant = "{orgId}"
key = "{run.id}"

[jobs.post-invoice]
module = "invoices"
queue = "ledger"
tenant = "none"
key = "invoice:{id}"
retry = { attempts = 5, backoff = "exponential", delay = "200ms", max_delay = "5s", jitter = true }
`

// prepare puts manifest and modules into dir.
func prepare(bin, dir string) error {
	for _, name := range []string{"onboard.wasm", "invoices.wasm"} {
		b, err := os.ReadFile(filepath.Join(bin, name))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(dir, "jobs.toml"), []byte(manifest), 0o600)
}
