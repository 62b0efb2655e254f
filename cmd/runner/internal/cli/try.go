package cli

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/cmd/runner/internal/app"
	"github.com/jobrunner/runner/engine"
	"github.com/jobrunner/runner/engine/job"
)

const codeTryTimeout = "X_TRY_TIMEOUT"

func newTry(e *env) *cobra.Command {
	var (
		file, input, key, tenant string
		events                   string
		logs                     bool
		timeout                  time.Duration
	)
	cmd := &cobra.Command{
		Use:   "try JOB",
		Short: "Run one job to the end in memory, waits taking no time",
		Long: `Run one job, and the runs it enqueues, to the end in memory, and print what happened.
Nothing is written and no server is needed. The clock is virtual: sleeps, delays, retry
backoffs, the timeouts of waits and invokes and what a rate holds up take no time, however
long they are. Everything else is real: the module is loaded and granted what jobs.toml
says, its steps do what they do, and an attempt or a step has its timeout.

An event that the run waits for comes from --events, a file of JSON lines that say when,
on the same clock; without one, a wait times out. Children that the run invokes run too.

Schedules are not fired: runner schedules next says when one comes, and its job is tried
with the input that it would have.

The exit code is 0 if the run ended done, 1 if it ended otherwise: a test for CI.`,
		Example: `  runner try onboard-org --input '{"orgId":"acme","plan":"team"}'
  runner try onboard-org --input @testdata/org.json --json
  runner try import-row --input - --logs < row.json
  runner try approve-order --input @order.json --events events.jsonl`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: e.completeJob,
		GroupID:           groupWork,
	}
	e.manifestFlag(cmd, &file)
	e.jsonFlag(cmd)
	f := cmd.Flags()
	f.StringVar(&input, "input", "", "the input: JSON, @FILE, or - for stdin (default null)")
	f.StringVar(&key, "key", "", "the idempotency key, instead of the one jobs.toml makes")
	f.StringVar(&tenant, "tenant", "", "the tenant; must agree with the one jobs.toml makes")
	f.StringVar(&events, "events", "", "events to come: a file of lines as {\"after\":\"2h\",\"topic\":\"approval\",\"key\":\"o-1\",\"data\":true}")
	f.BoolVar(&logs, "logs", false, "print what the handler and the runner log on stderr")
	durationVar(f, &timeout, "timeout", 5*time.Minute, "give up after this long, in real time")
	cmd.RunE = e.run(func(ctx context.Context, _ *cobra.Command, args []string) error {
		in, err := e.readInput(input)
		if err != nil {
			return err
		}
		come, err := readEvents(events)
		if err != nil {
			return err
		}
		logger := slog.New(slog.DiscardHandler)
		if logs {
			logger = slog.New(slog.NewTextHandler(e.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
		}
		late := &abi.Error{Code: codeTryTimeout, Message: fmt.Sprintf("the run did not end within %v", timeout), Fix: "look for a step that waits, or give a longer --timeout"}
		ctx, cancel := context.WithTimeoutCause(ctx, timeout, late)
		defer cancel()
		tried, err := app.Try(ctx, app.TryParams{
			Events: come, Manifest: file, Getenv: e.Getenv, Logger: logger,
			Request: engine.Request{Job: args[0], Input: in, Key: key, Tenant: tenant, EnqueuedBy: "try"},
		})
		if err != nil {
			return err
		}
		if err := e.printTried(tried); err != nil {
			return err
		}
		root := tried[0].Run
		if root.State != job.Done {
			return &abi.Error{Code: codeRunNotDone, Message: fmt.Sprintf("the run ended %s", root.State), Fix: root.Error.Fix}
		}
		return nil
	})
	return cmd
}

// childrenOf are those of tried that a run started, newest first.
func childrenOf(tried []app.Tried, parent string) (out []job.Run) {
	for _, t := range slices.Backward(tried) {
		if t.Run.Parent == parent {
			out = append(out, t.Run)
		}
	}
	return out
}

// printTried prints payloads whole: the author gave them.
func (e *env) printTried(tried []app.Tried) error {
	if e.json {
		views := make([]historyView, len(tried))
		for i, t := range tried {
			views[i] = viewHistory(history{run: t.Run, attempts: t.Attempts, steps: t.Steps, children: childrenOf(tried, t.Run.ID)}, whole)
		}
		return printJSON(e.Stdout, map[string]any{"run": views[0], "enqueued": views[1:]})
	}
	for i, t := range tried {
		if i > 0 {
			_, _ = fmt.Fprintf(e.Stdout, "\n%s\n\n", e.out.dim("enqueued by it:"))
		}
		printTimeline(e.Stdout, e.out, history{run: t.Run, attempts: t.Attempts, steps: t.Steps}, whole)
	}
	return nil
}
