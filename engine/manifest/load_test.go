package manifest

import (
	"testing"
	"time"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/job"
)

func TestLoadReadsEverySection(t *testing.T) {
	m, report := Load("testdata/ok/jobs.toml")
	if report != nil {
		t.Fatal(report)
	}
	j, err := m.Job("onboard-org")
	if err != nil {
		t.Fatal(err)
	}
	if j.Module != "onboard" || j.Handler != "onboard-org" || j.Timeout != 10*time.Minute || j.Retry.MaxDelay != 10*time.Minute {
		t.Errorf("job is %+v", j)
	}
	if q := m.Queues["mail"]; q.Workers != 20 || q.PerTenant != 5 || q.Rate.Limit != 50 {
		t.Errorf("queue is %+v", q)
	}
	if mod := m.Modules["onboard"]; mod.Memory != 64<<20 || mod.Allow.Env["REGION"] != "eu" {
		t.Errorf("module is %+v", mod)
	}
	if s := m.Schedules["nightly-digest"]; string(s.Enqueue[0].Input) != `{"kind":"nightly"}` || s.Zone.String() != "America/Bogota" {
		t.Errorf("schedule is %+v", s)
	}
}

func TestAnUnknownJobNamesTheClosestOne(t *testing.T) {
	m, report := Load("testdata/ok/jobs.toml")
	if report != nil {
		t.Fatal(report)
	}
	_, err := m.Job("onboard_org")
	if abi.CodeOf(err) != job.CodeUnknownJob {
		t.Fatalf("got %v", err)
	}
	if want := `X_JOB_UNKNOWN: no job is called "onboard_org" (did you mean onboard-org?)`; err.Error() != want {
		t.Errorf("got  %s\nwant %s", err, want)
	}
}
