package cli

import (
	"context"
	"fmt"
	"os/user"

	"github.com/spf13/cobra"

	"github.com/jobrunner/runner/engine"
)

func newSchedulesRun(e *env) *cobra.Command {
	var at, by string
	cmd := &cobra.Command{
		Use:   "run NAME",
		Short: "Enqueue a schedule's runs now",
		Long: `Enqueue what an occurrence of the schedule would, at once. It is no occurrence: the next
one comes when it is due, a pause does not matter, and neither does a live run of an
earlier one. The runs have the idempotency keys that their jobs make; where a live run
holds one, that run is answered.

--occurrence says which occurrence the inputs tell of, to make up for one by hand. Its
default is now.`,
		Example: `  runner schedules run nightly-digest
  runner schedules run nightly-digest --occurrence 2026-03-01T08:00:00Z`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: e.completeSchedule,
	}
	t := e.targetFlags(cmd)
	e.jsonFlag(cmd)
	byFlag(cmd, &by, "cli", byOfRun)
	cmd.Flags().StringVar(&at, "occurrence", "", "what {occurrence} means in the inputs, as in 2026-03-01T09:00:00Z (default now)")
	cmd.RunE = e.run(func(ctx context.Context, _ *cobra.Command, args []string) error {
		p := engine.RunScheduleParams{Name: args[0], EnqueuedBy: by}
		var err error
		if p.Occurrence, err = parseTime("occurrence", at); err != nil {
			return err
		}
		return e.withStore(ctx, t, func(ctx context.Context, o opened) error {
			results, err := o.client.RunSchedule(ctx, p)
			if err != nil {
				return unknownOutcome(err)
			}
			views := make([]scheduledView, len(results))
			for i, r := range results {
				views[i] = scheduledView{Job: o.manifest.Schedules[p.Name].Enqueue[i].Job, ID: r.ID, Deduped: r.Deduped, State: r.State}
			}
			if e.json {
				return printJSON(e.Stdout, map[string]any{"runs": views})
			}
			for _, v := range views {
				if v.Deduped {
					e.note("a live run of %s holds the key already; nothing was enqueued", v.Job)
				}
				if _, err := fmt.Fprintln(e.Stdout, v.ID); err != nil {
					return err
				}
			}
			return nil
		})
	})
	return cmd
}

// actFunc is an operator's verb.
type actFunc = func(ctx context.Context, c *engine.Client, name string) error

// scheduleVerb is what is done to schedules, as people and scripts are told.
type scheduleVerb struct {
	done, already string
	act           actFunc
}

func newSchedulesPause(e *env) *cobra.Command {
	return e.scheduleVerb(&cobra.Command{
		Use:   "pause NAME…",
		Short: "Have a schedule fire nothing until it is resumed",
		Long: `Have schedules fire nothing until they are resumed, over restarts, reloads and deploys.
A paused schedule keeps its place: what its catch-up policy says of missed occurrences
applies when it is resumed. Runs that exist go on.`,
		Example: `  runner schedules pause nightly-digest
  runner schedules pause nightly-digest --by ann`,
	}, scheduleVerb{done: "paused", already: "was paused already", act: func(ctx context.Context, c *engine.Client, name string) error {
		_, err := c.PauseSchedule(ctx, name)
		return err
	}})
}

func newSchedulesResume(e *env) *cobra.Command {
	return e.scheduleVerb(&cobra.Command{
		Use:   "resume NAME…",
		Short: "Have a paused schedule fire again",
		Long: `Have paused schedules fire again, within some ten seconds. Of the occurrences that came
while one was paused, catch_up in the manifest says which are made up for: the last with
"skip", the first with "run-once", each with "run-all".`,
		Example: `  runner schedules resume nightly-digest`,
	}, scheduleVerb{done: "resumed", already: "was not paused", act: func(ctx context.Context, c *engine.Client, name string) error {
		_, err := c.ResumeSchedule(ctx, name)
		return err
	}})
}

func newSchedulesDelete(e *env) *cobra.Command {
	return e.scheduleVerb(&cobra.Command{
		Use:     "delete NAME…",
		Aliases: []string{"rm"},
		Short:   "Forget a schedule that nothing declares any more",
		Long: `Delete what the database knows of schedules that were taken out of the manifest: how far
they had come, and whether they were paused. One that is declared again then begins anew,
with the first occurrence after that. One that a process still fires is refused.`,
		Example: `  runner schedules delete old-digest`,
	}, scheduleVerb{done: "deleted", act: func(ctx context.Context, c *engine.Client, name string) error {
		return c.ForgetSchedule(ctx, name)
	}})
}

// scheduleVerb makes cmd act on each schedule that it names.
func (e *env) scheduleVerb(cmd *cobra.Command, v scheduleVerb) *cobra.Command {
	var by string
	cmd.Args = cobra.MinimumNArgs(1)
	cmd.ValidArgsFunction = e.completeSchedule
	t := e.targetFlags(cmd)
	e.jsonFlag(cmd)
	byFlag(cmd, &by, "", byOfAct)
	cmd.RunE = e.run(func(ctx context.Context, _ *cobra.Command, args []string) error {
		return e.withStore(engine.WithActor(ctx, actorOr(by)), t, func(ctx context.Context, o opened) error {
			paused, err := pausedSchedules(ctx, o.client)
			if err != nil {
				return err
			}
			for _, name := range args {
				if err := v.act(ctx, o.client, name); err != nil {
					return err
				}
				changed := v.already == "" || paused[name] != (v.done == "paused")
				paused[name] = v.done == "paused"
				if err := e.printPaused(pausedView{Kind: "schedule", Name: name, Done: v.done, Changed: changed}, v.already); err != nil {
					return err
				}
			}
			return nil
		})
	})
	return cmd
}

// pausedSchedules are those that somebody paused.
func pausedSchedules(ctx context.Context, c *engine.Client) (map[string]bool, error) {
	all, _, err := c.Schedules(ctx)
	paused := map[string]bool{}
	for _, s := range all {
		paused[s.Name] = !s.Row.PausedAt.IsZero()
	}
	return paused, err
}

// What --by is for, of a command that acts and of one that enqueues.
const (
	byOfAct = "who does it, for the audit (default the name of the user)"
	byOfRun = "who enqueues, for the run's record"
)

func byFlag(cmd *cobra.Command, by *string, value, usage string) {
	cmd.Flags().StringVar(by, "by", value, usage)
}

// actorOr is by, or who runs this process.
func actorOr(by string) string {
	if by != "" {
		return by
	}
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return "cli"
}
