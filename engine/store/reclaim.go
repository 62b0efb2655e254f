package store

import (
	"fmt"
	"slices"
	"strings"

	"github.com/jobrunner/runner/engine/job"
)

// Verdict is what becomes of a run whose worker was lost, by which every store
// goes: ready again, or buried as dead or failed. Orphans of r counts this loss.
// The failure is the attempt's, and the run's own only if it is buried.
func (p ReclaimParams) Verdict(r *job.Run, worker string) (job.State, *job.Failure) {
	f := &job.Failure{Code: job.CodeWorkerLost, Message: "worker " + worker + " was lost while it ran this"}
	switch {
	case p.MaxOrphans > 0 && r.Orphans >= p.MaxOrphans:
		f.Message = fmt.Sprintf("%d workers in a row were lost while they ran this; the last was %s", r.Orphans, worker)
		f.Fix = "find out whether the run kills its worker (memory, a crash of the host) before it is run again"
		if r.Error.Code != "" || r.Error.Message != "" {
			// What it failed of before, or is being undone for, is not lost with them.
			f.Message += fmt.Sprintf("; it had failed: %s %s", r.Error.Code, r.Error.Message)
			if len(f.Message) > job.MaxErrorText {
				f.Message = strings.ToValidUTF8(f.Message[:job.MaxErrorText], "")
			}
		}
	case r.Attempt < r.MaxAttempts || p.unwinds(r):
		return job.Ready, f
	case r.Attempt > r.MaxAttempts:
		f.Code = job.CodeCompensationFailed
		f.Message = fmt.Sprintf("worker %s was lost during the last attempt to undo the run; it had failed: %s %s", worker, r.Error.Code, r.Error.Message)
		f.Fix = "have the rest undone with `runner jobs retry " + r.ID + "`; `runner jobs show` names what is left"
	default:
		f.Code = job.CodeMaxAttempts
		f.Message = fmt.Sprintf("worker %s was lost during the last of %d attempts", worker, r.MaxAttempts)
		f.Fix = "retry it when the cause is known"
	}
	if slices.Contains(p.DropJobs, r.Job) {
		return job.Failed, f
	}
	return job.Dead, f
}

// unwinds reports whether a run is handed out beyond its attempts.
func (p ReclaimParams) unwinds(r *job.Run) bool {
	return r.Steps > 0 && r.Attempt < 2*r.MaxAttempts && slices.Contains(p.UnwindJobs, r.Job)
}
