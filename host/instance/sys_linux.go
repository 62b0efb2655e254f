package instance

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// canMap says that memory and images can be mapped here.
const canMap = true

var osPage = os.Getpagesize()

// reserve takes n bytes of address space that cannot be accessed.
func reserve(n uint64) ([]byte, error) {
	b, err := unix.Mmap(-1, 0, int(n), unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("reserve %d bytes of memory: %w", n, err)
	}
	return b, nil
}

// commit makes b, a part of a reservation, accessible; it costs nothing until
// it is touched.
func commit(b []byte) error { return unix.Mprotect(b, unix.PROT_READ|unix.PROT_WRITE) }

func unmap(b []byte) { _ = unix.Munmap(b) }

func closeFD(fd int) { _ = unix.Close(fd) }

// drop gives b's pages back; they read as what is mapped there.
func drop(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	return unix.Madvise(b, unix.MADV_DONTNEED)
}

// mapImage maps fd privately over b, which starts a reservation.
func mapImage(fd int, b []byte) error {
	_, err := unix.MmapPtr(fd, 0, unsafe.Pointer(unsafe.SliceData(b)), uintptr(len(b)),
		unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_FIXED|unix.MAP_NORESERVE)
	if err != nil {
		return fmt.Errorf("map the memory image: %w", err)
	}
	return nil
}

// sealImage writes b into a memory file, zero pages left as holes, and seals
// it: from then on nothing can change or truncate what the instances map, so
// no access to it can fault.
func sealImage(b []byte) (fd int, view []byte, err error) {
	fd, err = unix.MemfdCreate("runner-image", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return -1, nil, err
	}
	defer func() {
		if err != nil {
			closeFD(fd)
		}
	}()
	if err := unix.Ftruncate(fd, int64(len(b))); err != nil {
		return -1, nil, err
	}
	for o := 0; o < len(b); {
		end := o
		for end < len(b) && !isZero(b[end:min(end+osPage, len(b))]) {
			end = min(end+osPage, len(b))
		}
		for at := o; at < end; {
			n, err := unix.Pwrite(fd, b[at:end], int64(at))
			if err != nil {
				return -1, nil, err
			}
			at += n
		}
		o = end + osPage
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_WRITE|unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL); err != nil {
		return -1, nil, err
	}
	view, err = unix.Mmap(fd, 0, len(b), unix.PROT_READ, unix.MAP_PRIVATE)
	return fd, view, err
}

var zeros [64 << 10]byte

func isZero(b []byte) bool { return bytes.Equal(b, zeros[:len(b)]) }

// pagemap is /proc/self/pagemap, opened once for the life of the process; nil
// where it cannot be.
var pagemap = sync.OnceValue(func() *os.File {
	f, err := os.Open("/proc/self/pagemap")
	if err != nil {
		return nil
	}
	return f
})

// Bits of a pagemap entry that need no privilege to see.
const (
	pagePresent = 1 << 63
	pageSwapped = 1 << 62
	pageFile    = 1 << 61 // of a file or shared memory: for a private mapping, not written
)

// entryBuffers keep the bytes of one pagemap read.
var entryBuffers = sync.Pool{New: func() any { return new([]byte) }}

// written calls yield with each run of pages of b that were written since they
// were mapped, as byte offsets, and answers their number; beyond max pages it
// stops early and answers more than max. A write to a private file page always
// leaves an anonymous page behind, so the answer is exact.
func written(b []byte, limit int, yield func(lo, hi int)) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	buf := entryBuffers.Get().(*[]byte)
	defer entryBuffers.Put(buf)
	n := len(b) / osPage
	if cap(*buf) < n*8 {
		*buf = make([]byte, n*8)
	}
	entries := (*buf)[:n*8]
	from := int64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) / int64(osPage) * 8
	for got := 0; got < len(entries); {
		k, err := unix.Pread(int(pagemap().Fd()), entries[got:], from+int64(got))
		if err != nil {
			return 0, fmt.Errorf("read /proc/self/pagemap: %w", err)
		}
		if k == 0 {
			return 0, errors.New("read /proc/self/pagemap: unexpected end")
		}
		got += k
	}
	total := 0
	for i := 0; i < n; i++ {
		if !isWritten(entries, i) {
			continue
		}
		lo := i
		for i++; i < n && isWritten(entries, i); i++ {
		}
		if total += i - lo; total > limit {
			return total, nil
		}
		yield(lo*osPage, i*osPage)
	}
	return total, nil
}

func isWritten(entries []byte, i int) bool {
	e := binary.LittleEndian.Uint64(entries[i*8:])
	return e&(pagePresent|pageSwapped) != 0 && e&pageFile == 0
}

// bestMode tries what the kernel offers on two pages: emulated kernels and
// hidden /proc mounts answer pagemap reads with zeros or not at all.
var bestMode = sync.OnceValue(func() Mode {
	page := make([]byte, 2*osPage)
	page[0], page[osPage] = 1, 1
	im, err := newImage(Pagemap, page)
	if err != nil {
		return Copy
	}
	defer im.close()
	m, err := newMemory(Pagemap, im.size)
	if err != nil {
		return Copy
	}
	defer m.Free()
	if m.Reallocate(im.size) == nil || im.lay(m) != nil {
		return Copy
	}
	if pagemap() == nil {
		return Compare
	}
	m.b[osPage] += m.b[0] // reads page 0, writes page 1
	var got []int
	n, err := written(m.b, 2, func(lo, hi int) { got = append(got, lo, hi) })
	if err != nil || n != 1 || got[0] != osPage || got[1] != 2*osPage {
		return Compare
	}
	return Pagemap
})
