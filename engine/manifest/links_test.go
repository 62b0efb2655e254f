package manifest

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestUnreadableFiles(t *testing.T) {
	dir := t.TempDir()
	big := filepath.Join(dir, "big.toml")
	if err := os.WriteFile(big, bytes.Repeat([]byte("# filler\n"), maxBytes/9+1), 0o644); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		filepath.Join(dir, "none.toml"):         "the manifest does not exist",
		filepath.Join(dir, "none", "jobs.toml"): "the manifest does not exist",
		filepath.Join(big, "jobs.toml"):         "the manifest cannot be read: not a directory",
		dir:                                     "the manifest is a folder",
		big:                                     "the manifest is bigger than 1MiB",
		filepath.Join(dir, "\x00"):              "the manifest cannot be read: invalid argument",
		"/dev/null":                             "the manifest is not a regular file",
	} {
		_, report := Load(path)
		if report == nil || len(report.Problems) != 1 || report.Problems[0].Code != CodeFile || report.Problems[0].Message != want {
			t.Errorf("%q: %v, want %q", path, report, want)
		}
	}
	if _, report := Load(big); report.Problems[0].Fix != tooBigFix {
		t.Errorf("what to do about a big file: %s", report.Problems[0].Fix)
	}
	if _, report := Parse("jobs.toml", bytes.Repeat([]byte("#\n"), maxBytes)); report == nil || report.Problems[0].Message != "the manifest is bigger than 1MiB" {
		t.Errorf("%v", report)
	}
}

func TestLinksOutOfTheFolderAreRefused(t *testing.T) {
	outside, dir := t.TempDir(), t.TempDir()
	write := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	link := func(to, at string) {
		t.Helper()
		if err := os.Symlink(to, at); err != nil {
			t.Fatal(err)
		}
	}
	write(filepath.Join(outside, "m.wasm"), "")
	write(filepath.Join(outside, "s.json"), `{"type":"object","title":"secret"}`)
	write(filepath.Join(dir, "real.wasm"), "")
	link(filepath.Join(outside, "m.wasm"), filepath.Join(dir, "file.wasm"))
	link(outside, filepath.Join(dir, "folder"))
	link(filepath.Join(outside, "s.json"), filepath.Join(dir, "s.json"))
	link("real.wasm", filepath.Join(dir, "inside.wasm"))
	write(filepath.Join(dir, "ref.json"), `{"$ref":"folder/s.json"}`)
	write(filepath.Join(dir, "jobs.toml"), `
[modules.file]
path = "file.wasm"
[modules.folder]
path = "folder/m.wasm"
[modules.inside]
path = "inside.wasm"
[modules.not-built-yet]
path = "bin/none.wasm"
[jobs.a]
module = "inside"
tenant = "none"
key = "a"
input = "s.json"
[jobs.b]
module = "inside"
tenant = "none"
key = "b"
input = "ref.json"
`)
	_, report := Load(filepath.Join(dir, "jobs.toml"))
	if report == nil {
		t.Fatal("accepted")
	}
	var got []string
	for _, p := range report.Problems {
		got = append(got, p.Key+": "+p.Message)
	}
	want := []string{
		`modules.file.path: modules.file.path leads out of the manifest's folder through a link; this is "file.wasm"`,
		`modules.folder.path: modules.folder.path leads out of the manifest's folder through a link; this is "folder/m.wasm"`,
		`jobs.a.input: jobs.a.input leads out of the manifest's folder through a link; this is "s.json"`,
		`jobs.b.input: jobs.b.input is no usable JSON Schema: ref.json: folder/s.json leads out of the manifest's folder`,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	// The manifest itself may be a link: its folder is where the link is.
	link(filepath.Join(dir, "jobs.toml"), filepath.Join(outside, "jobs.toml"))
	if _, report := Load(filepath.Join(outside, "jobs.toml")); report == nil || report.Problems[0].Code == CodeFile {
		t.Errorf("through a link: %v", report)
	}
}
