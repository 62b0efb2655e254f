package app

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/job"
)

func TestCopiesAnswerWhatWasPut(t *testing.T) {
	c := copies{dir: filepath.Join(t.TempDir(), "a", "modules")}
	digest, err := c.put([]byte("\x00asm"))
	if err != nil {
		t.Fatal(err)
	}
	again, err := c.put([]byte("\x00asm"))
	if err != nil || again != digest {
		t.Fatalf("put twice: %q, %v; want %q", again, err, digest)
	}
	got, err := c.get(digest)
	if err != nil || string(got) != "\x00asm" {
		t.Fatalf("get: %q, %v", got, err)
	}
	entries, err := os.ReadDir(c.dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("the folder holds %v, %v; want the copy alone", entries, err)
	}
}

func TestCopiesRefuseAMissingOrChangedModule(t *testing.T) {
	c := copies{dir: t.TempDir()}
	digest, err := c.put([]byte("one"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(c.path(digest), []byte("two"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{digest, digestOf([]byte("never put")), "../../etc/passwd", ""} {
		if _, err := c.get(d); abi.CodeOf(err) != job.CodeModuleMissing {
			t.Errorf("get(%q): %v, want %s", d, err, job.CodeModuleMissing)
		}
	}
	if _, err := c.put([]byte("one")); err != nil {
		t.Fatal(err)
	}
	if got, err := c.get(digest); err != nil || string(got) != "one" {
		t.Errorf("a changed copy is not replaced by a new put: %q, %v", got, err)
	}
}
