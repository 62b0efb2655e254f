// Package wasmbin reads and rewrites core WebAssembly binaries.
package wasmbin
