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

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/job"
)

// copies are the modules kept in data_dir/modules, each under the digest of
// its bytes. They are never changed, only added, so any number of processes
// may share a folder.
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
