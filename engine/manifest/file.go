package manifest

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// readRegular reads a regular file of at most most bytes. Its errors read on
// from the file's name, which the caller says. stat and open are those of an
// *os.Root wherever the name comes out of a file.
func readRegular(stat func(string) (fs.FileInfo, error), open func(string) (*os.File, error), name string, most int64) ([]byte, error) {
	info, err := stat(name) // before open, which would wait for the writer of a pipe
	if err != nil {
		return nil, fileProblem(err)
	}
	if info.IsDir() {
		return nil, errors.New("is a folder")
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("is not a regular file")
	}
	f, err := open(name)
	if err != nil {
		return nil, fileProblem(err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, most+1))
	if err != nil {
		return nil, fileProblem(err)
	}
	if int64(len(data)) > most {
		return nil, fmt.Errorf("%w than %s", errTooBig, FormatSize(uint64(most)))
	}
	return data, nil
}

// Problems of a file that call for something else than another name of it.
var (
	errTooBig    = errors.New("is bigger")
	errForbidden = errors.New("may not be read")
)

// escapes is the problem of a name that a link leads out of an *os.Root with.
const escapes = "leads out of the manifest's folder"

// fileProblem says what went wrong with a file, without its path, which the
// caller has said.
func fileProblem(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return errors.New("does not exist")
	}
	if errors.Is(err, fs.ErrPermission) {
		return errForbidden
	}
	var pe *fs.PathError
	if errors.As(err, &pe) {
		if pe.Err.Error() == "path escapes from parent" {
			return errors.New(escapes)
		}
		err = pe.Err
	}
	return fmt.Errorf("cannot be read: %w", err)
}
