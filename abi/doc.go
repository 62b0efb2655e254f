// Package abi is the contract between a host and the guests it runs: the names
// and signatures of the functions that cross the boundary, the codes and value
// types they carry, the limits both sides keep, and the two small interface
// families Calls and Guest that the two halves of the runner meet in.
//
// It imports nothing but the standard library, so that a guest compiled to
// Wasm, a host on any runtime and a test that runs neither share one set of
// words. How values become bytes in linear memory is package abi/wire; whether
// an implementation keeps the contract is package abi/abitest.
//
// # Shape of the boundary
//
// The guest imports the functions of module runner_v1 (see Imports) and exports
// runner_describe and runner_run (see Exports). Only i32 and i64 cross.
// Strings and JSON are UTF-8 as (pointer, length). The host never calls the
// guest inside a host call and never asks it for memory: a call that yields
// bytes stores them as the instance's last result and returns their length,
// and result_read copies them out.
//
//	guest                                host
//	input()                  ────────▶   last result = input bytes
//	              ◀────────  17
//	result_read(ptr, 17, 0)  ────────▶   copies 17 bytes to ptr
//	              ◀────────  17
//
// # Three kinds of answer
//
// A call that worked answers 0 or more. An expected refusal answers a negative
// Code, and where it says so leaves a JSON Failure as the last result. A guest
// that breaks the contract (a pointer outside its memory, a step inside a step)
// gets no answer: it is unwound, and the attempt fails as a Violation, which no
// retry can mend.
package abi
