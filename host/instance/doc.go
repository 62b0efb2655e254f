// Package instance owns the instances of a module and the memory they run in:
// making them, handing each attempt one whose memory no other attempt has
// written, taking it back, and bounding what idle ones keep.
//
// It is the only room that imports wazero's experimental packages, and the
// only one that maps memory. What a guest may call, and what the end of a call
// means, is host/call; which bytes may become a module is host/module.
//
// # From a module to an attempt
//
//	module ──boot once──▶ image ──map──▶ instance ──run──▶ used ──reset──┐
//	                                        ▲                            │
//	                                        └────────── idle ◀───────────┘
//
// A Template boots one instance (data, start function, _initialize, the
// guest's warm-up and description), then seals its memory as an image and
// remembers its globals. Every further instance maps the image privately, so
// that it costs only the pages it writes; after an attempt those pages are
// copied back. Copying is what makes reset cheap: a page that stays mapped
// costs 0.1 to 0.2 µs, a page dropped and faulted in again 5 µs.
//
// # When a reset restores everything
//
// The mutable state of an instance is its linear memory, its mutable globals,
// its tables and its dropped segments. A reset restores the first two. A module
// whose code can change the others is known from its scan
// (wasmbin.Report.FreshOnly) and gets a new instance for every attempt. So does
// one that fails the self-test, which runs the template's probe twice from a
// reset and compares memory, globals and what the guest asked of its host.
//
// # Invariants
//
//   - Memory is unmapped only while no call runs in it: a Free during a call
//     leaks the mapping instead, since compiled code would fault the process.
//   - An instance is in one place: with its caller, waiting for its reset, idle
//     or closed.
//   - The compiled module's own maximum is 65536 pages; the limit is kept here,
//     where each refusal is seen and counted, and growth by one page is always
//     left to shrink memory with.
package instance
