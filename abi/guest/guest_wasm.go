//go:build wasip1

package guest

import "unsafe"

// host is runner_v1. Its methods do what the functions of package abi's Imports
// do; a call that suspends the run or ends the attempt does not return.
type host struct{}

// scratch is the buffer that a Ctx starts with; the image has it, so that an
// attempt need not ask for it.
var scratch = make([]byte, minBuffer)

func buffer() []byte { return scratch }

//go:wasmexport runner_describe
func exportDescribe() int32 { return describe(host{}) }

//go:wasmexport runner_run
func exportRun(handler int32) int32 { return run(handler, host{}) }

//go:wasmexport runner_warm
func exportWarm() int32 { return warm() }

func sp(s string) (unsafe.Pointer, uint32) {
	return unsafe.Pointer(unsafe.StringData(s)), uint32(len(s))
}
func bp(b []byte) (unsafe.Pointer, uint32) {
	return unsafe.Pointer(unsafe.SliceData(b)), uint32(len(b))
}

//go:wasmimport runner_v1 attempt
func hostAttempt() int32

//go:wasmimport runner_v1 compensate
func hostCompensate() int32

//go:wasmimport runner_v1 enqueue
func hostEnqueue(p unsafe.Pointer, n uint32) int32

//go:wasmimport runner_v1 fail
func hostFail(kind uint32, p unsafe.Pointer, n uint32) int32

//go:wasmimport runner_v1 features
func hostFeatures() uint64

//go:wasmimport runner_v1 http_fetch
func hostHTTPFetch(p unsafe.Pointer, n uint32) int32

//go:wasmimport runner_v1 input
func hostInput() int32

//go:wasmimport runner_v1 invoke
func hostInvoke(p unsafe.Pointer, n uint32, limit int32) int32

//go:wasmimport runner_v1 invoke_result
func hostInvokeResult(i int32) int32

//go:wasmimport runner_v1 log
func hostLog(level uint32, p unsafe.Pointer, n uint32)

//go:wasmimport runner_v1 meta
func hostMeta() int32

//go:wasmimport runner_v1 now
func hostNow() int64

//go:wasmimport runner_v1 output
func hostOutput(p unsafe.Pointer, n uint32) int32

//go:wasmimport runner_v1 progress
func hostProgress(permille int32, p unsafe.Pointer, n uint32)

//go:wasmimport runner_v1 publish
func hostPublish(topic unsafe.Pointer, tn uint32, key unsafe.Pointer, kn uint32, p unsafe.Pointer, n uint32) int32

//go:wasmimport runner_v1 random
func hostRandom(p unsafe.Pointer, n uint32)

//go:wasmimport runner_v1 result_len
func hostResultLen() int32

//go:wasmimport runner_v1 result_read
func hostResultRead(p unsafe.Pointer, n uint32, off int32) int32

//go:wasmimport runner_v1 secret
func hostSecret(p unsafe.Pointer, n uint32) int32

//go:wasmimport runner_v1 sleep
func hostSleep(p unsafe.Pointer, n uint32, ms int64) int32

//go:wasmimport runner_v1 sleep_until
func hostSleepUntil(p unsafe.Pointer, n uint32, ms int64) int32

//go:wasmimport runner_v1 step_begin
func hostStepBegin(p unsafe.Pointer, n uint32, flags uint32) int32

//go:wasmimport runner_v1 step_end
func hostStepEnd(p unsafe.Pointer, n uint32) int32

//go:wasmimport runner_v1 step_fail
func hostStepFail(kind uint32, p unsafe.Pointer, n uint32) int32

//go:wasmimport runner_v1 wait_event
func hostWaitEvent(name unsafe.Pointer, nn uint32, topic unsafe.Pointer, tn uint32, key unsafe.Pointer, kn uint32, ms int64) int32

func (host) Attempt() int32 { return hostAttempt() }

func (host) Compensate() int32 { return hostCompensate() }

func (host) Enqueue(b []byte) int32 {
	p, n := bp(b)
	return hostEnqueue(p, n)
}

func (host) Fail(kind uint32, b []byte) int32 {
	p, n := bp(b)
	return hostFail(kind, p, n)
}

func (host) Features() uint64 { return hostFeatures() }

func (host) HTTPFetch(b []byte) int32 {
	p, n := bp(b)
	return hostHTTPFetch(p, n)
}

func (host) Input() int32 { return hostInput() }

func (host) Invoke(b []byte, limit int32) int32 {
	p, n := bp(b)
	return hostInvoke(p, n, limit)
}

func (host) InvokeResult(i int32) int32 { return hostInvokeResult(i) }

func (host) Log(level uint32, line string) {
	p, n := sp(line)
	hostLog(level, p, n)
}

func (host) Meta() int32 { return hostMeta() }

func (host) Now() int64 { return hostNow() }

func (host) Output(b []byte) int32 {
	p, n := bp(b)
	return hostOutput(p, n)
}

func (host) Progress(permille int32, note string) {
	p, n := sp(note)
	hostProgress(permille, p, n)
}

func (host) Publish(topic, key string, b []byte) int32 {
	tp, tn := sp(topic)
	kp, kn := sp(key)
	p, n := bp(b)
	return hostPublish(tp, tn, kp, kn, p, n)
}

func (host) Random(b []byte) {
	p, n := bp(b)
	hostRandom(p, n)
}

func (host) ResultLen() int32 { return hostResultLen() }

func (host) ResultRead(b []byte, off int32) int32 {
	p, n := bp(b)
	return hostResultRead(p, n, off)
}

func (host) Secret(name string) int32 {
	p, n := sp(name)
	return hostSecret(p, n)
}

func (host) Sleep(name string, ms int64) int32 {
	p, n := sp(name)
	return hostSleep(p, n, ms)
}

func (host) SleepUntil(name string, ms int64) int32 {
	p, n := sp(name)
	return hostSleepUntil(p, n, ms)
}

func (host) StepBegin(name string, flags uint32) int32 {
	p, n := sp(name)
	return hostStepBegin(p, n, flags)
}

func (host) StepEnd(b []byte) int32 {
	p, n := bp(b)
	return hostStepEnd(p, n)
}

func (host) StepFail(kind uint32, b []byte) int32 {
	p, n := bp(b)
	return hostStepFail(kind, p, n)
}

func (host) WaitEvent(name, topic, key string, ms int64) int32 {
	np, nn := sp(name)
	tp, tn := sp(topic)
	kp, kn := sp(key)
	return hostWaitEvent(np, nn, tp, tn, kp, kn, ms)
}
