package wasmbin

import "fmt"

// ErrorKind says why a module cannot be read or rewritten.
type ErrorKind int

const (
	// NotWasm: the bytes are no WebAssembly module at all.
	NotWasm ErrorKind = iota + 1
	// Component: a component or another layer of the format, not a core module.
	Component
	// Malformed: the encoding is broken, or an index names nothing.
	Malformed
	// TooComplex: a limit of this package is exceeded.
	TooComplex
	// Rejected: readable, but Report.Reject is not empty. Only Rewrite answers it.
	Rejected
	// Internal: this package failed. It is a defect here, whatever the module.
	Internal
)

// String is the kind in words.
func (k ErrorKind) String() string {
	switch k {
	case NotWasm:
		return "not WebAssembly"
	case Component:
		return "a component"
	case Malformed:
		return "malformed"
	case TooComplex:
		return "too complex"
	case Rejected:
		return "rejected"
	case Internal:
		return "an internal failure"
	}
	return "unknown"
}

// Error is why a module cannot be read or rewritten.
type Error struct {
	Kind   ErrorKind
	Offset int    // of the byte in the module; -1 where no single byte is to blame
	Detail string // in words
}

func (e *Error) Error() string {
	if e.Offset < 0 {
		return e.Detail
	}
	return fmt.Sprintf("%s (at byte %d)", e.Detail, e.Offset)
}

// unsupported is how the parser leaves a module whose feature it can name but
// must not go on with. Scan turns it into a reason of Report.Reject.
type unsupported struct{ reason string }

func (u *unsupported) Error() string { return u.reason }

// contain turns a panic of this package into an error: a module that finds a
// defect here must not end the process that reads it.
func contain(err *error) {
	if x := recover(); x != nil {
		*err = &Error{Internal, -1, fmt.Sprintf("the module could not be read because of a defect of the runner: %v", x)}
	}
}
