package call

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf16"

	"github.com/jobrunner/runner/abi"
)

// write is what a language's runtime does to print.
func (g *guest) write(fd int, text string) {
	g.t.Helper()
	p, n := g.put(text)
	iov, _ := g.put(strings.Repeat(" ", 12))
	g.mod.Memory().WriteUint32Le(uint32(iov), uint32(p))
	g.mod.Memory().WriteUint32Le(uint32(iov)+4, uint32(n))
	g.want(0, "fd_write", fd, int(iov), 1, int(iov)+8)
	if got, _ := g.mod.Memory().ReadUint32Le(uint32(iov) + 8); uint64(got) != n {
		g.t.Fatalf("fd_write wrote %d of %d bytes", got, n)
	}
}

func TestStdoutAndStderrBecomeLogLines(t *testing.T) {
	c := &fakeCalls{}
	g := begin(t, c, nil)
	g.write(1, "one\ntw")
	g.write(2, "warn\n\n")
	g.write(1, "o\nthree")
	g.state.End(Ended{})
	if got := strings.Join(c.lines, "|"); got != "1 one|2 warn|1 two|1 three" {
		t.Errorf("lines %s", got)
	}
}

func TestStdoutIsCutAt64KiB(t *testing.T) {
	c := &fakeCalls{}
	g := begin(t, c, nil)
	const total = 13 << 20
	line := strings.Repeat("y", 1023) + "\n"
	p, n := g.put(strings.Repeat(line, 512))
	iov, _ := g.put(strings.Repeat(" ", 12))
	g.mod.Memory().WriteUint32Le(uint32(iov), uint32(p))
	g.mod.Memory().WriteUint32Le(uint32(iov)+4, uint32(n))
	for range total / n {
		g.want(0, "fd_write", 1, int(iov), 1, int(iov)+8)
	}
	out, _ := g.state.End(Ended{})
	if len(c.lines) != 65 || c.lines[63] != "1 "+line[:1023] || c.lines[64] != "2 "+truncatedLine {
		t.Errorf("%d lines, the last %.80q", len(c.lines), c.lines[len(c.lines)-1])
	}
	if u := out.Usage; u.StdioBytes != total || u.StdioDropped != total-abi.MaxStdio {
		t.Errorf("usage %+v", u)
	}
}

func TestALineWithoutAnEndIsCut(t *testing.T) {
	c := &fakeCalls{}
	g := begin(t, c, nil)
	for range 3 {
		g.write(1, strings.Repeat("z", 5<<10))
	}
	g.write(1, "\nnext\n")
	if len(c.lines) != 2 || c.lines[0] != "1 "+strings.Repeat("z", abi.MaxLogLine) || c.lines[1] != "1 next" {
		t.Errorf("%d lines: %.40q", len(c.lines), c.lines)
	}
}

func TestTheEndOfStderrIsKept(t *testing.T) {
	g := begin(t, &fakeCalls{}, nil)
	for i := range 40_000 {
		if i%1000 == 0 {
			g.next = 1024
		}
		g.write(2, fmt.Sprintln("line", i))
	}
	tail := g.state.stderrTail()
	if len(tail) > maxTail || !strings.HasSuffix(tail, "line 39998\nline 39999\n") || len(tail) < maxTail-16 {
		t.Errorf("%d bytes of tail: %.40q", len(tail), tail)
	}
}

func TestNoOtherDescriptorIsOpen(t *testing.T) {
	g := begin(t, &fakeCalls{}, nil)
	g.want(wasiBADF, "fd_write", 3, 0, 0, 0)
	g.want(wasiBADF, "fd_write", 0, 0, 0, 0)
	g.want(wasiBADF, "fd_fdstat_get", 3, 1024)
	g.want(wasiBADF, "fd_close", 1)
	g.want(wasiBADF, "fd_read", 0, 0, 0, 0)
	g.want(wasiNOSYS, "path_open", 3, 0, 0, 0, 0, 0, 0, 0, 0)
	g.want(0, "fd_fdstat_get", 1, 1024)
}

func TestHostileVectorsAreRefused(t *testing.T) {
	g := begin(t, &fakeCalls{}, nil)
	g.want(wasiINVAL, "fd_write", 1, 0, maxVectors+1, 0)
	g.want(wasiINVAL, "poll_oneoff", 0, 0, 0, 0)
	g.want(wasiINVAL, "poll_oneoff", 0, 0, maxVectors+1, 0)
	g.violates("lie outside", "fd_write", 1, 0xfffffff8, 2, 0)
}

func TestEnvironmentIsWhatWasGranted(t *testing.T) {
	g := begin(t, &fakeCalls{}, fakeCaps{env: []string{"A=1", "LONG=value"}})
	p, _ := g.put(strings.Repeat(" ", 64))
	g.want(0, "environ_sizes_get", int(p), int(p)+4)
	count, _ := g.mod.Memory().ReadUint32Le(uint32(p))
	size, _ := g.mod.Memory().ReadUint32Le(uint32(p) + 4)
	if count != 2 || size != 15 {
		t.Errorf("%d variables in %d bytes", count, size)
	}
	g.want(0, "environ_get", int(p), int(p)+8)
	text, _ := g.mod.Memory().Read(uint32(p)+8, size)
	second, _ := g.mod.Memory().ReadUint32Le(uint32(p) + 4)
	if string(text) != "A=1\x00LONG=value\x00" || second != uint32(p)+8+4 {
		t.Errorf("environment %q, second at +%d", text, second-uint32(p))
	}
	g.want(0, "args_sizes_get", int(p), int(p)+4)
	if n, _ := g.mod.Memory().ReadUint32Le(uint32(p)); n != 0 {
		t.Errorf("%d arguments", n)
	}
}

// sub writes a clock subscription.
func (g *guest) sub(at uint32, userdata uint64, d time.Duration, absolute bool) {
	b := make([]byte, 48)
	binary.LittleEndian.PutUint64(b, userdata)
	binary.LittleEndian.PutUint64(b[24:], uint64(d))
	if absolute {
		b[40] = 1
	}
	g.mod.Memory().Write(at, b)
}

func TestPollOutsideAStepJumps(t *testing.T) {
	g := begin(t, &fakeCalls{}, nil)
	p, _ := g.put(strings.Repeat(" ", 200))
	g.sub(uint32(p), 1, 5*time.Hour, false)
	g.sub(uint32(p)+48, 2, time.Duration(epoch.Add(time.Hour).UnixNano()), true)
	g.want(0, "poll_oneoff", int(p), int(p)+96, 2, int(p)+160)
	who, _ := g.mod.Memory().ReadUint64Le(uint32(p) + 96)
	n, _ := g.mod.Memory().ReadUint32Le(uint32(p) + 160)
	if who != 2 || n != 1 {
		t.Errorf("%d events, the first for subscription %d", n, who)
	}
	if got := time.Unix(0, g.call(abi.FuncNow)).UTC(); got.Before(epoch.Add(time.Hour)) || got.After(epoch.Add(time.Hour+time.Millisecond)) {
		t.Errorf("the clock is %v", got)
	}
}

func TestPollInsideAStepReallyWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeoutCause(context.Background(), time.Minute, errUp)
		defer cancel()
		s, _ := Begin(ctx, BeginParams{Attempt: &abi.Attempt{}, Calls: &fakeCalls{}, Capabilities: fakeCaps{}, Slots: NewSlots(1)})
		s.Enter()
		before := time.Now()
		s.wait(3 * time.Second)
		if got := time.Since(before); got != 3*time.Second {
			t.Errorf("waited %v", got)
		}
		func() {
			defer func() { _ = recover() }()
			s.wait(time.Hour)
		}()
		if s.ended != stopped || s.err != errUp || time.Since(before) != time.Minute {
			t.Errorf("after %v: ended %v, error %v", time.Since(before), s.ended, s.err)
		}
		if s.slots.InUse() != 0 {
			t.Error("a slot is still taken")
		}
		if out, _ := s.End(Ended{}); out.Usage.CPU != 0 {
			t.Errorf("waiting counted as %v of CPU", out.Usage.CPU)
		}
	})
}

var errUp = errors.New("time is up")

func TestAssemblyScriptHooks(t *testing.T) {
	c := &fakeCalls{}
	g := begin(t, c, nil)
	str := func(s string) uint64 {
		units := utf16.Encode([]rune(s))
		b := binary.LittleEndian.AppendUint32(nil, uint32(2*len(units)))
		for _, u := range units {
			b = binary.LittleEndian.AppendUint16(b, u)
		}
		p, _ := g.put(string(b))
		return p + 4
	}
	g.call("trace", str("at ü"), 1, 0x3ff8000000000000, 0, 0, 0, 0)
	if len(c.lines) != 1 || c.lines[0] != "0 at ü 1.5" {
		t.Errorf("trace logs %q", c.lines)
	}
	g.call("trace", 0xffffffff, 9, 0, 0, 0, 0, 0) // no string, too many numbers
	if _, unwound := g.try("abort", str("boom"), str("main.ts"), 3, 4); !unwound {
		t.Fatal("abort returned")
	}
	out, _ := g.state.End(Ended{Err: unwound})
	if out.Failure.Code != abi.CodeGuestTrap || out.Failure.Kind != abi.FailRetry || !strings.Contains(out.Failure.Message, "boom (main.ts:3:4)") {
		t.Errorf("outcome %+v", out)
	}
}
