package module

import (
	"errors"
	"strings"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/host/module/wasmbin"
)

// Inspection is what can be said of a module without compiling it.
type Inspection struct {
	Digest string // SHA-256 in hex
	Size   int64
	// Report is nil if the bytes cannot be read at all; Problems then says why.
	Report   *wasmbin.Report
	Problems Problems
}

// Reset says how attempts get fresh memory: "image", or "fresh: " and why a
// new instance has to be made for each.
func (i Inspection) Reset() string {
	if i.Report == nil || len(i.Report.FreshOnly) == 0 {
		return "image"
	}
	return "fresh: " + strings.Join(i.Report.FreshOnly, "; ")
}

// Err is the problems as an error, nil if there are none.
func (i Inspection) Err() error { return i.Problems.err() }

// Inspect reads a module and finds all its problems but those that only the
// compiler sees: instructions whose types do not fit.
func Inspect(b []byte) Inspection {
	in := Inspection{Digest: Digest(b), Size: int64(len(b))}
	rep, err := wasmbin.Scan(b)
	if err != nil {
		in.Problems = Problems{invalid(err)}
		return in
	}
	in.Report = rep
	for _, why := range rep.Reject {
		in.Problems.add(CodeInvalid, "", "%s", why)
	}
	in.Problems = append(in.Problems, checkImports(rep.Imports)...)
	if len(rep.Reject) == 0 { // otherwise the report may lack exports
		in.Problems = append(in.Problems, checkExports(rep.Exports)...)
	}
	in.Problems.cut()
	return in
}

// Check is what is wrong with a module: nil, an *abi.Error, or Problems.
func Check(b []byte) error { return Inspect(b).Err() }

// invalid is a module that cannot be read.
func invalid(err error) *abi.Error {
	e := &abi.Error{Code: CodeInvalid, Message: err.Error(), Err: err}
	if b := (*wasmbin.Error)(nil); errors.As(err, &b) {
		switch b.Kind {
		case wasmbin.Malformed:
			e.Message = "is not a valid module: " + err.Error()
		case wasmbin.TooComplex:
			e.Message = "is beyond what this host reads: " + err.Error()
		}
	}
	return e
}
