//go:build unix

package module_test

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/abi/wasmasm"
	"github.com/jobrunner/runner/host/module"
)

func openCache(tb testing.TB, dir string) *module.Cache {
	tb.Helper()
	c, err := module.OpenCache(dir)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { c.Close(context.Background()) })
	return c
}

// entries are the files in a cache, with their contents.
func entries(tb testing.TB, c *module.Cache) map[string]string {
	tb.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(c.Dir(), func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && d.Name() == module.SumsDir {
			return fs.SkipDir
		}
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		found[path] = string(b)
		return err
	})
	if err != nil {
		tb.Fatal(err)
	}
	return found
}

func load(tb testing.TB, c *module.Cache, raw []byte) (*module.Module, error) {
	tb.Helper()
	return module.Load(context.Background(), module.Params{Bytes: raw, Runtime: newRuntime(tb, c), Cache: c})
}

func TestCacheKeepsOneEntryForAModule(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "deep", "cache")
	raw := build(t, handler(nil))
	for range 3 { // as three starts of the runner
		c := openCache(t, dir)
		if _, err := load(t, c, raw); err != nil {
			t.Fatal(err)
		}
		if n := len(entries(t, c)); n != 1 {
			t.Errorf("%d entries", n)
		}
	}
	if st, err := os.Stat(dir); err != nil || st.Mode().Perm() != 0o700 {
		t.Errorf("the directory has mode %v, %v", st.Mode(), err)
	}
}

func TestADamagedEntryIsMadeAgain(t *testing.T) {
	raw := build(t, handler(nil))
	for name, damage := range map[string]func(string) string{
		"cut short":      func(s string) string { return s[:len(s)/2] },
		"empty":          func(string) string { return "" },
		"one bit":        func(s string) string { return s[:len(s)-40] + string(s[len(s)-40]^1) + s[len(s)-39:] },
		"something else": func(string) string { return "hello" },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			first := openCache(t, dir)
			if _, err := load(t, first, raw); err != nil {
				t.Fatal(err)
			}
			good := entries(t, first)
			for path, content := range good {
				if err := os.WriteFile(path, []byte(damage(content)), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			second := openCache(t, dir)
			if _, err := load(t, second, raw); err != nil {
				t.Fatal(err)
			}
			for path, content := range entries(t, second) {
				if len(content) != len(good[path]) {
					t.Errorf("entry of %d bytes, was %d", len(content), len(good[path]))
				}
			}
		})
	}
}

// Whatever byte of whatever file of the cache is damaged, the code that is loaded
// is the module's: wazero's own checksum leaves its table of functions out.
func TestDamageAnywhereInTheCacheIsNotRun(t *testing.T) {
	raw := build(t, handler(nil))
	dir := t.TempDir()
	first := openCache(t, dir)
	if _, err := load(t, first, raw); err != nil {
		t.Fatal(err)
	}
	good := entries(t, first)
	sums, err := filepath.Glob(filepath.Join(first.Dir(), module.SumsDir, "*"))
	if err != nil || len(good) != 1 || len(sums) != 1 {
		t.Fatalf("%d entries, sums %v, %v", len(good), sums, err)
	}
	for path := range good {
		sums = append(sums, path)
	}
	for _, path := range sums {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		// Each of the first bytes, where the tables are, and some of the others.
		for at := 0; at < len(content); at += 1 + at/200*13 {
			damaged := []byte(string(content))
			damaged[at] ^= 1 << (at % 8)
			if err := os.WriteFile(path, damaged, 0o600); err != nil {
				t.Fatal(err)
			}
			c := openCache(t, dir)
			if _, err := load(t, c, raw); err != nil {
				t.Fatalf("byte %d of %s: %v", at, filepath.Base(path), err)
			}
			if left := entries(t, c); !maps.Equal(left, good) {
				t.Fatalf("byte %d of %s is damaged, and the entry is not made again", at, filepath.Base(path))
			}
		}
	}
}

// Two modules that are compiled at the same time find their entries again.
func TestEntriesMadeSideBySideAreFoundAgain(t *testing.T) {
	dir := t.TempDir()
	raws := [][]byte{build(t, handler(nil)), build(t, handler(func(m *wasmasm.Module) { m.GlobalI32(true, 7) }))}
	c := openCache(t, dir)
	rt := newRuntime(t, c)
	var wg sync.WaitGroup
	for _, raw := range raws {
		wg.Go(func() {
			if _, err := module.Load(context.Background(), module.Params{Bytes: raw, Runtime: rt, Cache: c}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	made := map[string]fs.FileInfo{}
	for path := range entries(t, c) {
		st, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		made[path] = st
	}
	if len(made) != 2 {
		t.Fatalf("%d entries", len(made))
	}
	again := openCache(t, dir)
	for _, raw := range raws {
		if _, err := load(t, again, raw); err != nil {
			t.Fatal(err)
		}
	}
	for path, was := range made {
		if now, err := os.Stat(path); err != nil || !os.SameFile(was, now) {
			t.Errorf("%s was made again: %v", filepath.Base(path), err)
		}
	}
}

func TestAnInvalidModuleDoesNotEmptyTheCache(t *testing.T) {
	c := openCache(t, t.TempDir())
	if _, err := load(t, c, build(t, handler(nil))); err != nil {
		t.Fatal(err)
	}
	invalid := build(t, handler(func(m *wasmasm.Module) { m.RawSection(10, []byte{2, 4, 0, 0x41, 0, 0x0b, 4, 0, 0x42, 0, 0x0b}) }))
	if _, err := load(t, c, invalid); abi.CodeOf(err) != module.CodeInvalid {
		t.Errorf("got %v", err)
	}
	if n := len(entries(t, c)); n != 1 {
		t.Errorf("%d entries", n)
	}
}

func TestOpenCacheRefusesADirectoryThatOthersCouldWriteTo(t *testing.T) {
	for _, tt := range []struct {
		name, want string
		prepare    func(t *testing.T, dir string) string
	}{
		{"world-writable", "may be written by others (mode 0777)", func(t *testing.T, dir string) string { return dir + chmod(t, dir, 0o777) }},
		{"group-writable", "may be written by others (mode 0770)", func(t *testing.T, dir string) string { return dir + chmod(t, dir, 0o770) }},
		{"a symbolic link", "is a symbolic link", func(t *testing.T, dir string) string {
			link := dir + "-link"
			if err := os.Symlink(dir, link); err != nil {
				t.Fatal(err)
			}
			return link
		}},
		{"a file", "is not a directory", func(t *testing.T, dir string) string {
			file := filepath.Join(dir, "file")
			if err := os.WriteFile(file, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			return file
		}},
		{"someone else's", "belongs to another user", func(t *testing.T, dir string) string {
			t.Cleanup(module.PretendUser(os.Geteuid() + 1))
			return dir
		}},
		{"a directory inside", "may be written by others", func(t *testing.T, dir string) string {
			c := openCache(t, dir)
			return dir + chmod(t, c.Dir(), 0o707)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "cache")
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			_, err := module.OpenCache(tt.prepare(t, dir))
			if abi.CodeOf(err) != module.CodeCache || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "cache") {
				t.Errorf("got %v", err)
			}
		})
	}
}

// chmod answers "", to stand in an expression.
func chmod(t *testing.T, dir string, mode fs.FileMode) string {
	t.Helper()
	if err := os.Chmod(dir, mode); err != nil {
		t.Fatal(err)
	}
	return ""
}

func TestOpenCacheRemovesEntriesThatOthersCouldHaveWritten(t *testing.T) {
	dir := t.TempDir()
	first := openCache(t, dir)
	if _, err := load(t, first, build(t, handler(nil))); err != nil {
		t.Fatal(err)
	}
	for path := range entries(t, first) {
		if err := os.Chmod(path, 0o666); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("/etc/passwd", path+"0"); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(entries(t, openCache(t, dir))); n != 0 {
		t.Errorf("%d entries are left", n)
	}
}

// A cache that cannot be written costs time, not the module.
func TestAModuleLoadsThoughItsEntryCannotBeWritten(t *testing.T) {
	c := openCache(t, t.TempDir())
	if err := os.RemoveAll(c.Dir()); err != nil { // no file can be made in it
		t.Fatal(err)
	}
	m, err := load(t, c, build(t, handler(nil)))
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := m.Compiled().ExportedFunctions()[abi.ExportRun]; !ok {
		t.Error("what was loaded is not the module")
	}
}

func TestCacheForgetsWhatNobodyUsed(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cache")
	c := openCache(t, dir)
	for _, raw := range [][]byte{build(t, handler(nil)), build(t, handler(func(m *wasmasm.Module) { m.GlobalI32(true, 7) }))} {
		if _, err := load(t, c, raw); err != nil {
			t.Fatal(err)
		}
	}
	var paths []string
	for path := range entries(t, c) {
		paths = append(paths, path)
	}
	if len(paths) != 2 {
		t.Fatalf("%d entries", len(paths))
	}
	old := time.Now().Add(-48 * time.Hour)
	before := time.Now().Add(-24 * time.Hour)
	age := func(path string) {
		t.Helper()
		if err := os.Chtimes(path, old, old); err != nil {
			t.Fatal(err)
		}
	}
	age(paths[0])
	// Of another build, and of somebody else.
	for _, name := range []string{"wazero-v0.0.1-go1.1-linux-amd64/inner/entry", "else/inner/entry"} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		age(path)
	}
	if n, err := c.Expire(before); n != 2 || err != nil {
		t.Errorf("%d entries removed, %v; want 2", n, err)
	}
	if left := entries(t, c); len(left) != 1 || left[paths[0]] != "" {
		t.Errorf("left are %d entries, the unused one among them or not: %v", len(left), left[paths[0]] != "")
	}
	if _, err := os.Stat(filepath.Join(dir, "wazero-v0.0.1-go1.1-linux-amd64")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the folder of another build is still there: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "else/inner/entry")); err != nil {
		t.Errorf("another's file was removed: %v", err)
	}
	if _, err := load(t, openCache(t, dir), build(t, handler(nil))); err != nil {
		t.Error(err)
	}
}
