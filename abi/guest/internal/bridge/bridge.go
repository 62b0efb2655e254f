// Package bridge joins the native build of package guest with the test host
// that runs it (package guesttest): the functions of the ABI as a Go interface,
// and the entry points that a Wasm module would export. It owns no behaviour.
package bridge

// Host is runner_v1 with Go's strings and slices in place of pointers and
// lengths. A method that unwinds the guest does not return.
type Host interface {
	Attempt() int32
	Compensate() int32
	Enqueue(b []byte) int32
	Fail(kind uint32, b []byte) int32
	Features() uint64
	HTTPFetch(b []byte) int32
	Input() int32
	Invoke(b []byte, limit int32) int32
	InvokeResult(i int32) int32
	Log(level uint32, line string)
	Meta() int32
	Now() int64
	Output(b []byte) int32
	Progress(permille int32, note string)
	Publish(topic, key string, b []byte) int32
	Random(p []byte)
	ResultLen() int32
	ResultRead(p []byte, off int32) int32
	Secret(name string) int32
	Sleep(name string, ms int64) int32
	SleepUntil(name string, ms int64) int32
	StepBegin(name string, flags uint32) int32
	StepEnd(b []byte) int32
	StepFail(kind uint32, b []byte) int32
	WaitEvent(name, topic, key string, ms int64) int32
}

// Guest is what a module exports.
type Guest struct {
	Describe func(Host) int32
	Run      func(handler int32, h Host) int32
	Warm     func() int32
}

// Native is set by package guest when it is built for anything but Wasm, before
// any test runs.
var Native Guest
