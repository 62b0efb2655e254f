package abi

// Version is the contract that this package states. It is part of the import
// module's name: a breaking change is runner_v2, served beside runner_v1.
const Version = 1

// ImportModule is the module name under which a host serves the functions of
// Imports.
const ImportModule = "runner_v1"

// Names of the functions a guest may import from ImportModule.
const (
	FuncAttempt      = "attempt"
	FuncCompensate   = "compensate"
	FuncEnqueue      = "enqueue"
	FuncFail         = "fail"
	FuncFeatures     = "features"
	FuncHTTPFetch    = "http_fetch"
	FuncInput        = "input"
	FuncInvoke       = "invoke"
	FuncInvokeResult = "invoke_result"
	FuncLog          = "log"
	FuncMeta         = "meta"
	FuncNow          = "now"
	FuncOutput       = "output"
	FuncProgress     = "progress"
	FuncPublish      = "publish"
	FuncRandom       = "random"
	FuncResultLen    = "result_len"
	FuncResultRead   = "result_read"
	FuncSecret       = "secret"
	FuncSleep        = "sleep"
	FuncSleepUntil   = "sleep_until"
	FuncSQL          = "sql"
	FuncStepBegin    = "step_begin"
	FuncStepEnd      = "step_end"
	FuncStepFail     = "step_fail"
	FuncWaitEvent    = "wait_event"
)

// Names of what a guest exports.
const (
	ExportDescribe   = "runner_describe"
	ExportInitialize = "_initialize"
	ExportMemory     = "memory"
	ExportRun        = "runner_run"
	ExportWarm       = "runner_warm"
)

// ValType is a core value type as it is encoded in a module.
type ValType byte

// The only two types that cross the boundary.
const (
	I32 ValType = 0x7f
	I64 ValType = 0x7e
)

// String is the type's name in the text format.
func (t ValType) String() string {
	switch t {
	case I32:
		return "i32"
	case I64:
		return "i64"
	case 0x7d:
		return "f32"
	case 0x7c:
		return "f64"
	case 0x7b:
		return "v128"
	case 0x70:
		return "funcref"
	case 0x6f:
		return "externref"
	}
	return "unknown"
}

// Func is a function of the contract: its name and signature.
type Func struct {
	Name     string
	Params   []ValType
	Results  []ValType
	Optional bool // a guest may leave an optional export out
}

// Signature is the function's type in the text format, as in "(i32 i32) -> i32".
func (f Func) Signature() string { return Signature(f.Params, f.Results) }

// Signature formats a function type, as in "(i32 i64) -> i32" or "() -> ()".
func Signature(params, results []ValType) string {
	b := []byte{'('}
	for i, p := range params {
		if i > 0 {
			b = append(b, ' ')
		}
		b = append(b, p.String()...)
	}
	b = append(b, ") -> "...)
	switch len(results) {
	case 0:
		return string(append(b, "()"...))
	case 1:
		return string(append(b, results[0].String()...))
	}
	b = append(b, '(')
	for i, r := range results {
		if i > 0 {
			b = append(b, ' ')
		}
		b = append(b, r.String()...)
	}
	return string(append(b, ')'))
}

var (
	none    = []ValType{}
	one     = []ValType{I32}
	two     = []ValType{I32, I32}
	three   = []ValType{I32, I32, I32}
	twoLong = []ValType{I32, I32, I64}
	long    = []ValType{I64}
)

// Imports are the functions that a host serves under ImportModule, sorted by
// name. The text of each says what it takes and answers; (p, n) is a pointer
// and a length, "last result" is what result_len and result_read then serve.
var Imports = []Func{
	// attempt() -> n: the number of this attempt, from 1.
	{FuncAttempt, none, one, false},
	// compensate() -> length: the name of the completed step to undo now is the last result, and its undoing is open, to be ended by step_end or step_fail; 0: there is nothing to undo.
	{FuncCompensate, none, one, false},
	// enqueue(p, n) -> length: JSON EnqueueParams, or an array of them; last result is the JSON array of EnqueueResult.
	{FuncEnqueue, two, one, false},
	// fail(kind, p, n) -> 0: JSON Failure with FailureKind; runner_run then returns RunFailed.
	{FuncFail, three, one, false},
	// features() -> bits: the Features this host serves.
	{FuncFeatures, none, long, false},
	// http_fetch(p, n) -> length: JSON HTTPRequest, inside a step only; last result is the JSON HTTPResponse.
	{FuncHTTPFetch, two, one, false},
	// input() -> length: the run's input JSON as last result.
	{FuncInput, none, one, false},
	// invoke(p, n, limit) -> count: JSON EnqueueParams of a child run, or an array of them; returns once all have settled, at most limit of which are live at a time (0: the host's limit).
	{FuncInvoke, three, one, false},
	// invoke_result(i) -> length | CodeFailed: the output of the i-th child of the latest invoke, from 0, is the last result; of one that failed, its JSON Failure.
	{FuncInvokeResult, []ValType{I32}, one, false},
	// log(level, p, n): a line for the operator.
	{FuncLog, three, none, false},
	// meta() -> length: JSON Meta as last result.
	{FuncMeta, none, one, false},
	// now() -> unix nanoseconds: the run's clock outside a step, real inside.
	{FuncNow, none, long, false},
	// output(p, n) -> 0: the run's result as JSON; the last call wins.
	{FuncOutput, two, one, false},
	// progress(permille, p, n): how far the run is, with a note; the latest wins.
	{FuncProgress, three, none, false},
	// publish(topic, n, key, n, p, n) -> 0: an event with a JSON payload, committed as an enqueue is; the key may be empty.
	{FuncPublish, []ValType{I32, I32, I32, I32, I32, I32}, one, false},
	// random(p, n): the run's generator outside a step, real inside.
	{FuncRandom, two, none, false},
	// result_len() -> length of the last result.
	{FuncResultLen, none, one, false},
	// result_read(p, cap, off) -> copied: min(cap, length-off) bytes of the last result.
	{FuncResultRead, three, one, false},
	// secret(name, n) -> length | CodeDenied: the secret's value as last result.
	{FuncSecret, two, one, false},
	// sleep(name, n, ms) -> 0 once elapsed; until then the guest is unwound and the run suspended.
	{FuncSleep, twoLong, one, false},
	// sleep_until(name, n, unix_ms) -> 0 once that instant is reached; until then as sleep.
	{FuncSleepUntil, twoLong, one, false},
	// sql(p, n) -> length: a statement against a granted database, inside a step only.
	{FuncSQL, two, one, false},
	// step_begin(name, n, flags) -> StepState; for StepDone and StepFailed the record is the last result.
	{FuncStepBegin, three, one, false},
	// step_end(p, n) -> 0 once the step's JSON output is durable.
	{FuncStepEnd, two, one, false},
	// step_fail(kind, p, n) -> 0 when the failure is final and recorded; otherwise the guest is unwound for a retry.
	{FuncStepFail, three, one, false},
	// wait_event(name, n, topic, n, key, n, ms) -> length of the payload | CodeTimeout; until then unwound. An empty key takes events of any.
	{FuncWaitEvent, []ValType{I32, I32, I32, I32, I32, I32, I64}, one, false},
}

// Exports are the functions that a host calls in a guest. The memory named
// ExportMemory is required as well.
var Exports = []Func{
	// _initialize(): once, before the image is taken.
	{ExportInitialize, none, none, true},
	// runner_describe() -> 0: calls output with a JSON Description.
	{ExportDescribe, none, one, false},
	// runner_run(handler) -> RunDone | RunFailed: runs the handler at that index of the Description.
	{ExportRun, one, one, false},
	// runner_warm() -> 0: fills caches before the image is taken; it may only log and ask for time and randomness.
	{ExportWarm, none, one, true},
}

// Module names under which a host serves what common toolchains import besides
// Imports: WASIImports, the part of WASI preview 1 that keeps no state (any
// function of it may be imported; those that need files or sockets answer
// ENOSYS or EBADF), and EnvImports, the runtime hooks of AssemblyScript.
const (
	WASIModule = "wasi_snapshot_preview1"
	EnvModule  = "env"
)
