// Package wire turns the values of package abi into bytes and back, and is the
// one place where the limits of the contract are checked: the length and
// alphabet of names, the validity, depth and size of JSON, the range of
// durations, priorities and counts.
//
// It works on byte slices and knows no linear memory, so that a host, the
// native test build of an SDK and a test all apply the same rules. Reading
// those slices out of a guest's memory, and copying them, is the host's work;
// what an accepted value then does is the business of whoever implements
// abi.Calls.
//
// # Two kinds of refusal
//
// A decoder of a guest's argument answers a *abi.Violation where the guest (or
// rather its SDK) is broken: bytes that are not UTF-8 or not JSON, an unknown
// failure kind, an unknown step flag. It answers a *abi.Refusal where a sound
// guest was given bad data and can handle the answer: an input that is too
// large, a priority that does not exist.
//
// # Unknown fields
//
// A request with a field this package does not know is refused with
// abi.CodeInvalid and the field's name, since dropping an option would silently
// change what was asked for. An answer (Meta, EnqueueResult, HTTPResponse) and
// a Description may grow fields; readers ignore those they do not know.
package wire
