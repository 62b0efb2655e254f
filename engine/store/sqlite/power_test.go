package sqlite

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ncruces/go-sqlite3/util/vfsutil"
	"github.com/ncruces/go-sqlite3/vfs"

	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

// power is a VFS that knows what a power cut would leave on the disk: of each
// file what was synced, and any part of what was written since.
type power struct {
	vfs.VFS
	mu    sync.Mutex
	rand  *rand.Rand
	files map[string]*image
	cuts  []cut
	// answered is what a cut remembers of the answers before it; nil: no cuts.
	answered func() answers
}

// image is one file as the disk has it.
type image struct {
	synced  []byte
	pending []change
}

// change is a write that is not synced, or a truncation to off if data is nil.
type change struct {
	off  int64
	data []byte
}

func (c change) apply(content []byte) []byte {
	if c.data == nil {
		return content[:min(int64(len(content)), c.off)]
	}
	if end := c.off + int64(len(c.data)); end > int64(len(content)) {
		content = append(content, make([]byte, end-int64(len(content)))...)
	}
	copy(content[c.off:], c.data)
	return content
}

// cut is what one power cut would have left, and what had been answered by then.
type cut struct {
	files    map[string][]byte
	answered answers
}

var powerNames atomic.Int64

func newPower(seed uint64) (*power, string) {
	p := &power{VFS: vfs.Find(diskName), rand: rand.New(rand.NewPCG(seed, 0)), files: map[string]*image{}}
	name := fmt.Sprintf("power%d", powerNames.Add(1))
	vfs.Register(name, p)
	return p, name
}

func (p *power) OpenFilename(name *vfs.Filename, flags vfs.OpenFlag) (vfs.File, vfs.OpenFlag, error) {
	f, flags, err := vfsutil.WrapOpenFilename(p.VFS, name, flags)
	if err != nil || name == nil {
		return f, flags, err
	}
	base := filepath.Base(name.String())
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.files[base] == nil {
		p.files[base] = &image{}
	}
	return &powerFile{diskFile: diskFile{f}, p: p, img: p.files[base]}, flags, nil
}

// Delete is on the disk at once: what a late one does to a rollback journal is
// SQLite's affair, and no database here uses one once it exists.
func (p *power) Delete(name string, syncDir bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.files, filepath.Base(name))
	return p.VFS.Delete(name, syncDir)
}

// event follows a change of a file, and cuts the power now and then.
func (p *power) event(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
	if p.answered == nil || p.rand.IntN(10) != 0 {
		return
	}
	c := cut{files: map[string][]byte{}, answered: p.answered()}
	for name, img := range p.files {
		content := bytes.Clone(img.synced)
		mood := p.rand.IntN(4) // keep all, none, or any
		for _, w := range img.pending {
			switch {
			case mood == 1 || mood > 1 && p.rand.IntN(2) == 0:
				continue
			case mood == 3 && len(w.data) > 512: // a write of several sectors got half way
				w.data = w.data[:512*p.rand.IntN(len(w.data)/512)]
			}
			content = w.apply(content)
		}
		c.files[name] = content
	}
	p.cuts = append(p.cuts, c)
}

type powerFile struct {
	diskFile
	p   *power
	img *image
}

func (f *powerFile) WriteAt(b []byte, off int64) (int, error) {
	n, err := f.diskFile.WriteAt(b, off)
	f.p.event(func() { f.img.pending = append(f.img.pending, change{off, bytes.Clone(b)}) })
	return n, err
}

func (f *powerFile) Truncate(size int64) error {
	err := f.diskFile.Truncate(size)
	f.p.event(func() { f.img.pending = append(f.img.pending, change{off: size}) })
	return err
}

func (f *powerFile) Sync(flags vfs.SyncFlag) error {
	err := f.diskFile.Sync(flags)
	f.p.event(func() {
		for _, w := range f.img.pending {
			f.img.synced = w.apply(f.img.synced)
		}
		f.img.pending = nil
	})
	return err
}

// answers are runs by what the store had answered of them.
type answers struct{ enqueued, stepped, done map[string]bool }

func (a answers) clone() answers {
	return answers{maps.Clone(a.enqueued), maps.Clone(a.stepped), maps.Clone(a.done)}
}

// At whatever moment the power fails, and whichever of the unsynced writes the
// disk has kept by then: what was answered is there, and the database is whole.
func TestAPowerCutLosesNothingAnswered(t *testing.T) {
	p, name := newPower(*seed)
	s := open(t, Config{Path: filepath.Join(t.TempDir(), "runs.db"), vfs: name})
	// Checkpoints, which rewrite the database, come often.
	err := s.w.do(t.Context(), func(tx *tx) error { return tx.db.WALAutoCheckpoint(30) })
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Register(t.Context(), store.RegisterParams{ID: "w", Lease: time.Hour}); err != nil {
		t.Fatal(err)
	}
	got := answers{map[string]bool{}, map[string]bool{}, map[string]bool{}}
	p.mu.Lock()
	p.answered = func() answers { return got.clone() } // the writer is at work: this goroutine waits
	p.mu.Unlock()
	for n := range 120 {
		run := params(n)
		run.Input = bytes.Repeat([]byte{'x'}, n*n%3000)
		if _, err := s.Enqueue(t.Context(), []store.EnqueueParams{run}); err != nil {
			t.Fatal(err)
		}
		got.enqueued[run.ID] = true
		if n%3 != 0 {
			continue
		}
		for _, r := range claim(t, s, 2) {
			ref := job.Ref{RunID: r.ID, Worker: "w", Claim: r.Claims}
			if n%2 == 0 {
				if _, err := s.SaveSteps(t.Context(), []store.StepParams{{Ref: ref, Name: "a", Kind: job.KindStep, Status: job.StepCompleted, Output: []byte(r.ID)}}); err != nil {
					t.Fatal(err)
				}
				got.stepped[r.ID] = true
			}
			if _, err := s.Settle(t.Context(), []store.SettleParams{{Ref: ref, Outcome: job.Completed, To: job.Done, Output: []byte(r.ID)}}); err != nil {
				t.Fatal(err)
			}
			got.done[r.ID] = true
		}
	}
	p.mu.Lock()
	p.answered = nil
	p.mu.Unlock()
	if len(p.cuts) < 30 {
		t.Fatalf("only %d cuts", len(p.cuts))
	}
	p.rand.Shuffle(len(p.cuts), func(i, j int) { p.cuts[i], p.cuts[j] = p.cuts[j], p.cuts[i] })
	for i, c := range p.cuts[:30] {
		if !t.Run(fmt.Sprint(i), func(t *testing.T) { c.check(t) }) {
			return
		}
	}
}

func (c cut) check(t *testing.T) {
	dir := t.TempDir()
	for name, content := range c.files {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s, err := Open(t.Context(), Config{Path: filepath.Join(dir, "runs.db")})
	if err != nil {
		t.Fatalf("after %d answers: %v", len(c.answered.enqueued), err)
	}
	defer s.Close()
	err = s.r.do(t.Context(), func(conn *conn) error {
		if problems := explain(t, conn, "PRAGMA integrity_check", 0); len(problems) != 1 || problems[0] != "ok" {
			t.Errorf("integrity: %v", problems)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for id := range c.answered.enqueued {
		if _, err := s.Get(t.Context(), id); err != nil {
			t.Errorf("run %s was enqueued: %v", id, err)
		}
	}
	for id := range c.answered.stepped {
		if steps, err := s.ListSteps(t.Context(), id); err != nil || len(steps) != 1 || string(steps[0].Output) != id {
			t.Errorf("run %s had a step: %+v, %v", id, steps, err)
		}
	}
	for id := range c.answered.done {
		if r, err := s.Get(t.Context(), id); err != nil || r.State != job.Done || string(r.Output) != id || r.Claims != 1 {
			t.Errorf("run %s was done: %+v, %v", id, r, err)
		}
	}
}
