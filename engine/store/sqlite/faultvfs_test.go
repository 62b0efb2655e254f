package sqlite

import (
	"strings"
	"sync/atomic"

	"github.com/ncruces/go-sqlite3"
	"github.com/ncruces/go-sqlite3/util/vfsutil"
	"github.com/ncruces/go-sqlite3/vfs"
)

// faults makes the files of one test fail on command. Its VFS is otherwise the
// real one.
type faults struct {
	vfs.VFS
	write atomic.Pointer[error]         // what writes of the log answer
	sync  atomic.Pointer[error]         // what syncs of the log answer
	syncs atomic.Int64                  // how often the log was synced
	gate  atomic.Pointer[chan struct{}] // what syncs of the log wait for
}

var faultNames atomic.Int64

// newFaults registers a VFS and returns its name.
func newFaults() (*faults, string) {
	f := &faults{VFS: vfs.Find(diskName)}
	name := "faulty" + string(rune('a'+faultNames.Add(1)))
	vfs.Register(name, f)
	return f, name
}

func fail(p *atomic.Pointer[error], err error) { p.Store(&err) }

func (f *faults) OpenFilename(name *vfs.Filename, flags vfs.OpenFlag) (vfs.File, vfs.OpenFlag, error) {
	file, flags, err := vfsutil.WrapOpenFilename(f.VFS, name, flags)
	if err != nil {
		return file, flags, err
	}
	return &faultyFile{diskFile: diskFile{file}, f: f, log: name != nil && strings.HasSuffix(name.String(), "-wal")}, flags, nil
}

type faultyFile struct {
	diskFile
	f   *faults
	log bool
}

func (f *faultyFile) WriteAt(b []byte, off int64) (int, error) {
	if err := f.f.write.Load(); f.log && err != nil && *err != nil {
		return 0, *err
	}
	return f.diskFile.WriteAt(b, off)
}

func (f *faultyFile) Sync(flags vfs.SyncFlag) error {
	if f.log {
		if gate := f.f.gate.Load(); gate != nil {
			<-*gate
		}
		f.f.syncs.Add(1)
		if err := f.f.sync.Load(); err != nil && *err != nil {
			return *err
		}
	}
	return f.File.Sync(flags)
}

var (
	errDiskFull = error(sqlite3.FULL)
	errNoSync   = error(sqlite3.IOERR_FSYNC)
)
