package instance

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/abi/wasmasm"
)

// modes are those this system can do.
func modes() []Mode {
	var out []Mode
	for m := bestMode(); m <= Fresh; m++ {
		out = append(out, m)
	}
	return out
}

func eachMode(t *testing.T, do func(t *testing.T, m Mode)) {
	for _, m := range modes() {
		t.Run(m.String(), func(t *testing.T) { do(t, m) })
	}
}

// eachModeInItsOwnTime is eachMode on a clock that stands still.
func eachModeInItsOwnTime(t *testing.T, do func(t *testing.T, m Mode)) {
	eachMode(t, func(t *testing.T, m Mode) {
		synctest.Test(t, func(t *testing.T) { do(t, m) })
	})
}

func TestNothingOfAnAttemptIsLeftForTheNext(t *testing.T) {
	eachMode(t, func(t *testing.T, m Mode) {
		l := newLab(t, Config{Mode: m}, scribbler(t, nil))
		if got, why := l.template.Mode(); got != m {
			t.Fatalf("the template resets by %s (%s)", got, why)
		}
		for _, n := range []int{0, 1, 64, 0, 100, 1000, 1001, 1072, 1000, 1005, 64, 1072} {
			l.run(n)
		}
		l.settle()
		l.run(64)
	})
}

func TestNothingIsLeftAfterATrap(t *testing.T) {
	eachMode(t, func(t *testing.T, m Mode) {
		l := newLab(t, Config{Mode: m}, scribbler(t, nil))
		for range 3 {
			in := l.acquire()
			if _, err := in.Call(context.Background(), Run, uint64(uint32(0xffffffff)), 1000); err == nil || !strings.Contains(err.Error(), "unreachable") {
				t.Fatalf("error %v", err)
			}
			in.DropFuncs()
			l.template.Release(in, false)
			l.run(10)
		}
	})
}

func TestMoreDirtyPagesThanAreCopiedAreDropped(t *testing.T) {
	eachMode(t, func(t *testing.T, m Mode) {
		l := newLab(t, Config{Mode: m, MaxDirtyPages: 16}, scribbler(t, nil))
		for _, n := range []int{8, 100, 8, 1060, 100, 15} {
			l.run(n)
		}
		l.settle()
	})
}

func TestPoolIsSafeForConcurrentUse(t *testing.T) {
	eachMode(t, func(t *testing.T, m Mode) {
		l := newLab(t, Config{Mode: m, MaxIdleBytes: 1 << 20}, scribbler(t, nil))
		var wg sync.WaitGroup
		for w := range 4 {
			wg.Add(1)
			go func() {
				defer wg.Done()
				rng := rand.New(rand.NewPCG(uint64(w), 1))
				for range 50 {
					switch rng.IntN(10) {
					case 0:
						l.pool.Trim(time.Now().Add(time.Duration(rng.IntN(120)) * time.Second))
					case 1:
						l.pool.Stats()
					case 2:
						in, err := l.template.Acquire(context.Background())
						if err != nil {
							t.Error(err)
							continue
						}
						l.template.Release(in, true)
					default:
						n := rng.IntN(60)
						if rng.IntN(4) == 0 {
							n += 1000
						}
						l.run(n)
					}
				}
			}()
		}
		wg.Wait()
		if s := l.settle(); s.Out != 0 || s.Waiting != 0 {
			t.Errorf("something is lost: %+v", s)
		}
	})
}

func TestAnUnsoundModuleGetsANewInstanceForEveryAttempt(t *testing.T) {
	l := newLab(t, Config{}, scribbler(t, func(m *wasmasm.Module) {
		m.Table(wasmasm.FuncRef, 1, 10)
		m.ExportFunc("grow", m.Func(nil, wasmasm.Types(i32), func(c *wasmasm.Code) {
			c.RefNull(wasmasm.FuncRef).I32Const(1).TableGrow(0)
		}))
	}))
	if m, why := l.template.Mode(); m != Fresh || why == "" {
		t.Fatalf("the template resets by %s (%s)", m, why)
	}
	l.run(10)
	l.run(10)
	if s := l.settle(); s.Boots != 2 || s.Idle != 0 || s.Out != 0 {
		t.Errorf("stats %+v", s)
	}
}

// The self-test stands behind the scan: here a probe that differs each time
// stands for state that the scan overlooked.
func TestAModuleThatFailsTheSelfTestGetsNewInstances(t *testing.T) {
	l := newLab(t, Config{}, scribbler(t, nil))
	calls := byte(0)
	p := l.params
	p.Probe = func(context.Context, *Instance) ([]byte, error) { calls++; return []byte{calls}, nil }
	tpl, err := l.pool.NewTemplate(context.Background(), p)
	if err != nil {
		t.Fatal(err)
	}
	if m, why := tpl.Mode(); m != Fresh || !strings.Contains(why, "behaves differently") {
		t.Errorf("the template resets by %s (%s)", m, why)
	}
}

func TestTheSelfTestSeesMemoryAndGlobals(t *testing.T) {
	eachMode(t, func(t *testing.T, m Mode) {
		if m == Fresh {
			return
		}
		l := newLab(t, Config{Mode: m}, scribbler(t, nil))
		in := l.acquire()
		defer l.template.Release(in, false)
		if !in.matches() {
			t.Error("a new instance does not match its image")
		}
		in.mem.b[imagePages*wasmPage-1]++
		if in.matches() {
			t.Error("a changed byte is not seen")
		}
		in.mem.b[imagePages*wasmPage-1]--
		in.globals[0].Set(in.globals[0].Get() + 1)
		if in.matches() {
			t.Error("a changed global is not seen")
		}
	})
}

func TestErrorsOfBootAndProbeComeBack(t *testing.T) {
	l := newLab(t, Config{}, scribbler(t, nil))
	boom := errors.New("boom")
	p := l.params
	p.Boot = func(context.Context, *Instance) error { return boom }
	if _, err := l.pool.NewTemplate(context.Background(), p); !errors.Is(err, boom) {
		t.Errorf("boot: %v", err)
	}
	p = l.params
	p.Probe = func(context.Context, *Instance) ([]byte, error) { return nil, boom }
	if _, err := l.pool.NewTemplate(context.Background(), p); !errors.Is(err, boom) {
		t.Errorf("probe: %v", err)
	}
	if s := l.settle(); s.Templates != 1 || s.Out != 0 {
		t.Errorf("stats %+v", s)
	}
}

func TestMemoryLimits(t *testing.T) {
	l := newLab(t, Config{}, scribbler(t, nil))
	p := l.params
	p.MemoryLimit = (imagePages - 1) * wasmPage
	if _, err := l.pool.NewTemplate(context.Background(), p); abi.CodeOf(err) != CodeModuleMemory {
		t.Errorf("error %v", err)
	}
	eachMode(t, func(t *testing.T, m Mode) {
		l := newLab(t, Config{Mode: m}, scribbler(t, nil)) // limit of 128 pages
		in := l.acquire()
		r, err := in.Call(context.Background(), Run, 1000+73, 1000)
		if err != nil || r != 0 || in.Refused() != 1 || in.MemoryBytes() != imagePages*wasmPage {
			t.Errorf("one page too many: %d, %v, refused %d, %d bytes", r, err, in.Refused(), in.MemoryBytes())
		}
		l.template.Release(in, false)
		in = l.acquire()
		r, err = in.Call(context.Background(), Run, 1000+72, 1000)
		if err != nil || r != 0 || in.Refused() != 0 || in.MemoryBytes() != 128*wasmPage {
			t.Errorf("up to the limit: %d, %v, refused %d, %d bytes", r, err, in.Refused(), in.MemoryBytes())
		}
		l.template.Release(in, false)
	})
}

func TestThePoolHandsOutTheLastReturned(t *testing.T) {
	l := newLab(t, Config{}, scribbler(t, nil))
	a, b := l.acquire(), l.acquire()
	l.template.Release(a, false)
	l.settle()
	l.template.Release(b, false)
	l.settle()
	if got := l.acquire(); got != b {
		t.Error("got the one that was idle longer")
	}
	if s := l.pool.Stats(); s.Idle != 1 || s.Out != 1 || s.Spawns != 1 {
		t.Errorf("stats %+v", s)
	}
}

func TestTrimTakesPagesThenInstances(t *testing.T) {
	eachModeInItsOwnTime(t, func(t *testing.T, m Mode) {
		if m == Fresh {
			return
		}
		l := newLab(t, Config{Mode: m}, scribbler(t, nil))
		ins := []*Instance{l.acquire(), l.acquire(), l.acquire()}
		for _, in := range ins {
			if _, err := in.Call(context.Background(), Run, 40, 1000); err != nil {
				t.Fatal(err)
			}
			l.template.Release(in, false)
		}
		before := l.settle()
		now := time.Now()
		if got := l.pool.Trim(now.Add(5 * time.Second)); got != (TrimResult{}) {
			t.Errorf("after 5 s: %+v", got)
		}
		if got := l.pool.Trim(now.Add(11 * time.Second)); got != (TrimResult{Trimmed: 3}) {
			t.Errorf("after 11 s: %+v", got)
		}
		if got := l.pool.Trim(now.Add(12 * time.Second)); got != (TrimResult{}) {
			t.Errorf("after 12 s: %+v", got)
		}
		after := l.pool.Stats()
		if after.Idle != 3 || m != Copy && after.IdleBytes > before.IdleBytes-3*40*int64(osPage) {
			t.Errorf("idle bytes %d, then %d in %d instances", before.IdleBytes, after.IdleBytes, after.Idle)
		}
		l.run(40) // trimmed ones are as good
		l.settle()
		if got := l.pool.Trim(now.Add(70 * time.Second)); got.Closed+got.Trimmed < 2 {
			t.Errorf("after 70 s: %+v", got)
		}
		if got := l.pool.Trim(now.Add(200 * time.Second)); l.pool.Stats().Idle != 0 || l.pool.Stats().IdleBytes != 0 {
			t.Errorf("after 200 s: %+v, %+v", got, l.pool.Stats())
		}
		l.run(1)
	})
}

func TestIdleMemoryIsBoundedOverTemplates(t *testing.T) {
	l := newLab(t, Config{MaxIdleBytes: 3 * (instanceBytes + 64*int64(osPage))}, scribbler(t, nil))
	other, err := l.pool.NewTemplate(context.Background(), l.params)
	if err != nil {
		t.Fatal(err)
	}
	oldest, err := other.Acquire(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	other.Release(oldest, false)
	l.settle()
	var ins []*Instance
	for range 5 {
		in := l.acquire()
		if _, err := in.Call(context.Background(), Run, 40, 1000); err != nil {
			t.Fatal(err)
		}
		ins = append(ins, in)
	}
	for _, in := range ins {
		l.template.Release(in, false)
		l.settle()
	}
	s := l.pool.Stats()
	if s.IdleBytes > l.pool.cfg.MaxIdleBytes || s.Evictions == 0 || s.Idle == 0 {
		t.Errorf("stats %+v, bound %d", s, l.pool.cfg.MaxIdleBytes)
	}
	if len(other.idle) != 0 {
		t.Error("the longest idle instance was kept")
	}
	if l.template.idle[len(l.template.idle)-1] != ins[4] {
		t.Error("the last returned was not kept")
	}
}

func TestClosingATemplateWaitsForItsInstances(t *testing.T) {
	l := newLab(t, Config{}, scribbler(t, nil))
	freed := 0
	p := l.params
	p.Free = func() { freed++ }
	tpl, err := l.pool.NewTemplate(context.Background(), p)
	if err != nil {
		t.Fatal(err)
	}
	in, err := tpl.Acquire(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	tpl.Close()
	tpl.Close()
	if _, err := tpl.Acquire(context.Background()); !errors.Is(err, ErrClosed) {
		t.Errorf("acquire after close: %v", err)
	}
	if freed != 0 {
		t.Error("freed while an instance is in use")
	}
	if r, err := in.Call(context.Background(), Run, 64, 1000); err != nil || r != 0 {
		t.Errorf("a run after close: %d, %v", r, err)
	}
	tpl.Release(in, false)
	l.settle()
	if freed != 1 {
		t.Errorf("freed %d times", freed)
	}
}

func TestMemoryIsNotUnmappedWhileCodeRuns(t *testing.T) {
	for _, m := range modes() {
		mem, err := newMemory(m, 4*wasmPage)
		if err != nil {
			t.Fatal(err)
		}
		b := mem.Reallocate(2 * wasmPage)
		mem.running.Store(true)
		mem.Free()
		b[0]++ // would fault
		mem.running.Store(false)
		mem.Free()
		mem.Free()
		if mem.b != nil {
			t.Errorf("%s: not freed", m)
		}
	}
}

func TestGrownMemoryIsZeroedForTheNextAttempt(t *testing.T) {
	eachMode(t, func(t *testing.T, m Mode) {
		l := newLab(t, Config{Mode: m}, scribbler(t, nil))
		for i := range 30 {
			l.run(1000 + (i*37)%72)
		}
	})
}

func TestModesOfThisSystem(t *testing.T) {
	for m := Auto; m <= Fresh; m++ {
		_, err := New(Config{Mode: m})
		if ok := m == Auto || m >= bestMode(); (err == nil) != ok {
			t.Errorf("mode %s: %v", m, err)
		}
	}
	if _, err := New(Config{Mode: Fresh + 1}); err == nil {
		t.Error("an unknown mode is taken")
	}
	t.Log("best mode:", bestMode())
}

func TestWrittenPagesAreFoundExactly(t *testing.T) {
	if bestMode() != Pagemap {
		t.Skip("this system has no page map to read")
	}
	im, err := newImage(Pagemap, make([]byte, 64*osPage))
	if err != nil {
		t.Fatal(err)
	}
	defer im.close()
	m, err := newMemory(Pagemap, 128*uint64(osPage))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Free()
	m.Reallocate(128 * uint64(osPage))
	if err := im.lay(m); err != nil {
		t.Fatal(err)
	}
	want := ""
	sum := byte(0)
	for i := range 128 {
		sum += m.b[i*osPage] // a read does not count within the image
		if i%5 == 0 || i%5 == 1 || i > 64 && i%2 == 0 {
			m.b[i*osPage+i]++
		}
	}
	got := ""
	if _, err := written(m.b[:64*osPage], 1000, func(lo, hi int) {
		for p := lo; p < hi; p += osPage {
			got += fmt.Sprint(p/osPage, " ")
		}
	}); err != nil {
		t.Fatal(err)
	}
	for i := range 64 {
		if i%5 == 0 || i%5 == 1 {
			want += fmt.Sprint(i, " ")
		}
	}
	if got != want || sum != 0 {
		t.Errorf("written pages %s\nwant          %s", got, want)
	}
	if n, err := written(m.b[:64*osPage], 3, func(int, int) {}); err != nil || n <= 3 {
		t.Errorf("beyond the limit: %d, %v", n, err)
	}
}

func BenchmarkResetDirty64(b *testing.B) {
	for _, m := range modes() {
		if m == Fresh {
			continue
		}
		b.Run(m.String(), func(b *testing.B) {
			l := newLab(b, Config{Mode: m}, scribbler(b, nil))
			in := l.acquire()
			var calls time.Duration
			for b.Loop() {
				t := time.Now()
				if r, err := in.Call(context.Background(), Run, 64, 1000); err != nil || r != 0 {
					b.Fatal(r, err)
				}
				calls += time.Since(t)
				if err := in.reset(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64((b.Elapsed()-calls).Nanoseconds())/float64(b.N), "reset-ns/op")
			l.template.Release(in, false)
		})
	}
}

func BenchmarkSpawn(b *testing.B) {
	l := newLab(b, Config{}, scribbler(b, nil))
	for b.Loop() {
		in, err := l.template.spawn(context.Background())
		if err != nil {
			b.Fatal(err)
		}
		in.close(context.Background())
	}
}
