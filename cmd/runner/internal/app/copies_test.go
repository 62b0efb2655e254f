package app

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

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

func TestCopiesThatNobodyUsesExpire(t *testing.T) {
	c := copies{dir: filepath.Join(t.TempDir(), "modules")}
	if n, err := c.expire(time.Now()); n != 0 || err != nil {
		t.Errorf("without a folder: %d, %v", n, err)
	}
	old := time.Now().Add(-48 * time.Hour)
	before := time.Now().Add(-24 * time.Hour)
	digests := map[string]string{}
	for _, text := range []string{"unused", "put again", "asked for", "used", "new"} {
		digest, err := c.put([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		digests[text] = digest
		if text != "new" {
			c.use(digest, old)
		}
	}
	if _, err := c.put([]byte("put again")); err != nil {
		t.Fatal(err)
	}
	if _, err := c.get(digests["asked for"]); err != nil {
		t.Fatal(err)
	}
	c.use(digests["used"], time.Now())
	for _, name := range []string{"left.123.tmp", "somebody's.txt", "young.tmp"} {
		write(t, filepath.Join(c.dir, name), "")
	}
	for _, name := range []string{"left.123.tmp", "somebody's.txt"} {
		if err := os.Chtimes(filepath.Join(c.dir, name), old, old); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := c.expire(before); n != 1 || err != nil {
		t.Errorf("%d copies expired, %v; want one", n, err)
	}
	var want []string
	for _, text := range []string{"put again", "asked for", "used", "new"} {
		want = append(want, digests[text]+".wasm")
	}
	want = append(want, "somebody's.txt", "young.tmp")
	slices.Sort(want)
	var got []string
	entries, err := os.ReadDir(c.dir)
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("left are %q, %v; want %q", got, err, want)
	}
}

func TestACopyThatIsUsedWhileItIsRemovedStays(t *testing.T) {
	c := copies{dir: t.TempDir()}
	digest, err := c.put([]byte("one"))
	if err != nil {
		t.Fatal(err)
	}
	// It was old when it was looked at, and has been used since.
	if gone, err := c.remove(digest, time.Now().Add(-time.Hour)); gone || err != nil {
		t.Errorf("%v, %v", gone, err)
	}
	if _, err := c.get(digest); err != nil {
		t.Error(err)
	}
	c.use(digest, time.Now().Add(-2*time.Hour))
	for i, want := range []bool{true, false} { // the second comes after another process
		if gone, err := c.remove(digest, time.Now().Add(-time.Hour)); gone != want || err != nil {
			t.Errorf("removal %d: %v, %v", i, gone, err)
		}
	}
}
