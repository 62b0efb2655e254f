package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/job"
)

const codeWaitTimeout = "X_WAIT_TIMEOUT"

// How often a run that another process works is looked at: often while it may
// end any moment, seldom when it takes its time.
const (
	followFloor   = 20 * time.Millisecond
	followCeiling = time.Second
)

// follow watches a run to its end, tells on stderr how it gets on, prints its
// output on stdout, and refuses one that did not end done. timeout 0 is none.
func (e *env) follow(ctx context.Context, o opened, id string, timeout time.Duration) error {
	if timeout > 0 {
		late := &abi.Error{
			Code:    codeWaitTimeout,
			Message: fmt.Sprintf("run %s has not ended within %v; it goes on", id, timeout),
			Fix:     "see how it gets on with: runner jobs show " + id,
		}
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, timeout, late)
		defer cancel()
	}
	_, _ = fmt.Fprintf(e.Stderr, "run %.64s\n", cell(id))
	run, err := e.watch(ctx, o, id)
	if err != nil {
		return err
	}
	if e.json {
		if err := printJSON(e.Stdout, e.viewRun(run, whole)); err != nil {
			return err
		}
	} else if run.State == job.Done {
		_, _ = fmt.Fprintf(e.Stdout, "%s\n", printableJSON(whole(run.Output)))
	}
	if run.State != job.Done {
		return notDone(run)
	}
	return nil
}

// watch returns the run once it has ended.
func (e *env) watch(ctx context.Context, o opened, id string) (job.Run, error) {
	var last string
	wait := followFloor
	for {
		run, err := o.client.Get(ctx, id)
		if err != nil {
			if ctx.Err() != nil {
				err = context.Cause(ctx)
			}
			return run, err
		}
		if now := standing(run); now != last {
			_, _ = fmt.Fprintf(e.Stderr, "  %s\n", now)
			last, wait = now, followFloor
		}
		if run.State.Terminal() {
			return run, nil
		}
		t := time.NewTimer(wait)
		select {
		case <-t.C:
			wait = min(2*wait, followCeiling)
		case <-ctx.Done():
			t.Stop()
			return run, context.Cause(ctx)
		}
	}
}

// standing is how a run stands, in one line.
func standing(run job.Run) string {
	s := string(run.State)
	switch {
	case forChildren(run):
		s += " until its children have ended"
	case run.State == job.Delayed || run.State == job.Suspended:
		s += " until " + instant(run.RunAt)
	}
	if run.Attempt > 1 {
		s += fmt.Sprintf(", attempt %d of %d", run.Attempt, run.MaxAttempts)
	}
	if run.Progress != (job.Progress{}) && run.State.Live() {
		s += fmt.Sprintf(", %s%% %s", trimZero(fmt.Sprintf("%.1f", float64(run.Progress.Permille)/10)), run.Progress.Note)
	}
	if text := failureText(run.Error); text != "" && run.State != job.Done {
		if run.State.Live() && run.State != job.Delayed { // it goes on since
			text = "last failure: " + text
		}
		s += ", " + text
	}
	return cell(s)
}
