package module

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/tetratelabs/wazero"

	"github.com/jobrunner/runner/abi"
)

// Cache keeps machine code on disk, so that a module that was compiled once
// loads in milliseconds: a Go module of 3 MB in 0.05 s instead of 1 to 3.
//
// An entry is keyed by the SHA-256 of the rewritten module, the processor and
// wazero's version, and written aside and renamed. The rewritten module itself
// is not kept: making it takes less time than reading and checking it would.
// An entry that is not as it was written is not loaded, but made again.
//
// What is in the directory is executable code, and whoever can write to it can
// run code in this process. So the directory must belong to this process's user
// and be writable by nobody else; OpenCache refuses any other.
type Cache struct {
	dir         string // of this build
	compilation wazero.CompilationCache
}

// OpenCache opens the cache in dir and makes dir, with mode 0700, if it is not
// there. Its error is an *abi.Error with CodeCache.
func OpenCache(dir string) (*Cache, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, uncached(dir, err)
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return nil, uncached(dir, err)
	}
	c := &Cache{dir: filepath.Join(dir, build())}
	for _, d := range []string{dir, c.dir} {
		if err := os.Mkdir(d, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, uncached(d, err)
		}
		if err := private(d); err != nil {
			return nil, err
		}
	}
	if c.compilation, err = wazero.NewCompilationCacheWithDir(c.dir); err != nil {
		return nil, uncached(dir, err)
	}
	if err := c.sweep(); err != nil {
		return nil, errors.Join(err, c.compilation.Close(context.Background()))
	}
	c.forget()
	return c, nil
}

// Compilation is for wazero.RuntimeConfig.WithCompilationCache. Every runtime
// that is to load from the cache needs it.
func (c *Cache) Compilation() wazero.CompilationCache { return c.compilation }

// Close frees what the cache keeps in memory. Runtimes that use it are closed first.
func (c *Cache) Close(ctx context.Context) error { return c.compilation.Close(ctx) }

// buildPrefix begins the name of every build's subdirectory.
const buildPrefix = "wazero-"

// build names the subdirectory: code from another version is never looked at.
func build() string {
	version := "unknown"
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, d := range info.Deps {
			if d.Path == "github.com/tetratelabs/wazero" {
				if version = d.Version; d.Replace != nil {
					version = "replaced-" + d.Replace.Version
				}
			}
		}
	}
	clean := strings.Map(func(r rune) rune {
		if r == '/' || r == '\\' || r == ' ' {
			return '_'
		}
		return r
	}, version+"-"+runtime.Version())
	return buildPrefix + clean + "-" + runtime.GOOS + "-" + runtime.GOARCH
}

// private refuses a directory that somebody else could write to.
func private(dir string) error {
	st, err := os.Lstat(dir)
	if err != nil {
		return uncached(dir, err)
	}
	switch mode := st.Mode(); {
	case mode&fs.ModeSymlink != 0:
		return unsafeDir(dir, "is a symbolic link", "name the directory itself")
	case !mode.IsDir():
		return unsafeDir(dir, "is not a directory", "remove it, or name another")
	case !owned(st):
		return unsafeDir(dir, "belongs to another user", "run: chown -R \"$(id -un)\" "+dir)
	case mode.Perm()&0o022 != 0:
		return unsafeDir(dir, fmt.Sprintf("may be written by others (mode %#o)", mode.Perm()), "run: chmod -R go-rwx "+dir)
	}
	return nil
}

// sweep removes entries that this process's user did not make, or that others
// could have changed. It looks into the one directory that wazero makes.
func (c *Cache) sweep() error {
	return c.each(func(path string, st fs.FileInfo) error {
		if st.Mode().IsRegular() && owned(st) && st.Mode().Perm()&0o022 == 0 {
			return nil
		}
		return os.RemoveAll(path)
	})
}

// empty removes all entries. Other processes that use them keep them open.
func (c *Cache) empty() {
	_ = c.each(func(path string, _ fs.FileInfo) error { return os.Remove(path) }) // what stays is found broken again
}

// Expire removes the entries that were not used since before, those of other
// builds included, and answers how many. A process that uses one meanwhile has
// read it, and one that comes later compiles the module again.
func (c *Cache) Expire(before time.Time) (removed int, err error) {
	root := filepath.Dir(c.dir)
	builds, err := os.ReadDir(root)
	if err != nil {
		return 0, uncached(root, err)
	}
	for _, b := range builds {
		dir := filepath.Join(root, b.Name())
		if !strings.HasPrefix(b.Name(), buildPrefix) || private(dir) != nil {
			continue // not a cache's, or not this user's to tidy
		}
		other := &Cache{dir: dir}
		err = errors.Join(err, other.each(func(path string, st fs.FileInfo) error {
			if !st.Mode().IsRegular() || !lastUsed(st).Before(before) {
				return nil
			}
			if !isSum(path) {
				removed++
			}
			return os.Remove(path)
		}))
		if dir != c.dir {
			other.removeEmpty()
		}
	}
	return removed, err
}

// removeEmpty removes the folders of a cache that has no entries.
func (c *Cache) removeEmpty() {
	dirs, _ := os.ReadDir(c.dir)
	for _, d := range dirs {
		_ = os.Remove(filepath.Join(c.dir, d.Name())) // fails while something is in it
	}
	_ = os.Remove(c.dir)
}

// each calls do for every entry.
func (c *Cache) each(do func(path string, st fs.FileInfo) error) error {
	dirs, err := os.ReadDir(c.dir)
	if err != nil {
		return uncached(c.dir, err)
	}
	for _, d := range dirs {
		dir := filepath.Join(c.dir, d.Name())
		if err := private(dir); err != nil {
			return err
		}
		entries, err := os.ReadDir(dir)
		if err != nil {
			return uncached(dir, err)
		}
		for _, e := range entries {
			st, err := e.Info()
			if errors.Is(err, fs.ErrNotExist) {
				continue // another process's temporary file
			}
			if err == nil {
				err = do(filepath.Join(dir, e.Name()), st)
			}
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return uncached(dir, err)
			}
		}
	}
	return nil
}

func unsafeDir(dir, what, fix string) error {
	return &abi.Error{Code: CodeCache, Message: fmt.Sprintf("the cache of compiled modules %s %s; it holds code that this process runs", dir, what), Fix: fix}
}

func uncached(dir string, err error) error {
	return &abi.Error{Code: CodeCache, Message: fmt.Sprintf("cannot use the cache of compiled modules %s: %v", dir, err), Fix: "name a directory that can be written", Err: err}
}
