package wasmbin

// Limits of what is read. They are far above what toolchains emit, and far
// below what makes a runtime allocate or compute out of proportion to the
// module's size. Where the JavaScript API of WebAssembly states an
// implementation limit, that one is taken or a lower one. What one function costs
// to compile is limited in cost.go.
const (
	maxTypes      = 100_000
	maxParams     = 1_000 // of one function; results too
	maxImports    = 10_000
	maxFunctions  = 1_000_000
	maxTables     = 100
	maxGlobals    = 100_000
	maxExports    = 100_000
	maxElements   = 100_000 // segments
	maxSegments   = 1_000_000
	maxName       = 100_000   // bytes of an import's or export's name
	maxBody       = 1 << 20   // bytes of one function
	maxLocals     = 49_990    // of one function, parameters included; rewriting adds two to what 50,000 allow
	maxNesting    = 10_000    // blocks within blocks
	maxAllLocals  = 8_000_000 // declared in all functions; a runtime keeps 8 bytes of each
	maxTableElems = 1_000_000 // entries that all tables together may have, now or after growing
)

// pageLimit is the most pages that a 32-bit memory can have.
const pageLimit = 65536
