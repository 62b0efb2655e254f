package store

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/job"
)

// Schedules keeps how far each schedule has come, who may fire it, and whether
// it is paused. What a schedule is, a manifest says; a row whose schedule no
// process declares is listed and never fired.
//
// A schedule's watermark is the instant up to which its occurrences have been
// dealt with. It moves forward only, together with the runs that its move
// stands for, and a fire names the watermark that it was computed from: that is
// the fence. The lease only keeps others from trying.
type Schedules interface {
	// LeadSchedules takes the lease of each schedule that nobody else holds, or
	// renews it, in one atomic write, and answers those that Holder now has. A
	// schedule seen for the first time, and one whose Spec is not what it was,
	// begins at the store's now: occurrences before it are not made up for.
	// Errors: X_INVALID for no holder, or a lease that is not positive.
	LeadSchedules(ctx context.Context, p LeadParams) (LeadResult, error)
	// ReleaseSchedules ends the leases of a holder. Others' stay.
	ReleaseSchedules(ctx context.Context, holder string) error
	// FireSchedule moves a watermark and inserts the runs of one occurrence, in
	// one transaction, if the schedule is Holder's, at From, due and not paused;
	// else it changes nothing and answers so.
	// Errors: X_INVALID for no holder, and unless Occurrence is after From and To
	// not before it; those of Enqueue.
	FireSchedule(ctx context.Context, p FireParams) (FireResult, error)
	// ListSchedules returns all rows, ordered by name.
	ListSchedules(ctx context.Context) ([]Schedule, error)
	// PauseSchedule pauses a schedule, making its row if there is none. One that
	// is paused stays as it is: the first pause is the one that is told of.
	PauseSchedule(ctx context.Context, p ScheduleParams) (Schedule, error)
	// ResumeSchedule ends a pause. What was missed meanwhile is the schedule's
	// catch-up policy's to say. Errors: X_SCHEDULE_NOT_FOUND.
	ResumeSchedule(ctx context.Context, p ScheduleParams) (Schedule, error)
	// ForgetSchedule deletes a row. Errors: X_SCHEDULE_NOT_FOUND;
	// X_SCHEDULE_LED while a process leads it, since it would be back at once.
	ForgetSchedule(ctx context.Context, p ScheduleParams) error
}

// Schedule is what is known of one.
type Schedule struct {
	Name string
	// Spec is what its occurrences were last computed from, "" if it was paused
	// before any process led it.
	Spec      string
	Watermark time.Time
	// FiredOccurrence is the last occurrence that was turned into runs, FiredAt
	// when that was; zero if there was none. Moves of the watermark that fire
	// nothing do not change them.
	FiredOccurrence time.Time
	FiredAt         time.Time
	Fires           int64
	// SkippedOccurrence is the last occurrence that was skipped because
	// SkippedFor, a run of an earlier one, was live.
	SkippedOccurrence time.Time
	SkippedFor        string
	Skips             int64
	Missed            int64 // occurrences that were dropped by its catch-up policy
	PausedAt          time.Time
	PausedBy          string
	Holder            string // who leads it, or led it last; "" after a release
	LeasedUntil       time.Time
}

// ScheduleSpec names a schedule, and what its occurrences are computed from.
type ScheduleSpec struct {
	Name string
	Spec string
}

// LeadParams asks for leases. Holder is unique per process start. Alone says
// that the caller has proved that no other process is alive: others' leases are
// void.
type LeadParams struct {
	Holder    string
	Lease     time.Duration
	Schedules []ScheduleSpec
	Alone     bool
}

// LeadResult is what the holder leads, ordered by name. Now is the store's time;
// zero if it leads nothing.
type LeadResult struct {
	Now time.Time
	Led []Schedule
}

// FireParams fires one occurrence.
type FireParams struct {
	Name   string
	Holder string
	// From is the watermark that it was computed from, To the one that it leaves.
	From       time.Time
	To         time.Time
	Occurrence time.Time
	// Missed is how many occurrences it drops.
	Missed int
	// Runs are what the occurrence enqueues; their keys begin with OccurrenceKey.
	Runs []EnqueueParams
	// SkipIfLive skips the occurrence, but moves the watermark, while a run of
	// another occurrence is live: one of the same job and tenant as one of Runs,
	// whose key is that of an occurrence of this schedule.
	SkipIfLive bool
}

// FireResult says what became of an occurrence. Not Moved: nothing changed.
type FireResult struct {
	Moved      bool
	SkippedFor string // id of the run that had it skipped
	Runs       []EnqueueResult
}

// ScheduleParams names the schedule of an operator's verb. By is who asked, for
// the audit.
type ScheduleParams struct {
	Name string
	By   string
}

// OccurrenceKey is what the keys of an occurrence's runs begin with. What
// follows is the job's own key.
func OccurrenceKey(name string, occurrence time.Time) string {
	return name + ":" + strconv.FormatInt(occurrence.UnixMilli(), 10) + ":"
}

// OccurrenceKeys are the bounds of the keys of all of a schedule's occurrences:
// from low up to, without, high. Others may lie between: see IsOccurrenceKey.
func OccurrenceKeys(name string) (low, high string) { return name + ":0", name + "::" }

// IsOccurrenceKey reports whether a key is that of a run of a schedule's
// occurrence.
func IsOccurrenceKey(name, key string) bool {
	rest, ok := strings.CutPrefix(key, name+":")
	ms, _, ended := strings.Cut(rest, ":")
	return ok && ended && ms != "" && strings.Trim(ms, "0123456789") == ""
}

// Check refuses what no store can do. Stores call it.
func (p *LeadParams) Check() error {
	if p.Holder == "" || p.Lease < time.Millisecond {
		return &abi.Error{Code: job.CodeInvalid, Message: fmt.Sprintf("holder %q leads for %v: it needs a name and a lease", p.Holder, p.Lease)}
	}
	return nil
}

// Check refuses a fire that would not move forward. Stores call it.
func (p *FireParams) Check() error {
	from, to, at := p.From.UnixMilli(), p.To.UnixMilli(), p.Occurrence.UnixMilli()
	if at > from && to >= at && p.Holder != "" {
		return nil
	}
	return &abi.Error{Code: job.CodeInvalid, Message: fmt.Sprintf("%q cannot fire %s of schedule %q on its way from %s to %s",
		p.Holder, p.Occurrence.UTC().Format(time.RFC3339), p.Name, p.From.UTC().Format(time.RFC3339), p.To.UTC().Format(time.RFC3339))}
}

// Targets are the jobs and tenants of Runs, each pair once. Stores use it for
// SkipIfLive.
func (p *FireParams) Targets() (jobs, tenants []string) {
	seen := map[[2]string]bool{}
	for i := range p.Runs {
		t := [2]string{p.Runs[i].Job, p.Runs[i].Tenant}
		if !seen[t] {
			seen[t] = true
			jobs, tenants = append(jobs, t[0]), append(tenants, t[1])
		}
	}
	return jobs, tenants
}

// ErrScheduleNotFound is the X_SCHEDULE_NOT_FOUND of a name.
func ErrScheduleNotFound(name string) error {
	return &abi.Error{Code: job.CodeScheduleNotFound, Message: fmt.Sprintf("nothing is known of a schedule %s", job.Quote(name)), Fix: "see `runner schedules ls`"}
}

// ErrScheduleLed is the X_SCHEDULE_LED of a name.
func ErrScheduleLed(name, holder string) error {
	return &abi.Error{
		Code:    job.CodeScheduleLed,
		Message: fmt.Sprintf("schedule %q is led by %s", name, holder),
		Fix:     "take it out of the manifest that process serves, or pause it",
	}
}
