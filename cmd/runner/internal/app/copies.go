package app

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/job"
)

// copies are the modules kept in data_dir/modules, each under the digest of
// its bytes. They are never changed, only added, and removed when nobody has used
// them for long, so any number of processes may share a folder.
//
// When a copy was used last is its file's time. Every process that serves says so
// once a day of what it deploys and of what its runs are pinned to (see tidy), so
// that none needs to know what others have.
type copies struct{ dir string }

var hexDigest = regexp.MustCompile(`^[0-9a-f]{64}$`)

func digestOf(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

func (c copies) path(digest string) string { return filepath.Join(c.dir, digest+".wasm") }

// put keeps wasm and answers its digest. The file is complete and durable under
// its name, or it is not there.
func (c copies) put(wasm []byte) (string, error) {
	digest := digestOf(wasm)
	c.use(digest, time.Now()) // before it is looked at: what was used now is not removed
	if kept, err := os.ReadFile(c.path(digest)); err == nil && digestOf(kept) == digest {
		return digest, nil
	}
	if err := os.MkdirAll(c.dir, 0o700); err != nil {
		return "", fmt.Errorf("keep a module's copy: %w", err)
	}
	tmp, err := os.CreateTemp(c.dir, digest[:12]+".*.tmp")
	if err != nil {
		return "", fmt.Errorf("keep a module's copy: %w", err)
	}
	defer func() { _ = os.Remove(tmp.Name()) }() // fails once it was renamed
	_, err = tmp.Write(wasm)
	err = errors.Join(err, tmp.Sync(), tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), c.path(digest))
	}
	if err != nil {
		return "", fmt.Errorf("keep a module's copy: %w", err)
	}
	return digest, syncDir(c.dir)
}

// get is the module with that digest. Errors: X_MODULE_MISSING when it is not
// here or its bytes are not what they were.
func (c copies) get(digest string) ([]byte, error) {
	if !hexDigest.MatchString(digest) {
		return nil, missing(digest, "the digest is not one", nil)
	}
	c.use(digest, time.Now())
	wasm, err := os.ReadFile(c.path(digest))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, missing(digest, "no copy of it is in "+c.dir, err)
	case err != nil:
		return nil, missing(digest, "its copy cannot be read", err)
	case digestOf(wasm) != digest:
		return nil, missing(digest, "its copy in "+c.dir+" was changed", nil)
	}
	return wasm, nil
}

// use notes that a copy is needed, if it is there.
func (c copies) use(digest string, now time.Time) {
	_ = os.Chtimes(c.path(digest), now, now) // one that is not there needs no time
}

// all are the digests of the copies that are there.
func (c copies) all() ([]string, error) {
	entries, err := os.ReadDir(c.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var digests []string
	for _, e := range entries {
		if digest, ok := strings.CutSuffix(e.Name(), ".wasm"); ok && hexDigest.MatchString(digest) {
			digests = append(digests, digest)
		}
	}
	return digests, err
}

// expire removes the copies that were not used since before, and what a process
// that died left behind. It answers how many copies those were.
func (c copies) expire(before time.Time) (removed int, err error) {
	entries, err := os.ReadDir(c.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	var errs []error
	for _, e := range entries {
		path := filepath.Join(c.dir, e.Name())
		digest, isCopy := strings.CutSuffix(e.Name(), ".wasm")
		isCopy = isCopy && hexDigest.MatchString(digest)
		if !isCopy && !strings.HasSuffix(e.Name(), ".tmp") || !unused(path, before) {
			continue
		}
		if !isCopy {
			errs = append(errs, os.Remove(path))
			continue
		}
		gone, err := c.remove(digest, before)
		errs = append(errs, err)
		if gone {
			removed++
		}
	}
	return removed, errors.Join(append(errs, err)...)
}

// remove takes a copy away, unless somebody has begun to use it meanwhile: who
// does so notes it first, and looks for the copy then.
func (c copies) remove(digest string, before time.Time) (bool, error) {
	aside := c.path(digest) + ".tmp"
	if err := os.Rename(c.path(digest), aside); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = nil // another process was quicker
		}
		return false, err
	}
	if !unused(aside, before) {
		return false, os.Rename(aside, c.path(digest))
	}
	return true, os.Remove(aside)
}

// unused reports whether a file's time lies before that.
func unused(path string, before time.Time) bool {
	info, err := os.Lstat(path)
	return err == nil && info.Mode().IsRegular() && info.ModTime().Before(before)
}

func missing(digest, why string, err error) error {
	return &abi.Error{
		Code:    job.CodeModuleMissing,
		Message: fmt.Sprintf("module %.12q… cannot be had: %s", digest, why),
		Fix:     "put the module's file back under its path, or run the job from its first step on the module deployed now",
		Err:     err,
	}
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
