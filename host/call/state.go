package call

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/sys"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/abi/wire"
)

// Capabilities are the accesses to the outside that a module was granted. Its
// methods are safe for concurrent use; errors are those of abi.Calls.
type Capabilities interface {
	// Features are the bits of what was granted.
	Features() abi.Features
	// Fetch makes an HTTP request with that body and answers the response and
	// its body; the bodies in the structs are not used.
	Fetch(ctx context.Context, r abi.HTTPRequest, content []byte) (abi.HTTPResponse, []byte, error)
	// Secret is the value of a granted secret.
	Secret(ctx context.Context, name string) (string, error)
	// Environ are the environment variables a guest sees, as "name=value".
	Environ() []string
}

// State is the state of one call into a guest, and the context of it. It is
// used by one goroutine.
type State struct {
	context.Context // the attempt's; what methods of abi.Calls get

	calls   abi.Calls // nil while the module is brought up: only a few functions work then
	caps    Capabilities
	slots   *Slots // nil: none needed
	attempt *abi.Attempt
	quantum uint32

	result   []byte             // last result
	children []abi.InvokeResult // of the latest invoke
	output   []byte
	hasOut   bool
	failure  *abi.Failure
	step     string // the open step
	inStep   bool
	names    stepSeen // steps begun so far
	clock    clock
	random   random
	stdio    stdio
	secrets  []string // values read so far, to be kept out of records and logs

	ended    ending // why the host unwound the guest
	err      error  // for stopped and violated
	exitCode uint32 // for exited
	abort    string // for aborted

	ticket  ticket        // for a slot
	inside  bool          // the guest runs
	entered time.Duration // when it last started to, as nano
	cpu     time.Duration // in the guest before that
	ticks   int           // so far, by fuel
	work    uint64        // of host functions since the last tick, as workQuantum has it

	describing bool      // the module is brought up, and in runner_describe
	recorder   *recorder // nil outside a probe
}

type ending uint8

const (
	running  ending = iota
	stopped         // a Calls method or the context ended it
	violated        // it broke the contract
	exited          // proc_exit
	aborted         // AssemblyScript's abort
)

// unwound is what host functions panic with: wazero passes an ExitError on
// without building a stack trace, and the details are in the State. A guest
// cannot fake it, since the State decides, not the number.
var unwound = sys.NewExitError(0x5ec00001)

type stateKey struct{}

// Value is the State itself for wazero's callees. Values of the attempt's
// context stay hidden from the runtime, which changes its behaviour on some.
func (s *State) Value(key any) any {
	if key == (stateKey{}) {
		return s
	}
	return nil
}

// from is the State of a host function's context.
func from(ctx context.Context) *State {
	if s, ok := ctx.(*State); ok {
		return s
	}
	return ctx.Value(stateKey{}).(*State)
}

// start is the origin of nano.
var start = time.Now()

// nano is a monotonic reading.
func nano() time.Duration { return time.Since(start) }

// view is n bytes of guest memory at p, valid until the guest runs again or
// the host function returns. Length 0 is nothing, whatever the pointer: many
// languages leave the pointer of an empty slice dangling.
func (s *State) view(mem api.Memory, fn string, p, n uint64) []byte {
	if uint32(n) == 0 {
		return nil
	}
	s.work += uint64(uint32(n))
	b, ok := mem.Read(uint32(p), uint32(n))
	if !ok {
		s.violate(fn, "%d bytes at %#x lie outside its memory of %d bytes", uint32(n), uint32(p), mem.Size())
	}
	return b
}

// copied is a copy of what view answers; nil for length 0.
func (s *State) copied(mem api.Memory, fn string, p, n uint64) []byte {
	return append([]byte(nil), s.view(mem, fn, p, n)...)
}

// name is the argument of fn at (p, n) as a name.
func (s *State) name(mem api.Memory, fn string, p, n uint64) string {
	// A name that is too long is refused after its first bytes.
	name, err := wire.Name(fn, s.view(mem, fn, p, n))
	if err != nil {
		s.unwind(err)
	}
	return name
}

// violate unwinds the guest for a breach of the contract.
func (s *State) violate(fn, format string, args ...any) {
	s.unwind(&abi.Violation{Func: fn, Detail: fmt.Sprintf(format, args...)})
}

// unwind ends the guest with err: violated for a *abi.Violation, stopped
// otherwise.
func (s *State) unwind(err error) {
	s.ended, s.err = stopped, err
	var v *abi.Violation
	if errors.As(err, &v) {
		s.ended = violated
	}
	panic(unwound)
}

// refuse is the guest's answer to err: the code of a *abi.Refusal, whose
// failure becomes the last result. Other errors unwind.
func (s *State) refuse(err error) uint64 {
	var r *abi.Refusal
	if !errors.As(err, &r) {
		s.unwind(err)
	}
	s.result = nil
	if r.Failure.Message != "" {
		s.result = wire.AppendFailure(nil, r.Failure)
	}
	code := r.Code
	if code >= 0 { // the guest would take it for success
		code = abi.CodeFailed
	}
	return uint64(uint32(code))
}

// answer sets the last result and is its length.
func (s *State) answer(result []byte) uint64 {
	s.result = result
	return uint64(uint32(len(result)))
}

// attempting refuses what only an attempt may ask for.
func (s *State) attempting(fn string) {
	if s.calls == nil {
		s.violate(fn, "called while the module starts or describes itself; there it may only log and ask for time and randomness")
	}
}

// leave is called before a method that may wait: it stops a guest whose
// context ended, and gives its slot up.
func (s *State) leave() {
	s.stopIfEnded()
	s.leaveAnyway()
}

// leaveAnyway is leave for a call that is made even though the context ended,
// since what it reports has happened already.
func (s *State) leaveAnyway() {
	s.pause()
	if s.slots != nil {
		s.slots.release(&s.ticket)
	}
}

// leaveBriefly is leave for a method that is expected to answer from memory; if
// it does not, the slot goes to others a little later.
func (s *State) leaveBriefly() {
	s.stopIfEnded()
	s.pause()
	if s.slots != nil {
		s.slots.lend(&s.ticket)
	}
}

// enter is called after either. While it waits for a slot, the context may end.
func (s *State) enter() {
	if s.slots != nil && !s.ticket.reclaim() {
		if err := s.slots.acquire(s.Context, &s.ticket); err != nil {
			s.unwind(err)
		}
	}
	s.proceed()
}

func (s *State) stopIfEnded() {
	if s.Err() != nil {
		s.unwind(context.Cause(s.Context))
	}
}

// pause and proceed stop and start the CPU time.
func (s *State) pause() {
	if s.inside {
		s.cpu += nano() - s.entered
		s.inside = false
	}
}

func (s *State) proceed() { s.entered, s.inside = nano(), true }

// slice is how long a guest computes before it hands its slot to one that waits.
// Handing over at every tick would keep the scheduler so busy passing slots on
// that timers and other goroutines get their turn late.
const slice = 5 * time.Millisecond

// yield lets others run: the tick's work besides looking at the context.
func (s *State) yield() {
	s.pause()
	if s.slots != nil && s.slots.contended() && nano()-s.ticket.taken >= slice {
		s.slots.release(&s.ticket)
		s.enter()
		return
	}
	runtime.Gosched()
	s.proceed()
}

// stepSeen is the set of step names of an attempt. Most have a handful.
type stepSeen struct {
	buf  [4]string // what few starts in
	few  []string
	many map[string]struct{}
}

func (s *stepSeen) has(name string) bool {
	if s.many != nil {
		_, ok := s.many[name]
		return ok
	}
	for _, n := range s.few {
		if n == name {
			return true
		}
	}
	return false
}

func (s *stepSeen) add(name string) {
	switch {
	case s.many != nil:
		s.many[name] = struct{}{}
	case s.few == nil:
		s.few = append(s.buf[:0], name)
	case len(s.few) < 16:
		s.few = append(s.few, name)
	default:
		s.many = make(map[string]struct{}, 64)
		for _, n := range s.few {
			s.many[n] = struct{}{}
		}
		s.many[name] = struct{}{}
		s.few = nil
	}
}
