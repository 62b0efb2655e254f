package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

func newJobs(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "jobs",
		Short: "List, show, follow, cancel, retry, promote and delete runs",
		Long: `Look at the runs in the database and act on them.

A run is one enqueued job with all its attempts; its id never changes. States are
ready (due now), delayed (due later), running, suspended (asleep, or waiting for an
event or for children), done, failed (gave up, nobody needs to look), dead (gave up,
waits for a person) and cancelled.`,
		Example: `  runner jobs ls --state dead
  runner jobs show 0197b2f4-5c1e-7d3a-9d5e-0c4f1b2a3d4e
  runner jobs retry 0197b2f4-5c1e-7d3a-9d5e-0c4f1b2a3d4e --from-step charge
  runner jobs retry --state dead --job charge-card --since 24h`,
		GroupID: groupOperate,
	}
	return e.group(cmd, newJobsLs(e), newJobsShow(e), newJobsLogs(e), newJobsWait(e), newJobsCancel(e), newJobsRetry(e), newJobsPromote(e), newJobsDelete(e))
}

func newJobsLs(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List runs, newest first",
		Long: `List runs, newest first. Filters combine; without any, all runs are listed.

A page ends after --limit runs; --before with the last id of a page gives the next.

Dead runs (dead letters) wait for a person: what to do is in their error, and
runner jobs retry runs them again, one by id or all that a filter names.`,
		Example: `  runner jobs ls
  runner jobs ls --state dead --job charge-card --since 24h
  runner jobs ls --tenant acme --limit 500 --json
  runner jobs ls --before 0197b2f4-5c1e-7d3a-9d5e-0c4f1b2a3d4e`,
		Args: cobra.NoArgs,
	}
	t := e.targetFlags(cmd)
	e.jsonFlag(cmd)
	filter := e.filterFlags(cmd)
	var before string
	var limit int
	cmd.Flags().StringVar(&before, "before", "", "only runs older than the run with this id")
	cmd.Flags().IntVar(&limit, "limit", 100, "runs to list, at most 1000")
	cmd.RunE = e.run(func(ctx context.Context, cmd *cobra.Command, _ []string) error {
		return e.withStore(ctx, t, func(ctx context.Context, o opened) error {
			p, err := filter.params(ctx, cmd, o.store)
			if err != nil {
				return err
			}
			p.Before, p.Limit = before, limit
			runs, err := o.store.List(ctx, p)
			if err != nil {
				return err
			}
			next := ""
			if len(runs) == p.Limit && len(runs) > 0 {
				next = runs[len(runs)-1].ID
			}
			if e.json {
				page := runsPage{Runs: make([]runView, 0, len(runs)), Next: next}
				for _, r := range runs {
					page.Runs = append(page.Runs, e.viewRun(r, redact))
				}
				return printJSON(e.Stdout, page)
			}
			now, err := o.store.Now(ctx)
			if err != nil {
				return err
			}
			t := table{head: []string{"ID", "JOB", "STATE", "ATTEMPT", "AGE", "DUE", "TENANT", "NOTE"}}
			for _, r := range runs {
				t.row(r.ID, r.Job, string(r.State), fmt.Sprintf("%d/%d", r.Attempt, r.MaxAttempts), ago(now, r.CreatedAt), dueOf(now, r), r.Tenant, cut(noteOf(r)))
			}
			t.print(e.Stdout, e.out, func(col int, text string) string {
				if col == 2 {
					return e.out.state(text)
				}
				return text
			})
			e.noteMore(cmd, next)
			if p.State == job.Dead && len(runs) > 0 {
				e.note("run one again: %s", elsewhere(cmd, retryCommand(runs[0])))
			}
			return nil
		})
	})
	return cmd
}

// dueOf is when a run goes on by itself, or "": one that waits for its children
// has no such time.
func dueOf(now time.Time, r job.Run) string {
	if r.State != job.Delayed && r.State != job.Suspended || forChildren(r) {
		return ""
	}
	if !r.RunAt.After(now) {
		return ago(now, r.RunAt) + " ago" // nothing looks after it: no worker, or a pause
	}
	return ago(now, r.RunAt)
}

// forChildren reports whether a run is parked until its children have ended.
func forChildren(r job.Run) bool {
	return r.State == job.Suspended && r.RunAt.Sub(r.CreatedAt) > store.InvokeHorizon/2
}

// noteOf is the one thing worth knowing of a run in a list.
func noteOf(r job.Run) string {
	if text := failureText(r.Error); text != "" && r.State != job.Done {
		return text
	}
	if r.Progress.Note != "" && r.State.Live() {
		return r.Progress.Note
	}
	if r.Key == r.ID {
		return "" // a key of its own, as {run.id} makes it, says nothing
	}
	return r.Key
}

// retryCommand is what runs a dead run again.
func retryCommand(r job.Run) string { return "runner jobs retry " + r.ID }

func stateNames() string {
	names := make([]string, len(job.States))
	for i, s := range job.States {
		names[i] = string(s)
	}
	return strings.Join(names, ", ")
}

func newJobsShow(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show ID…",
		Short: "Show a run with its attempts, steps and errors",
		Long: `Show everything that is known of a run: what it is, and what happened to it in
order: attempts, steps with their recorded outputs, sleeps, waits, errors, what was
logged and what operators did; then the runs that it started. With several ids they are
shown one after the other, with --json as one document each.

ID may be the beginning of an id, if no other run's begins so. Values of keys that
look secret (password, token, secret and their like) are hidden, and so is what is
nested deeper than 8 levels.`,
		Example: `  runner jobs show 0197b2f4-5c1e-7d3a-9d5e-0c4f1b2a3d4e
  runner jobs show 0197b2f4 --json`,
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: e.completeRuns,
	}
	t := e.targetFlags(cmd)
	e.jsonFlag(cmd)
	cmd.RunE = e.run(func(ctx context.Context, _ *cobra.Command, args []string) error {
		return e.withStore(ctx, t, func(ctx context.Context, o opened) error {
			for i, id := range args {
				h, err := readHistory(ctx, o.store, id)
				if err != nil {
					return err
				}
				if i > 0 && !e.json {
					_, _ = fmt.Fprintln(e.Stdout)
				}
				if err := e.printHistory(h, redact); err != nil {
					return err
				}
			}
			return nil
		})
	})
	return cmd
}

func (e *env) printHistory(h history, show func([]byte) json.RawMessage) error {
	if e.json {
		v := viewHistory(h, show)
		v.runView = e.viewRun(h.run, show)
		for i, r := range h.children {
			v.Children[i] = e.viewRun(r, show)
		}
		return printJSON(e.Stdout, v)
	}
	printTimeline(e.Stdout, e.out, h, show)
	return nil
}

// readHistory is the run whose id is or begins with id, and what happened to it.
func readHistory(ctx context.Context, s store.Store, id string) (history, error) {
	id, err := wholeID(ctx, s, id)
	if err != nil {
		return history{}, err
	}
	var h history
	if h.run, err = s.Get(ctx, id); err != nil {
		return history{}, err
	}
	if h.attempts, err = s.Attempts(ctx, id); err != nil {
		return history{}, err
	}
	if h.steps, err = s.ListSteps(ctx, id); err != nil {
		return history{}, err
	}
	if h.log, err = s.ListLogs(ctx, store.ListLogsParams{Run: id}); err != nil {
		return history{}, err
	}
	if h.audit, err = s.Audit(ctx, store.AuditParams{Kind: store.AuditRun, Subject: id}); err != nil {
		return history{}, err
	}
	h.children, err = s.List(ctx, store.ListParams{Parent: id, Limit: shownChildren + 1})
	if h.more = len(h.children) > shownChildren; h.more {
		h.children = h.children[:shownChildren]
	}
	return h, err
}

// idLength is that of a UUID in its canonical text.
const idLength = 36

// wholeID completes the beginning of an id that only one run has.
// Errors: X_JOB_NOT_FOUND, X_ID_INVALID for a beginning that several share.
func wholeID(ctx context.Context, s store.Store, id string) (string, error) {
	id = strings.ToLower(id)
	if len(id) >= idLength {
		return id, nil
	}
	runs, err := s.List(ctx, store.ListParams{IDPrefix: id, Limit: 2})
	switch {
	case err != nil:
		return "", err
	case len(runs) == 0 || id == "":
		return "", &abi.Error{Code: job.CodeNotFound, Message: fmt.Sprintf("no run has an id that begins with %q", id), Fix: "list the runs with: runner jobs ls"}
	case len(runs) > 1:
		return "", &abi.Error{Code: job.CodeIDInvalid, Message: fmt.Sprintf("more than one run has an id that begins with %q", id), Fix: "give more of the id; list them with: runner jobs ls --id " + id}
	}
	return runs[0].ID, nil
}
