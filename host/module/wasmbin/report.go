package wasmbin

// Report is what Scan learns of a module.
type Report struct {
	// Reject are reasons why a host must not run the module at all.
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
}

// Segment is data to be copied into memory.
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
