//go:build unix

package app_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/cmd/runner/internal/app"
)

// A folder that may be written, but by too many, is not to be made writable.
func TestAnUnsafeCacheSaysWhichPermissionToMend(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cache")
	if err := errors.Join(os.Mkdir(dir, 0o700), os.Chmod(dir, 0o777)); err != nil {
		t.Fatal(err)
	}
	_, err := app.NewHost(t.Context(), app.HostParams{CacheDir: dir})
	var coded *abi.Error
	if !errors.As(err, &coded) || !strings.HasPrefix(coded.Fix, "run: chmod") {
		t.Errorf("%+v", err)
	}
}
