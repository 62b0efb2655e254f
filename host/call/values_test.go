package call

import (
	"strings"
	"testing"
	"time"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/abi/wire"
)

func TestInputMetaAndAttempt(t *testing.T) {
	g := begin(t, &fakeCalls{}, nil)
	g.want(7, abi.FuncInput)
	if got := g.last(); got != `{"n":1}` {
		t.Errorf("input %s", got)
	}
	if n := g.call(abi.FuncMeta); n <= 0 {
		t.Fatalf("meta answers %d", n)
	}
	m, err := wire.ReadMeta([]byte(g.last()))
	if err != nil || m.RunID != "r1" || m.Attempt != 2 {
		t.Errorf("meta %+v, %v", m, err)
	}
	g.want(2, abi.FuncAttempt)
}

func TestResultReadCopiesAWindow(t *testing.T) {
	g := begin(t, &fakeCalls{}, nil)
	g.call(abi.FuncInput) // {"n":1}
	for _, c := range []struct {
		room, off int
		want      string
	}{{3, 0, `{"n`}, {100, 4, `:1}`}, {3, 7, ""}, {3, 1 << 30, ""}, {0, 0, ""}, {2, 5, `1}`}, {-1, 6, `}`}} {
		p, _ := g.put(strings.Repeat(".", 16))
		n := g.call(abi.FuncResultRead, p, uint64(uint32(c.room)), uint64(c.off))
		b, _ := g.mod.Memory().Read(uint32(p), 16)
		if got := string(b[:n]); got != c.want || strings.Trim(string(b[n:]), ".") != "" {
			t.Errorf("result_read(cap %d, off %d) writes %q", c.room, c.off, b)
		}
	}
}

func TestSleepAndWaitPassMilliseconds(t *testing.T) {
	var slept, waited time.Duration
	g := begin(t, &fakeCalls{
		sleep: func(_ string, d time.Duration) (time.Time, error) { slept = d; return epoch, nil },
		wait: func(p abi.WaitParams) ([]byte, time.Time, error) {
			waited = p.Timeout
			return []byte(`{"t":"` + p.Topic + `","k":"` + p.Key + `"}`), epoch, nil
		},
	}, nil)
	g.want(0, abi.FuncSleep, "a", 1500)
	g.want(22, abi.FuncWaitEvent, "b", "paid", "o-7", 2500)
	if slept != 1500*time.Millisecond || waited != 2500*time.Millisecond || g.last() != `{"t":"paid","k":"o-7"}` {
		t.Errorf("slept %v, waited %v, got %s", slept, waited, g.last())
	}
	g.want(code(abi.CodeInvalid), abi.FuncWaitEvent, "b", "paid", strings.Repeat("k", abi.MaxName+1), 2500)
	g.want(code(abi.CodeInvalid), abi.FuncPublish, "paid", "\n", "1")
	g.want(0, abi.FuncSleep, "c", -1)
	if slept != 0 {
		t.Errorf("a negative sleep is %v", slept)
	}
	g.want(code(abi.CodeLimit), abi.FuncSleep, "d", int(abi.MaxSleep.Milliseconds()+1))
}

func TestEnqueueInvokePublishAndSQLCarryTheirArguments(t *testing.T) {
	var runs []abi.EnqueueParams
	var event, statement string
	var most int
	g := begin(t, &fakeCalls{
		enqueue: func(r []abi.EnqueueParams) ([]abi.EnqueueResult, error) {
			runs = r
			return []abi.EnqueueResult{{ID: "1"}, {ID: "2", Deduped: true}}, nil
		},
		invoke: func(r []abi.EnqueueParams, limit int) ([]abi.InvokeResult, time.Time, error) {
			runs, most = r, limit
			return []abi.InvokeResult{{Output: []byte(`"child"`)}, {Failure: &abi.Failure{Message: "no", Code: "X_NO"}}}, epoch, nil
		},
		publish: func(e abi.PublishParams) error { event = e.Topic + " " + e.Key + " " + string(e.Payload); return nil },
		sql:     func(q string) ([]byte, error) { statement = q; return []byte(`[]`), nil },
		undo:    func() (string, error) { return "", nil },
	}, nil)
	g.want(38, abi.FuncEnqueue, `[{"job":"a","input":1},{"job":"b","delay_ms":5}]`)
	if len(runs) != 2 || runs[0].Job != "a" || string(runs[0].Input) != "1" || runs[1].DelayMS != 5 {
		t.Errorf("runs %+v", runs)
	}
	if got := g.last(); got != `[{"id":"1"},{"id":"2","deduped":true}]` {
		t.Errorf("results %s", got)
	}
	g.want(2, abi.FuncInvoke, `[{"job":"c"},{"job":"d","abandon":true}]`, 5)
	if len(runs) != 2 || runs[0].Abandon || !runs[1].Abandon || most != 5 {
		t.Errorf("runs %+v, at most %d", runs, most)
	}
	g.want(7, abi.FuncInvokeResult, 0)
	if got := g.last(); got != `"child"` {
		t.Errorf("the first child's result %s", got)
	}
	g.want(code(abi.CodeFailed), abi.FuncInvokeResult, 1)
	if got := g.last(); got != `{"message":"no","code":"X_NO"}` {
		t.Errorf("the second child's failure %s", got)
	}
	g.want(2, abi.FuncInvoke, `{"job":"c"}`, -1)
	if most != abi.MaxInvoke {
		t.Errorf("at most %d", most)
	}
	g.want(code(abi.CodeInvalid), abi.FuncEnqueue, `{"job":"c","abandon":true}`)
	g.want(0, abi.FuncPublish, "topic", "key", `{"x":1}`)
	if event != `topic key {"x":1}` {
		t.Errorf("event %s", event)
	}
	g.want(0, abi.FuncCompensate)
	g.want(0, abi.FuncStepBegin, "s", 0)
	g.want(2, abi.FuncSQL, `{"q":"select 1"}`)
	if statement != `{"q":"select 1"}` {
		t.Errorf("statement %s", statement)
	}
}

func TestWhatCallsKeepsIsNotGuestMemory(t *testing.T) {
	var kept []byte
	var runs []abi.EnqueueParams
	g := begin(t, &fakeCalls{
		enqueue: func(r []abi.EnqueueParams) ([]abi.EnqueueResult, error) { runs = r; return nil, nil },
		sql:     func(q string) ([]byte, error) { return nil, nil },
	}, nil)
	a := g.args(`{"job":"mail","input":{"to":"x"}}`)
	g.call(abi.FuncEnqueue, a...)
	o := g.args(`{"result":1}`)
	g.call(abi.FuncOutput, o...)
	kept = g.state.Output()
	for p := uint32(1024); p < g.next; p++ {
		g.mod.Memory().WriteByte(p, '#')
	}
	if runs[0].Job != "mail" || string(runs[0].Input) != `{"to":"x"}` || string(kept) != `{"result":1}` {
		t.Errorf("after the guest wrote its memory: %+v %s", runs, kept)
	}
}

func TestFeaturesAreThoseServedAndGranted(t *testing.T) {
	g := begin(t, &fakeCalls{features: abi.FeaturePublish}, fakeCaps{features: abi.FeatureHTTP})
	g.want(int64(abi.FeaturePublish|abi.FeatureHTTP), abi.FuncFeatures)
}

func TestHTTPFetchInsideAStep(t *testing.T) {
	g := begin(t, &fakeCalls{}, fakeCaps{fetch: func(r abi.HTTPRequest, content []byte) (abi.HTTPResponse, []byte, error) {
		if r.URL != "https://a.example/x" || string(content) != "hi" {
			t.Errorf("request %+v", r)
		}
		return abi.HTTPResponse{Status: 201}, []byte("made"), nil
	}})
	g.want(0, abi.FuncStepBegin, "s", 0)
	g.want(28, abi.FuncHTTPFetch, `{"method":"POST","url":"https://a.example/x","body":"hi"}`)
	if got := g.last(); got != `{"status":201,"body":"made"}` {
		t.Errorf("response %s", got)
	}
	g.want(code(abi.CodeInvalid), abi.FuncHTTPFetch, `{"url":"ftp://a.example/x"}`)
}

func TestLogLinesAreCutAndCleaned(t *testing.T) {
	c := &fakeCalls{}
	g := begin(t, c, nil)
	g.call(abi.FuncLog, append([]uint64{9}, g.args(strings.Repeat("x", abi.MaxLogLine+5))...)...)
	g.call(abi.FuncLog, append([]uint64{0}, g.args("a\xffb\x1b[31m")...)...)
	g.call(abi.FuncProgress, append([]uint64{uint64(uint32(5000))}, g.args("half\nway")...)...)
	if len(c.lines) != 2 || c.lines[0] != "3 "+strings.Repeat("x", abi.MaxLogLine) || c.lines[1] != "0 a\ufffdb\ufffd[31m" {
		t.Errorf("lines %.40q", c.lines)
	}
	if c.progress[0] != "half way" {
		t.Errorf("progress %q", c.progress)
	}
}
