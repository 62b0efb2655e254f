// Package module turns bytes into a checked, compiled and cached module.
//
// It owns what can be known of a module without running it: its digest and
// size, which contract it was built against, what it imports and exports,
// whether one memory image can serve all its attempts, and the machine code.
// Every module it hands out is rewritten (package wasmbin): it stops itself at
// ticks, and its start function, its mutable globals and its fuel can be
// reached from outside. Instances, memory and host functions belong to
// host/instance and host/call.
package module

import (
	"context"
	"crypto/sha256"
	"encoding/hex"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/jobrunner/runner/host/module/wasmbin"
)

// Features are the core features that a runtime for these modules has: the
// WebAssembly 2.0 set and extended constant expressions, which wazero numbers
// in its experimental package. Nothing else may be enabled: tail calls would
// add loops without a tick, and the state of exceptions, threads and typed
// references is not restored between attempts.
const Features = api.CoreFeaturesV2 | api.CoreFeatureSIMD<<3

// The function that the rewritten module calls at a tick: () -> i32. It
// answers the fuel until the next tick, or panics to stop the guest. It is the
// one place where a running guest visits Go, so it should let others run.
const (
	MeterModule = "runner_meter"
	MeterTick   = "tick"
)

// Module is a module ready to be instantiated. It never changes and is safe
// for concurrent use.
type Module struct {
	// Digest is the SHA-256 of the bytes as they were given, in hex.
	Digest string
	// Size is their number.
	Size int64
	// Report is what the scan of the original found.
	Report *wasmbin.Report
	// Fuel is the export name of the i32 global that counts down to the next
	// tick. It starts at 0, so that the first tick comes at once.
	Fuel string
	// Globals are the export names of the original's mutable globals of types
	// i32, i64, f32 and f64, in the order of their indices. One of another type
	// is a reason in Report.FreshOnly.
	Globals []string
	// Start is the export name of what was the start function, to be called
	// once after the data was applied; "" is none.
	Start string
	// Data is what the host copies into a new instance's memory, in this
	// order, before Start; empty if the segments stayed in the module. They
	// lie within MemoryMin pages.
	Data []wasmbin.Segment
	// MemoryMin and MemoryMax are the limits of the original's memory, in
	// pages; without a maximum MemoryMax is 65536. The compiled module's own
	// maximum is always 65536: who allocates memory keeps the limit.
	MemoryMin, MemoryMax uint32

	compiled wazero.CompiledModule
}

// Compiled is the rewritten module in the runtime it was loaded for. It lives
// until Close.
func (m *Module) Compiled() wazero.CompiledModule { return m.compiled }

// Digest is the SHA-256 of a module's bytes, in hex.
func Digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// Close frees the machine code. No instance may be running.
func (m *Module) Close(ctx context.Context) error { return m.compiled.Close(ctx) }
