// Package wasmbin reads core WebAssembly binaries without running them: Scan
// says what a module needs and whether its state can be restored between
// attempts, and Rewrite makes the module stoppable and its state reachable.
//
// It owns the binary format of WebAssembly 2.0 and nothing of the contract
// between host and guest: which imports are served is for package module. It
// knows no runtime. Bytes are hostile: every count is checked against the bytes
// that are left before anything is allocated for it, nothing recurses, and a
// module beyond the limits of this package is refused.
//
// # What Rewrite changes
//
//   - A tick, a short sequence that counts down a global and calls an imported
//     function when it is used up, stands wherever a path could otherwise run
//     on: at loop headers, function entries, in long straight code and before
//     operations on whole ranges of memory (see ticks.go).
//   - Every mutable numeric global is exported, so that its value can be kept
//     and put back.
//   - The start function is exported instead of started, so that the host
//     chooses when it runs.
//   - Data segments are left out and handed to the host, where that is sound.
//   - The memory's maximum is 65536 pages, so that the one who allocates memory
//     sees every growth; tables get a maximum.
//   - Custom sections are dropped, but for the names of functions.
//
// # Why the original needs no validation of its own
//
// The original is never given to the runtime, whose decoder allocates whatever
// a count claims: 17 bytes of a name section can ask for 50 GB.
//
// The code that comes out is validated by the runtime when it is compiled. It
// is valid only if the original was, because what the rewriting could have
// hidden is checked here: indices that the added type, function, global or
// local would make good, the start function's type, names of exports, limits
// that are replaced, and segments that are left out. FuzzRewrite holds that
// against the runtime's own decoder.
package wasmbin
