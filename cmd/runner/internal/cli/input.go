package cli

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/job"
)

// readInput is the JSON that --input names: the text itself, @FILE, or - for
// stdin; "" is none. Whether it is valid JSON is decided where every enqueue is
// checked.
func (e *env) readInput(arg string) ([]byte, error) {
	switch {
	case arg == "-":
		return readBounded(e.Stdin, "stdin")
	case strings.HasPrefix(arg, "@"):
		f, err := openFile(arg[1:])
		if err != nil {
			return nil, err
		}
		defer func() { _ = f.Close() }()
		return readBounded(f, arg[1:])
	}
	return []byte(arg), nil
}

// readPayload is readInput of an event, whose payload is refused with the code that
// events have.
func (e *env) readPayload(arg string) ([]byte, error) {
	b, err := e.readInput(arg)
	var refused *abi.Error
	if errors.As(err, &refused) && refused.Code == job.CodeInputInvalid {
		return nil, &abi.Error{Code: job.CodeInvalid, Message: strings.Replace(refused.Message, "input", "payload", 1), Fix: strings.Replace(refused.Fix, "--input", "--data", 1)}
	}
	return b, err
}

func openFile(path string) (*os.File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, &abi.Error{Code: codeFile, Message: fmt.Sprintf("cannot read %s: %v", path, errors.Unwrap(err)), Fix: "check the path and its permissions", Err: err}
	}
	return f, nil
}

func readBounded(r io.Reader, name string) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, abi.MaxInput+1))
	if err != nil {
		return nil, &abi.Error{Code: codeFile, Message: fmt.Sprintf("cannot read %s: %v", name, err), Err: err}
	}
	if len(b) > abi.MaxInput {
		return nil, &abi.Error{
			Code:    job.CodeInputInvalid,
			Message: fmt.Sprintf("the input in %s is larger than %d bytes", name, abi.MaxInput),
			Fix:     "store the data elsewhere and pass a reference to it",
		}
	}
	b = bytes.TrimSpace(b)
	if len(b) == 0 { // nothing would stand for null: whatever was to write it failed
		return nil, &abi.Error{Code: job.CodeInputInvalid, Message: "there is no input in " + name, Fix: "put JSON there, or leave --input out for null"}
	}
	return b, nil
}

// A batch of lines has at most linesBatch of them, and about linesBatchBytes.
const (
	linesBatch      = 1000
	linesBatchBytes = 8 << 20
)

// inputLine is a line that is not blank, with its number from 1.
type inputLine struct {
	number int
	text   []byte
}

// lines calls fn with batches of the JSON lines of the file (- is stdin), in
// order; blank lines are skipped. With an error it answers the first line of those
// that fn has not done; 0 if it called fn for none.
func (e *env) lines(path string, fn func(name string, batch []inputLine) error) (next int, err error) {
	r, name := e.Stdin, "stdin"
	if path != "-" {
		f, err := openFile(path)
		if err != nil {
			return 0, err
		}
		defer func() { _ = f.Close() }()
		r, name = f, path
	}
	sc := bufio.NewScanner(r)
	sc.Buffer(make([]byte, 64<<10), abi.MaxInput+2)
	var batch []inputLine
	n, size := 0, 0
	flush := func() error {
		if len(batch) == 0 {
			return nil
		}
		next = batch[0].number
		if err := fn(name, batch); err != nil {
			return err
		}
		next = batch[len(batch)-1].number + 1
		batch, size = nil, 0
		return nil
	}
	for sc.Scan() {
		n++
		line := bytes.TrimSpace(sc.Bytes())
		if len(line) == 0 {
			continue
		}
		batch = append(batch, inputLine{n, bytes.Clone(line)})
		if size += len(line); len(batch) == linesBatch || size >= linesBatchBytes {
			if err := flush(); err != nil {
				return next, err
			}
		}
	}
	if err := sc.Err(); err != nil {
		if errors.Is(err, bufio.ErrTooLong) {
			return next, &abi.Error{Code: job.CodeInputInvalid, Message: fmt.Sprintf("%s:%d: the line is larger than %d bytes", name, n+1, abi.MaxInput)}
		}
		return next, &abi.Error{Code: codeFile, Message: fmt.Sprintf("cannot read %s: %v", name, err), Err: err}
	}
	if err := flush(); err != nil {
		return next, err
	}
	return 0, nil
}

// parseTime is --run-at: an instant with its zone.
func parseTime(flag, s string) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return time.Time{}, usagef("write an instant with its zone, as in 2026-03-01T09:00:00Z", "--%s %q is not a time", flag, s)
	}
	if t.IsZero() { // which stands for none at all
		return time.Time{}, usagef("say a later one, or leave it out", "--%s %q is the beginning of the calendar", flag, s)
	}
	return t, nil
}
