package wasmbin

// Report is what Scan learns of a module.
type Report struct {
	// Reject are reasons why a host must not run the module at all. When there
	// are any, the rest of the report may be incomplete.
	Reject []string
	// FreshOnly are reasons why every attempt needs a newly instantiated
	// module: state that copying memory and globals back does not restore.
	// Empty means that one image serves all attempts.
	FreshOnly []string
	// Imports and Exports in the order of the binary.
	Imports []Import
	Exports []Export
	// MemoryMin and MemoryMax are in pages; MemoryMax is 65536 without a maximum.
	MemoryMin, MemoryMax uint32
	// Start says that the module has a start function.
	Start bool
	// HostData says that the host can apply all data segments itself, so that
	// they need not be compiled: their offsets are constants and no instruction
	// refers to them.
	HostData bool
	// Functions, Instructions and CodeBytes size the code; DataSegments and
	// DataBytes the data.
	Functions, Instructions, CodeBytes int
	DataSegments, DataBytes            int
	// Features are the parts of WebAssembly 2.0 and later that the code uses.
	Features []string
}

// Segment is data to be copied into memory. Bytes is part of the module that
// was scanned and must not be written to.
type Segment struct {
	Offset uint32
	Bytes  []byte
}

// Kind is what is imported or exported.
type Kind byte

// The kinds as they are encoded.
const (
	KindFunc Kind = iota
	KindTable
	KindMemory
	KindGlobal
	KindTag
)

// String is the kind's name.
func (k Kind) String() string {
	switch k {
	case KindFunc:
		return "function"
	case KindTable:
		return "table"
	case KindMemory:
		return "memory"
	case KindGlobal:
		return "global"
	case KindTag:
		return "tag"
	}
	return "unknown"
}

// Import is one import.
type Import struct {
	Module, Name string
	Kind         Kind
	Type         string // of a function as in "(i32) -> i32"; "" for other kinds
}

// Export is one export.
type Export struct {
	Name string
	Kind Kind
	Type string // as in Import
}

// Features that Report.Features names.
const (
	featureBulk     = "bulk-memory"
	featureSIMD     = "simd"
	featureRefs     = "reference-types"
	featureExtConst = "extended-const"
	featureSatFloat = "nontrapping-fptoint"
	featureSignExt  = "sign-ext"
)

// Reasons of Report.Reject that name a feature.
const (
	reasonTypedRefs  = "uses typed function references or tables with initialisers; build without the function-references feature"
	reasonExceptions = "uses WebAssembly exception handling; build without it (for C++: -fno-exceptions or -fignore-exceptions)"
	reasonGC         = "uses garbage-collected types (the GC proposal), which this host does not run"
	reasonMemory64   = "uses 64-bit memory; build for wasm32"
	reasonTailCalls  = "uses tail calls; build without the tail-call feature (clang: -mno-tail-call)"
	reasonThreads    = "uses threads (atomic instructions or shared memory); build without -pthread and without the atomics feature"
	reasonRelaxed    = "uses relaxed SIMD, whose results differ between machines; build without the relaxed-simd feature"
	reasonNoMemory   = "has no memory of its own; a handler defines exactly one and exports it as \"memory\""
)
