package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

func newJobsCancel(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cancel ID… | --state STATE",
		Short: "End runs that have not ended",
		Long: `End runs that have not ended. One that is waiting never starts; one that is running
is stopped when its worker next renews its lease, a few seconds later, and writes no
more steps.

A run with completed steps that have compensators is undone first, the last step first,
and ends cancelled after that; so is one that is being undone for a failure. With
--no-compensate it ends where it is, and what its steps did stays done.` + filterHelp,
		Example: `  runner jobs cancel 0197b2f4-5c1e-7d3a-9d5e-0c4f1b2a3d4e
  runner jobs cancel 0197b2f4 --reason 'customer left'
  runner jobs cancel --state delayed --tenant acme --reason 'customer left'
  runner jobs cancel 0197b2f4 --no-compensate`,
	}
	a := e.actFlags(cmd, engine.BulkCancel)
	cmd.Flags().StringVar(&a.bulk.Reason, "reason", "", "why, for the run's record")
	cmd.Flags().BoolVar(&a.bulk.NoCompensate, "no-compensate", false, "end it where it is: undo nothing")
	a.done = "cancelled"
	a.one = func(ctx context.Context, o opened, id string) (job.Run, error) {
		var how []engine.CancelOption
		if a.bulk.NoCompensate {
			how = append(how, engine.NoCompensate())
		}
		return o.client.Cancel(ctx, id, a.bulk.Reason, how...)
	}
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
	durationVar(cmd.Flags(), &timeout, "timeout", 0, "give up watching after this long; the run goes on")
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
	var fromStep string
	cmd := &cobra.Command{
		Use:   "retry ID… | --state STATE",
		Short: "Run runs again that have ended",
		Long: `Make runs that have ended ready again, under the same ids, with their attempts counted
from none. Completed steps are kept and not run again, unless --from-step names the
first that should be: then that step and all that came after it are forgotten.

A run whose steps were undone cannot go on from them: a fresh one is enqueued in its
place, and its id printed. One that stopped half undone goes on being undone under its
own id, and ends with the failure that it had; with --no-compensate the rest of it is
left as it is, and a fresh one is enqueued in its place.

A dead run (a dead letter) is repaired so: correct what made it fail, then retry it. It
goes on with the module that it began with, unless its job says on_deploy = "latest" or
--latest has it go on with the one that is served now, whose steps must have the same
names in the same order as those that it recorded.` + filterHelp,
		Example: `  runner jobs retry 0197b2f4-5c1e-7d3a-9d5e-0c4f1b2a3d4e
  runner jobs retry 0197b2f4 --from-step charge
  runner jobs retry 0197b2f4 --attempts 10
  runner jobs retry 0197b2f4 --latest
  runner jobs retry --state dead --job charge-card --code X_CARD_GATEWAY --dry-run`,
	}
	a := e.actFlags(cmd, engine.BulkRetry)
	cmd.Flags().StringVar(&fromStep, "from-step", "", "forget this step and those after it; for one run")
	cmd.Flags().IntVar(&a.bulk.Attempts, "attempts", 0, "attempts in all from now on (default as before)")
	cmd.Flags().BoolVar(&a.bulk.NoCompensate, "no-compensate", false, "of a run that is half undone: undo no more, begin a fresh one in its place")
	cmd.Flags().BoolVar(&a.bulk.Latest, "latest", false, "go on with the module that is served now")
	e.complete(cmd, "from-step", e.completeSteps)
	a.done = "ready again"
	a.one = func(ctx context.Context, o opened, id string) (job.Run, error) {
		return o.client.Retry(ctx, store.RequeueParams{
			ID: id, FromStep: fromStep, Attempts: a.bulk.Attempts, NoCompensate: a.bulk.NoCompensate, Latest: a.bulk.Latest,
		})
	}
	cmd.Args = func(_ *cobra.Command, args []string) error {
		if fromStep != "" && len(args) != 1 {
			return usagef("give the id of one run", "--from-step is for one run, and there are %d", len(args))
		}
		return nil
	}
	return cmd
}

func (e *env) printActed(run job.Run, what string) error {
	if e.json {
		return printJSON(e.Stdout, e.viewRun(run, redact))
	}
	_, err := fmt.Fprintf(e.Stdout, "run %s (%s) is %s\n", run.ID, cell(run.Job), what)
	return err
}
