package manifest

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/limit"
)

func TestLimitsOfAQueue(t *testing.T) {
	m, report := Parse("jobs.toml", []byte(`
[runner]
workers = 30
[queues.mail]
per_tenant = 5
tenant_workers = 2
rate = { limit = 50, per = "1s", by = "tenant" }
age_after = "2m"
[modules.m]
path = "m.wasm"
[jobs.send]
module = "m"
tenant = "none"
key = "{run.id}"
queue = "mail"
concurrency = 10
[jobs.sync]
module = "m"
tenant = "none"
key = "{run.id}"
queue = "mail"
concurrency = { key = "{accountId}", when_busy = "fail" }
rate = { limit = 2, per = "1m" }
[jobs.free]
module = "m"
tenant = "none"
key = "{run.id}"
[jobs.elsewhere]
module = "m"
tenant = "none"
key = "{run.id}"
queue = "other"
concurrency = 1
`))
	if report != nil {
		t.Fatal(report)
	}
	sync := limit.Job{Concurrency: 1, Keyed: true, Fail: true, Rate: limit.Rate{Limit: 2, Per: time.Minute}}
	want := &limit.Queue{
		PerTenant: 5, TenantHere: 2, Rate: limit.Rate{Limit: 50, Per: time.Second}, ByTenant: true,
		Jobs: map[string]limit.Job{"send": {Concurrency: 10}, "sync": sync},
	}
	if d := cmp.Diff(want, m.Limits("mail")); d != "" {
		t.Error(d)
	}
	if l := m.Limits("default"); l != nil {
		t.Errorf("a queue without limits has %+v", l)
	}
	if l := m.Limits("default", "sync"); l == nil || l.Jobs["sync"] != sync || len(l.Jobs) != 1 {
		t.Errorf("with runs of another queue's job: %+v", l)
	}
	if m.Runner.Workers != 30 || m.Queues["mail"].AgeAfter != 2*time.Minute || m.Queues["default"].AgeAfter != DefaultAgeAfter {
		t.Errorf("%+v, %+v", m.Runner, m.Queues)
	}
	for job, want := range map[string]string{"send": "job:send", "sync": "job-key:sync:a-1", "free": ""} {
		if got, err := m.Jobs[job].Gate([]byte(`{"accountId":"a-1"}`), ""); got != want || err != nil {
			t.Errorf("gate of %s: %q, %v", job, got, err)
		}
	}
	_, err := m.Jobs["sync"].Gate([]byte(`{}`), "")
	if abi.CodeOf(err) != "X_JOB_KEY_INVALID" {
		t.Errorf("without the key's field: %v", err)
	}
	if _, err := m.Jobs["sync"].Gate([]byte(`{"accountId":"`+strings.Repeat("x", MaxLimitKey+1)+`"}`), ""); err == nil {
		t.Error("a key that is too long was rendered")
	}
}

func TestRefusedConcurrency(t *testing.T) {
	for value, want := range map[string]string{
		`{ limit = 0, key = "{a}" }`:             "must be from 1",
		`{ key = "" }`:                           "is empty",
		`{ key = "{run.id}" }`:                   "no two runs would share it",
		`{ key = "{a" }`:                         "without a }",
		`{ limit = 2, when_busy = "fail" }`:      "without a key",
		`{ key = "{a}", when_busy = "later" }`:   "when_busy",
		`{ key = "{a}", keyed = true }`:          "has no key",
		`"many"`:                                 "whole number",
		`{ key = 3 }`:                            "must be a text",
		"3\nrate = { per = \"1s\" }":             "has no limit",
		"3\nrate = { limit = 1, by = \"queue\"}": "has no key",
	} {
		_, report := Parse("jobs.toml", []byte(minimal+"concurrency = "+value+"\n"))
		if report == nil || !strings.Contains(report.Error(), want) {
			t.Errorf("concurrency = %s: %v, want %q", value, report, want)
		}
	}
}
