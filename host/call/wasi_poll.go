package call

import (
	"context"
	"encoding/binary"
	"math"
	"time"

	"github.com/tetratelabs/wazero/api"

	"github.com/jobrunner/runner/abi"
)

// poll_oneoff(in, out, n, events): waits for the earliest of the clocks asked
// for. Outside a step the guest's clock jumps there; inside, it really waits,
// and no longer than the attempt. Other kinds of event never happen.
//
//	in    n subscriptions of 48 bytes: userdata u64, kind u8 (0 is a clock),
//	      at 16 the clock u32, at 24 the time u64, at 40 flags u16 (1 is absolute)
//	out   1 event of 32 bytes: userdata u64, error u16, kind u8
func wasiPoll(s *State, mem api.Memory, stack []uint64) {
	n := uint32(stack[2])
	if n == 0 || n > maxVectors {
		stack[0] = wasiINVAL
		return
	}
	in := s.view(mem, "poll_oneoff", stack[0], uint64(n)*48)
	now := s.clock.now()
	wait, first := int64(math.MaxInt64), -1
	for i := range int(n) {
		sub := in[i*48:]
		if sub[8] != 0 {
			continue
		}
		d := int64(min(binary.LittleEndian.Uint64(sub[24:]), math.MaxInt64))
		if sub[40]&1 != 0 {
			d -= now
		}
		if d = max(d, 0); first < 0 || d < wait {
			wait, first = d, i
		}
	}
	if first < 0 {
		stack[0] = wasiINVAL
		return
	}
	var userdata [8]byte
	copy(userdata[:], in[first*48:])
	d := time.Duration(min(wait, int64(abi.MaxSleep)))
	if s.inStep {
		s.wait(d)
	} else {
		s.clock.advance(d)
	}
	out := s.view(mem, "poll_oneoff", stack[1], 32)
	clear(out)
	copy(out, userdata[:])
	s.putUint32(mem, "poll_oneoff", stack[3], 1)
	stack[0] = wasiOK
}

// wait lets real time pass.
func (s *State) wait(d time.Duration) {
	if d == 0 {
		s.yield()
		return
	}
	s.leave()
	t := time.NewTimer(d)
	select {
	case <-t.C:
	case <-s.Done():
		t.Stop()
		s.unwind(context.Cause(s.Context))
	}
	s.enter()
}
