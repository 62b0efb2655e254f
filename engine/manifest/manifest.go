// Package manifest turns jobs.toml into checked values, with every problem of
// the file in one report. It reads files but evaluates no guest and opens no
// database; whether a module fits its declaration is checked by who loads it.
package manifest

import (
	"strings"
	"time"

	"github.com/jobrunner/runner/engine/job"
)

// Manifest is a whole checked file. It is frozen: nothing changes it after Load.
type Manifest struct {
	Path      string   // file it came from
	Digest    string   // SHA-256 of the file, hex
	Files     []string // read for it: itself, then schemas, referred ones too; sorted after the first
	Runner    Runner
	Queues    map[string]Queue // declared ones and those that jobs name
	Modules   map[string]Module
	Jobs      map[string]*Job
	Schedules map[string]*Schedule

	tree   *node // for the places of problems that are found later
	places *places
}

// Runner is the [runner] table.
type Runner struct {
	Database string        // default "sqlite:runner.db", relative to the file; absolute here
	DataDir  string        // default ".runner", relative to the file; absolute here
	Lease    time.Duration // default 30s
	Drain    time.Duration // default 25s
	CPUSlots int           // guests running at a time; default 0: GOMAXPROCS
	Workers  int           // attempts at a time in one process, over its queues; 0 is no limit
}

// Queue is a [queues.NAME] table.
type Queue struct {
	Name      string
	Workers   int // attempts at a time in one process; default 100
	PerTenant int // attempts at a time of one tenant, over the fleet; 0 is no limit
	// TenantWorkers are the attempts at a time of one tenant in one process; 0 is
	// no limit.
	TenantWorkers int
	Rate          *Rate
	// AgeAfter is how long a run may be ready before it goes before every
	// priority; default 10m.
	AgeAfter time.Duration
}

// Rate is a rate limit: Limit starts per Per, by "tenant" or "queue" for a
// queue's. Package limit says what it means.
type Rate struct {
	Limit int
	Per   time.Duration
	By    string
}

// Concurrency bounds the runs of a job at a time, over the fleet: all of them, or,
// with a Key, those that render the same one.
type Concurrency struct {
	Limit int // 0 is no limit
	Key   Template
	Keyed bool
	Fail  bool // a run that finds its key held fails; false: it waits
}

// Module is a [modules.NAME] table.
type Module struct {
	Name   string
	Path   string // absolute
	SHA256 string // lower-case hex; "" is unpinned
	Memory uint64 // bytes; default 128 MiB
	Allow  Allow
}

// Allow is what a module may touch; its zero value is nothing.
type Allow struct {
	HTTP    []string
	Secrets []string
	Env     map[string]string
}

// OnDeploy says which module version a started run continues on.
type OnDeploy string

const (
	Pin    OnDeploy = "pin"    // the one it started on
	Latest OnDeploy = "latest" // the one deployed now
)

// Job is a [jobs.NAME] table.
type Job struct {
	Name        string
	Module      string // key of Modules
	Handler     string // name in the module's description; default the job's name
	Queue       string // default "default"
	Input       *Schema
	Tenant      Template // Template.None for "none"
	Key         Template
	Timeout     time.Duration         // of one attempt; default 10m
	StepTimeout time.Duration         // default 1m
	Steps       map[string]StepPolicy // by the step's name; nil is none
	Priority    int
	OnDeploy    OnDeploy
	Compensates bool
	Concurrency Concurrency
	Rate        *Rate
	OnSettled   string        // job that is told how a run ended; "" is none
	Retention   time.Duration // default 30 days
	Retry       job.RetryPolicy
}

// StepPolicy is a [jobs.NAME.steps.STEP] table: what of a step is not as its job
// says.
type StepPolicy struct {
	Timeout time.Duration
	Retry   *job.RetryPolicy // nil: tried as often as the run is
}

// Step is the policy of a step. One that was numbered by its guest ("page#2")
// has that of its name without the number.
func (j *Job) Step(name string) StepPolicy {
	if p, ok := j.Steps[name]; ok {
		return p
	}
	if base, number, ok := strings.Cut(name, "#"); ok && number != "" && strings.Trim(number, "0123456789") == "" {
		if p, ok := j.Steps[base]; ok {
			return p
		}
	}
	return StepPolicy{Timeout: j.StepTimeout}
}

// Schedule is a [schedules.NAME] table.
type Schedule struct {
	Name       string
	Cron       string // as it was written
	Spec       Cron
	Zone       *time.Location
	CatchUp    string // skip, run-once, run-all
	MaxCatchUp int
	Overlap    string        // skip, allow
	Jitter     time.Duration // 0 is none; see Due
	Enqueue    []ScheduledRun
}

// ScheduledRun is one entry of a schedule's enqueue list. Input is JSON, whose
// texts may name the occurrence: see InputAt.
type ScheduledRun struct {
	Job   string
	Input []byte
}
