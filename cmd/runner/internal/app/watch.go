package app

import (
	"context"
	"os"
	"time"
)

// watchEvery is how often the files of a manifest are looked at. A stat of a
// few files costs microseconds, sees every kind of replacement (rename, a
// changed link, a network folder) and needs nothing from the system, which is
// why this is no subscription to file events.
const watchEvery = 500 * time.Millisecond

// watcher notices that files changed. It belongs to one goroutine.
type watcher struct {
	loaded map[string]stamp // what the last load may have seen
	last   map[string]stamp // of the last poll
}

// stamp is what of a file tells one content from another without reading it.
// Its zero value is of no file, present or missing.
type stamp struct {
	known   bool
	missing bool
	size    int64
	changed time.Time
	mode    os.FileMode
}

func stampOf(path string) stamp {
	info, err := os.Stat(path)
	if err != nil {
		return stamp{known: true, missing: true}
	}
	return stamp{known: true, size: info.Size(), changed: info.ModTime(), mode: info.Mode()}
}

// follow sets the files to look at. Stamps of those followed before are kept.
// A file that is new is taken as changed once, since whoever read it did so
// before this first look.
func (w *watcher) follow(paths []string) {
	loaded := make(map[string]stamp, len(paths))
	for _, p := range paths {
		loaded[p] = w.loaded[p]
	}
	w.loaded, w.last = loaded, nil
}

// poll reports whether a file differs from what was loaded. It waits until two
// polls have seen the same, so that a file is not read while it is written.
// After a true answer the same state is not reported again, whether or not it
// could be loaded.
func (w *watcher) poll() bool {
	now := make(map[string]stamp, len(w.loaded))
	differs, steady := false, w.last != nil
	for p, loaded := range w.loaded {
		now[p] = stampOf(p)
		differs = differs || now[p] != loaded
		steady = steady && now[p] == w.last[p]
	}
	w.last = now
	if !differs || !steady {
		return false
	}
	w.loaded = now
	return true
}

// Watch sends on the channel after a file that s was read from has changed,
// until ctx ends. Changes that come while one is not yet taken are one.
func (s *Server) Watch(ctx context.Context) <-chan struct{} {
	changed := make(chan struct{}, 1)
	go func() {
		w := &watcher{}
		t := time.NewTicker(watchEvery)
		defer t.Stop()
		for {
			w.followAnew(s.Files())
			select {
			case <-ctx.Done():
				return
			case <-t.C:
			}
			if w.poll() {
				select {
				case changed <- struct{}{}:
				default:
				}
			}
		}
	}()
	return changed
}

// followAnew follows files if they are others than before.
func (w *watcher) followAnew(files []string) {
	if len(files) == len(w.loaded) {
		same := true
		for _, f := range files {
			_, ok := w.loaded[f]
			same = same && ok
		}
		if same {
			return
		}
	}
	w.follow(files)
}
