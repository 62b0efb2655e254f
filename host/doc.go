// Package host loads handler modules and runs attempts of them on wazero, each
// in memory that no other attempt has written.
//
// It is the facade of the rooms below: module turns bytes into machine code,
// instance owns memory, call the functions a guest imports, capability what it
// may touch outside. The facade wires them, shares what can be shared, and puts
// the pieces of one attempt in order. It knows no queue and no database: what
// steps and timers mean is the abi.Calls that comes with each Run.
//
// # One attempt
//
//	slot ── instance ── runner_run ── outcome ── reset (behind the caller's back)
//
// A guest runs on one of Config.CPUSlots slots, and gives it back while it
// waits in a call. What a guest does wrong ends as its Outcome: it neither
// hurts another attempt nor the process. Compiled code cannot be interrupted,
// so every module is rewritten to visit its host about every 0.2 ms; a guest
// that is not rewritten is never run.
//
// # Sharing
//
// Modules are shared by digest; their templates (the booted memory image and
// its instances) by digest, memory limit and grants, since a guest may read its
// environment while it boots. What is shared lives until its last Guest is
// closed and its last attempt over.
package host
