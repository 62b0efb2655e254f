package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/jobrunner/runner/engine"
	"github.com/jobrunner/runner/engine/job"
)

// act is a command that does one thing to runs: those that its arguments name,
// or those that a filter does.
type act struct {
	env    *env
	cmd    *cobra.Command
	done   string // "cancelled"
	bulk   engine.BulkParams
	one    func(ctx context.Context, o opened, id string) (job.Run, error)
	target *target
	filter *filter
	by     string
}

// actFlags adds the flags that all such commands share.
func (e *env) actFlags(cmd *cobra.Command, verb engine.BulkVerb) *act {
	a := &act{env: e, cmd: cmd, target: e.targetFlags(cmd), filter: e.filterFlags(cmd), bulk: engine.BulkParams{Verb: verb}}
	e.jsonFlag(cmd)
	flags := cmd.Flags()
	flags.IntVar(&a.bulk.Limit, "limit", engine.MaxBulk, "with a filter: runs to act on, oldest first")
	flags.BoolVar(&a.bulk.DryRun, "dry-run", false, "with a filter: print the runs it is about and act on none")
	byFlag(cmd, &a.by, "", byOfAct)
	cmd.ValidArgsFunction = e.completeRuns
	cmd.RunE = e.run(a.run)
	return a
}

func (a *act) run(ctx context.Context, cmd *cobra.Command, args []string) error {
	bulk := a.filter.given()
	switch {
	case bulk && len(args) > 0:
		return usagef("name runs by their ids or by a filter", "runs are named by id and by a filter")
	case !bulk && len(args) == 0:
		return usagef("give an id, or a filter as in --state dead --job NAME", "no run is named")
	case bulk && a.filter.state == "":
		return usagef("add --state", "a filter without a state could name every run there is")
	case !bulk && (a.bulk.DryRun || cmd.Flags().Changed("limit")):
		return usagef("leave it out, or name runs by a filter", "--limit and --dry-run are for runs that a filter names")
	}
	return a.env.withStore(engine.WithActor(ctx, actorOr(a.by)), a.target, func(ctx context.Context, o opened) error {
		if bulk {
			return a.many(ctx, o)
		}
		for _, arg := range args {
			id, err := wholeID(ctx, o.store, arg)
			if err != nil {
				return err
			}
			run, err := a.one(ctx, o, id)
			if err != nil {
				return err
			}
			done := a.done
			switch {
			case run.ID != id:
				// Retrying a run that was undone makes another one.
				done = "ready in place of " + id
			case a.bulk.Verb == engine.BulkCancel && run.State.Live():
				done = "being undone, and ends cancelled after that"
			case a.bulk.Verb == engine.BulkRetry:
				if u, err := o.store.Unwinds(ctx, []string{id}); err == nil && len(u) > 0 {
					done = "ready again, to be undone to its end"
				}
			}
			if err := a.env.printActed(run, done); err != nil {
				return err
			}
		}
		return nil
	})
}

// bulkView is what a bulk operation did, as JSON.
type bulkView struct {
	IDs       []string          `json:"ids"`
	Undoing   []string          `json:"undoing,omitempty"`     // of them
	InPlaceOf map[string]string `json:"in_place_of,omitempty"` // by fresh ones of them, the runs that were undone
	Blocked   int               `json:"blocked"`
	Remaining int               `json:"remaining"`
	DryRun    bool              `json:"dry_run,omitempty"`
}

func (a *act) many(ctx context.Context, o opened) error {
	var err error
	if a.bulk.Filter, err = a.filter.params(ctx, a.cmd, o.store); err != nil {
		return err
	}
	res, err := o.client.Bulk(ctx, a.bulk)
	if err != nil && len(res.Moved) == 0 {
		return err
	}
	return errors.Join(a.print(res), err) // what was done before an error is said too
}

func (a *act) print(res engine.BulkResult) error {
	e := a.env
	ids := make([]string, len(res.Moved)) // of the runs as they are now
	inPlaceOf := map[string]string{}
	for i, id := range res.Moved {
		ids[i] = id
		if fresh, ok := res.Fresh[id]; ok {
			ids[i], inPlaceOf[fresh] = fresh, id
		}
	}
	if e.json {
		return printJSON(e.Stdout, bulkView{IDs: ids, Undoing: res.Undoing, InPlaceOf: inPlaceOf, Blocked: res.Blocked, Remaining: res.Remaining, DryRun: a.bulk.DryRun})
	}
	for _, id := range ids {
		if _, err := fmt.Fprintln(e.Stdout, id); err != nil {
			return err
		}
	}
	would := ""
	if a.bulk.DryRun {
		would = "would be "
	}
	_, _ = fmt.Fprintf(e.Stderr, "runs %s%s: %d\n", would, a.done, len(res.Moved))
	if len(res.Undoing) > 0 {
		what := "of which are undone first"
		if a.bulk.Verb == engine.BulkRetry {
			what = "of which go on being undone"
		}
		_, _ = fmt.Fprintf(e.Stderr, "%s: %d\n", what, len(res.Undoing))
	}
	if len(res.Fresh) > 0 {
		_, _ = fmt.Fprintf(e.Stderr, "of which are fresh, in place of runs that were undone: %d\n", len(res.Fresh))
	}
	if res.Blocked > 0 {
		_, _ = fmt.Fprintf(e.Stderr, "left, since a live run holds the key: %d\n", res.Blocked)
	}
	if res.Remaining > 0 {
		atLeast := ""
		if res.Remaining == engine.MaxBulk {
			atLeast = "at least "
		}
		_, _ = fmt.Fprintf(e.Stderr, "remaining: %s%d; the same command goes on\n", atLeast, res.Remaining)
	}
	return nil
}

// filterHelp is what the commands that act on runs have in common.
const filterHelp = `

Runs are named by their ids, or by a filter, which needs a --state: then up to --limit
of them, oldest first, each in a write of its own. --dry-run prints their ids instead.
What was done, and by whom, is kept for 90 days: runner audit ls.`

func newJobsPromote(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "promote ID… | --state delayed",
		Short: "Make delayed runs due now",
		Long: `Make runs due now that were delayed, by their enqueuer or between two attempts. A run
that sleeps is not woken: that would break what its step promised.` + filterHelp,
		Example: `  runner jobs promote 0197b2f4-5c1e-7d3a-9d5e-0c4f1b2a3d4e
  runner jobs promote --state delayed --job send-digest`,
	}
	a := e.actFlags(cmd, engine.BulkPromote)
	a.done = "due now"
	a.one = func(ctx context.Context, o opened, id string) (job.Run, error) { return o.client.Promote(ctx, id) }
	return cmd
}

func newJobsDelete(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "delete ID… | --state STATE",
		Aliases: []string{"rm"},
		Short:   "Remove runs with their history",
		Long: `Remove runs with their attempts and steps, before their retention is over or though
they never ran. A run that is running is refused: cancel it first.` + filterHelp,
		Example: `  runner jobs delete 0197b2f4-5c1e-7d3a-9d5e-0c4f1b2a3d4e
  runner jobs delete --state failed --job import --until 30d`,
	}
	a := e.actFlags(cmd, engine.BulkDelete)
	a.done = "deleted"
	a.one = func(ctx context.Context, o opened, id string) (job.Run, error) { return o.client.Delete(ctx, id) }
	return cmd
}
