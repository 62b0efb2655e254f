package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

func newJobsCancel(e *env) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:   "cancel ID",
		Short: "End a run that has not ended",
		Long: `End a run that has not ended. One that is waiting never starts; one that is running
is stopped when its worker next renews its lease, a few seconds later, and writes no
more steps. What its completed steps did stays done.`,
		Example: `  runner jobs cancel 0197b2f4-5c1e-7d3a-9d5e-0c4f1b2a3d4e
  runner jobs cancel 0197b2f4 --reason 'customer left'`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: e.completeRuns,
	}
	t := e.targetFlags(cmd)
	e.jsonFlag(cmd)
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the run's record")
	cmd.RunE = e.run(func(ctx context.Context, _ *cobra.Command, args []string) error {
		return e.withStore(ctx, t, func(ctx context.Context, o opened) error {
			id, err := wholeID(ctx, o.store, args[0])
			if err != nil {
				return err
			}
			run, err := o.client.Cancel(ctx, id, reason)
			if err != nil {
				return err
			}
			return e.printActed(run, "cancelled")
		})
	})
	return cmd
}

func newJobsWait(e *env) *cobra.Command {
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "wait ID…",
		Short: "Follow a run to its end",
		Long: `Follow a run to its end, as enqueue --wait does: its progress is printed on stderr and
its output on stdout; the exit code is 1 if it ended other than done. Several runs are
followed one after the other, and the exit code is 1 if any ended so.`,
		Example: `  runner jobs wait 0197b2f4-5c1e-7d3a-9d5e-0c4f1b2a3d4e
  runner jobs wait 0197b2f4 --timeout 5m`,
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: e.completeRuns,
	}
	t := e.targetFlags(cmd)
	e.jsonFlag(cmd)
	cmd.Flags().DurationVar(&timeout, "timeout", 0, "give up watching after this long; the run goes on")
	cmd.RunE = e.run(func(ctx context.Context, _ *cobra.Command, args []string) error {
		return e.withStore(ctx, t, func(ctx context.Context, o opened) error {
			var not []error
			for _, arg := range args {
				id, err := wholeID(ctx, o.store, arg)
				if err == nil {
					err = e.follow(ctx, o, id, timeout)
				}
				if err != nil && abi.CodeOf(err) != codeRunNotDone {
					return err
				}
				not = append(not, err)
			}
			return errors.Join(not...)
		})
	})
	return cmd
}

func newJobsRetry(e *env) *cobra.Command {
	var p store.RequeueParams
	cmd := &cobra.Command{
		Use:   "retry ID",
		Short: "Run a run again that has ended",
		Long: `Make a run that has ended ready again, under the same id, with its attempts counted
from none. Its completed steps are kept and not run again, unless --from-step names the
first that should be: then that step and all that came after it are forgotten.

A dead run (a dead letter) is repaired so: correct what made it fail, then retry it.`,
		Example: `  runner jobs retry 0197b2f4-5c1e-7d3a-9d5e-0c4f1b2a3d4e
  runner jobs retry 0197b2f4 --from-step charge
  runner jobs retry 0197b2f4 --attempts 10`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: e.completeRuns,
	}
	t := e.targetFlags(cmd)
	e.jsonFlag(cmd)
	cmd.Flags().StringVar(&p.FromStep, "from-step", "", "forget this step and those after it")
	cmd.Flags().IntVar(&p.Attempts, "attempts", 0, "attempts in all from now on (default as before)")
	e.complete(cmd, "from-step", e.completeSteps)
	cmd.RunE = e.run(func(ctx context.Context, _ *cobra.Command, args []string) error {
		return e.withStore(ctx, t, func(ctx context.Context, o opened) error {
			var err error
			if p.ID, err = wholeID(ctx, o.store, args[0]); err != nil {
				return err
			}
			run, err := o.client.Retry(ctx, p)
			if err != nil {
				return err
			}
			return e.printActed(run, "ready again")
		})
	})
	return cmd
}

func (e *env) printActed(run job.Run, what string) error {
	if e.json {
		return printJSON(e.Stdout, viewRun(run, redact))
	}
	_, err := fmt.Fprintf(e.Stdout, "run %s (%s) is %s\n", run.ID, cell(run.Job), what)
	return err
}
