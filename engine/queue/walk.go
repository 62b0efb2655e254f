package queue

import (
	"context"
	"strings"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/job"
)

// walk writes entries that do not stand for each other: many at a time, and those of a
// write that the store refuses one by one, which tells whose fault it is.
type walk[P, R any] struct {
	entries []P
	// share answers how many of those that are left, at least one, share a write.
	share func(left []P) int
	write func(ctx context.Context, some []P) ([]R, error)
	// alone is called before an entry is written on its own; nil does nothing.
	alone  func(*P)
	answer func(i int, r R)
	refuse func(i int, err error)
}

// run answers the first entry whose outcome is open, with the error, or that there is
// none.
func (w *walk[P, R]) run(ctx context.Context) (open int, err error) {
	for start := 0; start < len(w.entries); {
		end := start + w.share(w.entries[start:])
		err := w.try(ctx, start, end)
		switch {
		case err == nil:
		case transient(err):
			return start, err
		default:
			if open, err := w.oneByOne(ctx, start, end); err != nil {
				return open, err
			}
		}
		start = end
	}
	return len(w.entries), nil
}

// try is one write.
func (w *walk[P, R]) try(ctx context.Context, start, end int) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	results, err := w.write(ctx, w.entries[start:end])
	if err == nil && len(results) != end-start {
		err = &abi.Error{Code: job.CodeInternal, Message: "the store answered another number of results than it was given entries"}
	}
	if err != nil {
		return err
	}
	for i, r := range results {
		w.answer(start+i, r)
	}
	return nil
}

// oneByOne writes entry by entry, up to the first whose outcome is open.
func (w *walk[P, R]) oneByOne(ctx context.Context, start, end int) (open int, err error) {
	for i := start; i < end; i++ {
		if w.alone != nil {
			w.alone(&w.entries[i])
		}
		switch err := w.try(ctx, i, i+1); {
		case err == nil:
		case entrysOwn(err):
			w.refuse(i, err)
		default:
			return i, err
		}
	}
	return end, nil
}

// entrysOwn reports whether err is about the entry itself, so that no store
// that is well takes it.
func entrysOwn(err error) bool {
	switch code := abi.CodeOf(err); code {
	case job.CodeInvalid, job.CodeIDInvalid:
		return !transient(err)
	default:
		return strings.HasPrefix(code, "X_JOB_") && !transient(err)
	}
}
