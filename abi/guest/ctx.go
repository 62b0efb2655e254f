package guest

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/abi/wire"
)

// Ctx is a handler's way to its host, for one attempt and one goroutine.
type Ctx struct {
	h    host
	meta *abi.Meta      // once asked for
	used map[string]int // names of steps, sleeps and waits, and how often each
	buf  []byte         // reused for what the host answers
	undo []pending      // completed steps that can be undone, in the order of their completion
}

// Attempt is the number of this attempt, from 1. Waiting does not raise it.
func (c *Ctx) Attempt() int { return int(c.h.Attempt()) }

// MaxAttempts is how many attempts the run has in all.
func (c *Ctx) MaxAttempts() int { return c.Meta().MaxAttempts }

// FinalAttempt reports whether a failure now would be the run's last.
func (c *Ctx) FinalAttempt() bool { return c.Attempt() >= c.MaxAttempts() }

// RunID is the run's id, the same in every attempt.
func (c *Ctx) RunID() string { return c.Meta().RunID }

// Job is the name of the job in the manifest, which need not be the handler's.
func (c *Ctx) Job() string { return c.Meta().Job }

// Queue is the queue that the run came from.
func (c *Ctx) Queue() string { return c.Meta().Queue }

// Tenant is whom the run works for, or "" for nobody in particular.
func (c *Ctx) Tenant() string { return c.Meta().Tenant }

// Deadline is when this attempt will be stopped, and whether it has one.
func (c *Ctx) Deadline() (time.Time, bool) {
	d := c.Meta().Deadline
	return d, !d.IsZero()
}

// Meta is everything the host says about the run. It is read once per attempt,
// on first use.
func (c *Ctx) Meta() abi.Meta {
	if c.meta == nil {
		m, err := wire.ReadMeta(c.result(c.h.Meta()))
		if err != nil {
			panic("guest: the host's meta cannot be read: " + err.Error())
		}
		c.meta = &m
	}
	return *c.meta
}

// Now is the run's clock: between steps the instant at which the run first got
// there, the same in every attempt; inside a step the real time.
func (c *Ctx) Now() time.Time { return time.Unix(0, c.h.Now()).UTC() }

// Random fills p with random bytes: between steps the same in every attempt,
// different in every run; inside a step unpredictable.
func (c *Ctx) Random(p []byte) {
	if len(p) > 0 {
		c.h.Random(p)
	}
}

// Rand is a generator over Random.
func (c *Ctx) Rand() *rand.Rand { return rand.New(source{c}) }

type source struct{ c *Ctx }

func (s source) Uint64() uint64 {
	var b [8]byte
	s.c.Random(b[:])
	return binary.LittleEndian.Uint64(b[:])
}

// Level is a log line's severity.
type Level = abi.Level

// The levels of a log line.
const (
	LevelDebug = abi.LevelDebug
	LevelInfo  = abi.LevelInfo
	LevelWarn  = abi.LevelWarn
	LevelError = abi.LevelError
)

// Log writes a line for the operator, at level info. Lines between steps that
// an earlier attempt wrote are not written again.
func (c *Ctx) Log(line string) { c.h.Log(uint32(LevelInfo), line) }

// Logf is Log with a format as in package fmt.
func (c *Ctx) Logf(format string, args ...any) { c.Log(fmt.Sprintf(format, args...)) }

// LogAt is Log at another level.
func (c *Ctx) LogAt(level Level, line string) { c.h.Log(uint32(level), line) }

// Progress says how far the run is, from 0 to 1, and what it is doing. The
// latest counts; a fraction that is not a number is dropped.
func (c *Ctx) Progress(fraction float64, note string) {
	if !math.IsNaN(fraction) {
		c.h.Progress(int32(math.Round(1000*min(max(fraction, 0), 1))), note)
	}
}

// Secret is the value of a secret that the manifest grants; otherwise the error
// is ErrDenied. It is for use, not for keeping: do not return it from a step.
func (c *Ctx) Secret(name string) (string, error) {
	n := c.h.Secret(name)
	if n < 0 {
		return "", c.refused(abi.FuncSecret, n)
	}
	return string(c.result(n)), nil
}

// Features says which optional functions this host has.
func (c *Ctx) Features() abi.Features { return abi.Features(c.h.Features()) }

// unique is name on its first use in this attempt, name#2 on its second, and so
// on, passing over names that were used as such.
func (c *Ctx) unique(name string) string {
	if c.used == nil {
		c.used = make(map[string]int, 8)
	}
	n := c.used[name] + 1
	c.used[name] = n
	if n == 1 {
		return name
	}
	for {
		s := name + "#" + strconv.Itoa(n)
		if c.used[s] == 0 {
			c.used[name], c.used[s] = n, 1
			return s
		}
		n++
	}
}

// result is the host's last result of n bytes. It is valid until the next.
func (c *Ctx) result(n int32) []byte {
	if n <= 0 {
		return nil
	}
	if int(n) > len(c.buf) {
		c.buf = make([]byte, max(int(n), minBuffer))
	}
	return c.buf[:c.h.ResultRead(c.buf[:n], 0)]
}

// minBuffer is how much of a result is read without asking for more memory.
const minBuffer = 4 << 10

// refused is the negative answer code of fn as an error. A run that is undone
// goes no further: its handler ends here.
func (c *Ctx) refused(fn string, code int32) error {
	e := &HostError{Func: fn, Answer: abi.Code(code)}
	if e.Answer == abi.CodeUnwinding {
		panic(e)
	}
	if e.Answer == abi.CodeInsideStepOnly || e.Answer == abi.CodeOutsideStepOnly {
		return e // the last result is still that of an earlier call
	}
	if f, err := wire.ReadFailure(c.result(c.h.ResultLen())); err == nil {
		e.Code, e.Message, e.Fix = Code(f.Code), f.Message, f.Fix
	}
	return e
}

// encode is v as JSON for the argument of a host call.
func encode(what string, v any) ([]byte, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, Terminal(fmt.Errorf("%s cannot be written as JSON: %w", what, err))
	}
	return b, nil
}
