package sqlite

import (
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/ncruces/go-sqlite3"
	"github.com/ncruces/go-sqlite3/util/vfsutil"
	"github.com/ncruces/go-sqlite3/vfs"
)

// diskName is the VFS that every connection to a file goes through.
const diskName = "runner"

func init() { vfs.Register(diskName, disk{vfs.Find("")}) }

// disk is the driver's file layer, but for one thing: a disk that is full is
// SQLITE_FULL, where the driver reports a failed write and its cause is gone by
// the time that an error is made of it.
type disk struct{ vfs.VFS }

// OpenFilename implements vfs.VFSFilename.
func (d disk) OpenFilename(name *vfs.Filename, flags vfs.OpenFlag) (vfs.File, vfs.OpenFlag, error) {
	f, flags, err := vfsutil.WrapOpenFilename(d.VFS, name, flags)
	if err != nil {
		return f, flags, err
	}
	if flags&vfs.OPEN_WAL != 0 {
		return &logFile{diskFile: diskFile{f}}, flags, nil
	}
	return diskFile{f}, flags, nil
}

// logFile is a connection's write-ahead log, which knows whether what that
// connection wrote is synced. It is used by the connection's goroutine only.
type logFile struct {
	diskFile
	dirty bool
}

func (f *logFile) WriteAt(b []byte, off int64) (int, error) {
	f.dirty = true
	return f.diskFile.WriteAt(b, off)
}

func (f *logFile) Sync(flags vfs.SyncFlag) error {
	err := f.diskFile.Sync(flags)
	if err == nil {
		f.dirty = false
	}
	return err
}

// diskFile forwards whatever else a file of the driver can do.
type diskFile struct{ vfs.File }

func (f diskFile) Unwrap() vfs.File                { return f.File }
func (f diskFile) SharedMemory() vfs.SharedMemory  { return vfsutil.WrapSharedMemory(f.File) }
func (f diskFile) LockState() vfs.LockLevel        { return vfsutil.WrapLockState(f.File) }
func (f diskFile) PersistWAL() bool                { return vfsutil.WrapPersistWAL(f.File) }
func (f diskFile) SetPersistWAL(keep bool)         { vfsutil.WrapSetPersistWAL(f.File, keep) }
func (f diskFile) PowersafeOverwrite() bool        { return vfsutil.WrapPowersafeOverwrite(f.File) }
func (f diskFile) SetPowersafeOverwrite(psow bool) { vfsutil.WrapSetPowersafeOverwrite(f.File, psow) }
func (f diskFile) HasMoved() (bool, error)         { return vfsutil.WrapHasMoved(f.File) }
func (f diskFile) SizeHint(size int64) error       { return full(vfsutil.WrapSizeHint(f.File, size)) }

// DeviceCharacteristics leaves out batch-atomic writes, which are not forwarded.
func (f diskFile) DeviceCharacteristics() vfs.DeviceCharacteristic {
	return f.File.DeviceCharacteristics() &^ vfs.IOCAP_BATCH_ATOMIC
}

func (f diskFile) WriteAt(b []byte, off int64) (int, error) {
	n, err := f.File.WriteAt(b, off)
	return n, full(err)
}

func full(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, errQuota) {
		return vfs.SystemError(err, sqlite3.FULL)
	}
	return err
}

// uri is the file as the driver is asked for it. Every character of the path is
// taken literally.
func (c Config) uri() string {
	name := diskName
	if c.vfs != "" {
		name = c.vfs
	}
	path := c.Path
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	// modeof gives the log the owner and the permissions of the database, so
	// that a command run by root does not lock out the service.
	return "file:" + (&url.URL{Path: path}).EscapedPath() + "?vfs=" + name +
		"&modeof=" + strings.ReplaceAll(url.QueryEscape(path), "+", "%20")
}

// createFile makes an empty database that only its owner may read: inputs and
// outputs are anybody's secrets. Errors are left to the driver, which meets
// them again.
func (c Config) createFile() {
	if f, err := os.OpenFile(c.Path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600); err == nil {
		f.Close()
	}
}
