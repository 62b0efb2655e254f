package job_test

import (
	"testing"
	"time"
	"unicode/utf8"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/job"
)

// What is asked of a run is refused with a code and what to do, or is what both
// databases can keep.
func FuzzAsked(f *testing.F) {
	f.Add("k", "t", "by", "00-1-2-01", int64(0), int64(0), 0, 3)
	f.Add("", "\x00", "\xff", "", int64(-1), int64(1<<62), -101, -1)
	f.Add("k", "", "", "", int64(1<<62), int64(-1<<63), 101, 10_001)
	f.Fuzz(func(t *testing.T, key, tenant, by, trace string, due, delay int64, priority, attempts int) {
		a := job.Asked{Key: key, Tenant: tenant, EnqueuedBy: by, Traceparent: trace, Delay: time.Duration(delay), Priority: &priority, MaxAttempts: attempts}
		if due != 0 {
			a.RunAt = time.Unix(due, 0)
		}
		if err := a.Check(); err != nil {
			if e, ok := err.(*abi.Error); !ok || e.Code != job.CodeInvalid && e.Code != job.CodeKeyInvalid || e.Fix == "" || !utf8.ValidString(e.Message) || len(e.Message) > 1<<10 {
				t.Errorf("%+v is refused with %v", a, err)
			}
			return
		}
		for _, s := range []string{key, tenant, by, trace} {
			if !utf8.ValidString(s) || len(s) > job.MaxKey {
				t.Errorf("%q is taken", s)
			}
		}
		if y := a.RunAt.UTC().Year(); due != 0 && (y < 1970 || y > 8999) || a.Delay < 0 || a.Delay > abi.MaxSleep || a.Delay > 0 && due != 0 ||
			priority < job.MinPriority || priority > job.MaxPriority || attempts < 0 || attempts > job.MostAttempts {
			t.Errorf("%+v is taken", a)
		}
	})
}
