package instance

import "fmt"

// image is the memory that every attempt of a template starts from. It never
// changes.
type image struct {
	size  uint64
	bytes []byte // read-only view
	fd    int    // of the sealed memory file; -1 without
}

// newImage copies b. With mode Copy it lies on the Go heap, otherwise in a
// sealed memory file that instances can map.
func newImage(mode Mode, b []byte) (*image, error) {
	if mode == Copy {
		return &image{size: uint64(len(b)), bytes: append([]byte(nil), b...), fd: -1}, nil
	}
	fd, view, err := sealImage(b)
	if err != nil {
		return nil, fmt.Errorf("seal the memory image: %w", err)
	}
	return &image{size: uint64(len(b)), bytes: view, fd: fd}, nil
}

// lay puts the image under the first bytes of m, which has that size already
// and is not running. For a mapped memory this drops what was there.
func (im *image) lay(m *memory) error {
	if im.fd < 0 {
		copy(m.b[:im.size], im.bytes)
		return nil
	}
	return mapImage(im.fd, m.b[:im.size])
}

// close frees the image. No instance of it may be left.
func (im *image) close() {
	if im.fd >= 0 {
		unmap(im.bytes)
		closeFD(im.fd)
	}
	im.bytes, im.fd = nil, -1
}
