package guesttest_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestTheGuidesHandlersWork does what a page tells a reader to do, in a module of
// their own: its files, its tests, its build.
func TestTheGuidesHandlersWork(t *testing.T) {
	for _, page := range []string{"writing-a-handler.md", "events.md"} {
		t.Run(page, func(t *testing.T) { theGuidesHandlerWorks(t, page) })
	}
}

func theGuidesHandlerWorks(t *testing.T, page string) {
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	guide, err := os.ReadFile(filepath.Join(root, "docs", page))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	files := map[string]string{
		"go.mod": "module example.com/hello\n\ngo 1.26\n\nrequire github.com/jobrunner/runner v0.0.0\n\nreplace github.com/jobrunner/runner => " + root + "\n",
	}
	// A block of code belongs to the file that the line before it names.
	for _, name := range []string{"main.go", "main_test.go"} {
		_, rest, ok := strings.Cut(string(guide), "\n`"+name+"`:\n\n```go\n")
		code, _, closed := strings.Cut(rest, "\n```")
		if !ok || !closed {
			t.Fatalf("the guide has no %s", name)
		}
		files[name] = code + "\n"
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		env  []string
		args []string
	}{
		{nil, []string{"vet", "."}},
		{nil, []string{"test", "."}},
		{[]string{"GOOS=wasip1", "GOARCH=wasm"}, []string{"build", "-buildmode=c-shared", "-ldflags=-s -w", "-o", "hello.wasm", "."}},
	} {
		cmd := exec.Command("go", c.args...)
		cmd.Dir = dir
		// The network is not needed: the SDK has no dependencies.
		cmd.Env = append(os.Environ(), append(c.env, "GOFLAGS=-mod=mod", "GOPROXY=off", "GOWORK=off")...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("go %s: %v\n%s", strings.Join(c.args, " "), err, out)
		}
	}
}
