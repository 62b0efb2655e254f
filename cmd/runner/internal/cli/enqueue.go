package cli

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/spf13/cobra"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

// envTraceparent is where programs that trace tell those they start of their span.
const envTraceparent = "TRACEPARENT"

// traceparent is the form of one, of whichever version; what is none is not passed on.
var traceparent = regexp.MustCompile(`^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$`)

// enqueueFlags are the flags of enqueue.
type enqueueFlags struct {
	input, lines string
	key, tenant  string
	by           string
	runAt        string
	delay        time.Duration
	priority     int
	attempts     int
	conflict     string
	wait         bool
	timeout      time.Duration
}

func newEnqueue(e *env) *cobra.Command {
	var f enqueueFlags
	cmd := &cobra.Command{
		Use:   "enqueue JOB",
		Short: "Put a run in the queue",
		Long: `Put a run of a job in the queue. The input is checked against the job's schema, and
tenant and idempotency key are made from it as jobs.toml says. If a live run already
holds the key, nothing is enqueued and that run's id is printed.

When the command has printed an id, the run is on disk. It needs no server: one that
is started later works it off.

--wait follows the run to its end, shows its progress on stderr and prints its output
on stdout; the exit code is 1 if it ended other than done.

The run is in the trace that $TRACEPARENT names. With the standard OTEL_* variables (see
"traces" in docs/operating.md) the enqueue has a span of its own there, and the run is
under it.

--input-lines enqueues a run for each line of a file of JSON lines, in batches of at
most ` + fmt.Sprint(linesBatch) + `, and prints the id of each line when its batch is on disk. A bad line stops
at its batch, which is not enqueued: stderr says at which line to go on once it is mended.
With --json the answer has the run of each line, and the line that stopped it as
next_line.`,
		Example: `  runner enqueue onboard-org --input '{"orgId":"acme","plan":"team"}'
  runner enqueue onboard-org --input @org.json --wait --timeout 1m
  generate-input | runner enqueue import-row --input -
  runner enqueue invoice --input-lines invoices.jsonl
  runner enqueue send-digest --input '{}' --run-at 2026-03-01T09:00:00Z --priority 10`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: e.completeJob,
		GroupID:           groupWork,
	}
	t := e.targetFlags(cmd)
	e.jsonFlag(cmd)
	fl := cmd.Flags()
	fl.StringVar(&f.input, "input", "", "the input: JSON, @FILE, or - for stdin (default null)")
	fl.StringVar(&f.lines, "input-lines", "", "a file with an input on each line; - is stdin")
	fl.StringVar(&f.key, "key", "", "the idempotency key, instead of the one jobs.toml makes")
	fl.StringVar(&f.tenant, "tenant", "", "the tenant; must agree with the one jobs.toml makes, if it is not \"none\"")
	fl.StringVar(&f.runAt, "run-at", "", "when it becomes due, as in 2026-03-01T09:00:00Z")
	durationVar(fl, &f.delay, "delay", 0, "how long until it becomes due, as in 90s, 2h or 3d")
	fl.IntVar(&f.priority, "priority", 0, "lower runs first, -100 to 100 (default the job's)")
	fl.IntVar(&f.attempts, "attempts", 0, "attempts in all (default the job's)")
	fl.StringVar(&f.conflict, "on-conflict", "dedupe", "when a live run holds the key: dedupe or error")
	byFlag(cmd, &f.by, "cli", byOfRun)
	fl.BoolVar(&f.wait, "wait", false, "follow the run to its end")
	durationVar(fl, &f.timeout, "timeout", 0, "with --wait: give up watching after this long; the run goes on")
	cmd.MarkFlagsMutuallyExclusive("input", "input-lines")
	cmd.MarkFlagsMutuallyExclusive("run-at", "delay")
	cmd.MarkFlagsMutuallyExclusive("wait", "input-lines")
	cmd.MarkFlagsMutuallyExclusive("key", "input-lines")
	e.complete(cmd, "on-conflict", cobra.FixedCompletions([]string{"dedupe", "error"}, cobra.ShellCompDirectiveNoFileComp))
	cmd.RunE = e.run(func(ctx context.Context, cmd *cobra.Command, args []string) error {
		r, err := f.request(cmd, args[0])
		if err != nil {
			return err
		}
		if parent := e.Getenv(envTraceparent); traceparent.MatchString(parent) {
			r.Traceparent = parent
		}
		if f.lines != "" {
			return e.withTraces(ctx, t, func(ctx context.Context, o opened) error { return e.enqueueLines(ctx, cmd, o, f, r) })
		}
		if r.Input, err = e.readInput(f.input); err != nil {
			return err
		}
		return e.withTraces(ctx, t, func(ctx context.Context, o opened) error { return e.enqueueOne(ctx, o, f, r) })
	})
	return cmd
}

// request is what the flags ask for, without the input.
func (f *enqueueFlags) request(cmd *cobra.Command, jobName string) (engine.Request, error) {
	r := engine.Request{Job: jobName, Key: f.key, Tenant: f.tenant, Delay: f.delay, MaxAttempts: f.attempts, EnqueuedBy: f.by}
	switch f.conflict {
	case "dedupe":
	case "error":
		if f.lines != "" {
			return r, usagef("leave one of them out", "--on-conflict error cannot be promised for --input-lines: part of a batch may be enqueued")
		}
		r.OnConflict = engine.Fail
	default:
		return r, usagef("dedupe or error", "--on-conflict %q is not known", f.conflict)
	}
	if f.timeout != 0 && !f.wait {
		return r, usagef("add --wait", "--timeout is for --wait")
	}
	if cmd.Flags().Changed("priority") {
		r.Priority = &f.priority
	}
	var err error
	r.RunAt, err = parseTime("run-at", f.runAt)
	return r, err
}

// enqueuedView is an enqueue's answer as JSON.
type enqueuedView struct {
	ID      string    `json:"id"`
	Deduped bool      `json:"deduped,omitempty"`
	State   job.State `json:"state"`
}

// linesView is the answer to --input-lines as JSON.
type linesView struct {
	Enqueued int            `json:"enqueued"`
	Deduped  int            `json:"deduped"`
	Runs     []enqueuedView `json:"runs"`                // one for each line, in their order
	NextLine int            `json:"next_line,omitempty"` // that stopped it: it is not enqueued, and none after it
}

func (e *env) enqueueOne(ctx context.Context, o opened, f enqueueFlags, r engine.Request) error {
	res, err := o.client.Enqueue(ctx, r)
	if err != nil {
		return unknownOutcome(err)
	}
	if f.wait {
		if res.Deduped {
			_, _ = fmt.Fprintf(e.Stderr, "run %s holds the key already; following it\n", res.ID)
		}
		return e.follow(ctx, o, res.ID, f.timeout)
	}
	if e.json {
		return printJSON(e.Stdout, enqueuedView{ID: res.ID, Deduped: res.Deduped, State: res.State})
	}
	if res.Deduped {
		e.note("a live run holds the key already; nothing was enqueued")
	}
	_, err = fmt.Fprintln(e.Stdout, res.ID)
	return err
}

func (e *env) enqueueLines(ctx context.Context, cmd *cobra.Command, o opened, f enqueueFlags, r engine.Request) error {
	v := linesView{Runs: []enqueuedView{}}
	last := 0 // line that is enqueued
	next, err := e.lines(f.lines, func(name string, batch []inputLine) error {
		requests := make([]engine.Request, len(batch))
		for i, line := range batch {
			requests[i] = r
			requests[i].Input = line.text
		}
		results, err := o.client.EnqueueMany(ctx, requests)
		for i, res := range results {
			if last = batch[i].number; res.Deduped {
				v.Deduped++
			} else {
				v.Enqueued++
			}
			if e.json {
				v.Runs = append(v.Runs, enqueuedView{ID: res.ID, Deduped: res.Deduped, State: res.State})
			} else if _, werr := fmt.Fprintln(e.Stdout, res.ID); werr != nil && err == nil {
				err = werr
			}
		}
		if err != nil {
			return atLine(name, batch, err)
		}
		return nil
	})
	if v.NextLine = next; next > 0 && v.Enqueued+v.Deduped > 0 {
		from := fmt.Sprintf("tail -n +%d %s | ", next, quote(f.lines))
		if f.lines == "-" {
			from = "" // which nobody but the caller can say
		}
		e.note("enqueued up to line %d: %s, %d deduped; when that is mended go on from line %d with: %s%s",
			last, count(v.Enqueued, "run"), v.Deduped, next, from, again(cmd, r.Job, "--input-lines", "-"))
	}
	if e.json && (err == nil || v.Enqueued+v.Deduped > 0) {
		return errors.Join(err, printJSON(e.Stdout, v))
	}
	if err == nil {
		e.note("%s enqueued, %d deduped", count(v.Enqueued, "run"), v.Deduped)
	}
	return err
}

// atLine says which line err is about, as far as it is about one.
func atLine(name string, batch []inputLine, err error) error {
	var entry *engine.EntryError
	switch {
	case errors.As(err, &entry):
		return fmt.Errorf("%s:%d: %w", name, batch[entry.Index].number, entry.Err)
	case len(batch) == 1:
		return fmt.Errorf("%s:%d: %w", name, batch[0].number, unknownOutcome(err))
	}
	return fmt.Errorf("%s:%d to %d: %w", name, batch[0].number, batch[len(batch)-1].number, unknownOutcome(err))
}

// unknownOutcome says what a write means whose answer never came.
func unknownOutcome(err error) error {
	if !errors.Is(err, store.ErrUnknown) {
		return err
	}
	out := &abi.Error{
		Code:    job.CodeDatabaseUnavailable,
		Message: "the database did not answer in time",
		Fix:     "see what slows it down: its disk, the way to it, or somebody who has it locked",
	}
	var why *abi.Error // the store's, of an earlier try
	if errors.As(err, &why) {
		*out = abi.Error{Code: why.Code, Message: why.Message, Fix: why.Fix}
	}
	out.Message += "; the run may have been enqueued or not"
	out.Fix += "; then enqueue again: under the same key a live run answers for both"
	return out
}

// notDone is the refusal of a run that did not end as it was meant to.
func notDone(run job.Run) error {
	message := fmt.Sprintf("run %s ended %s", run.ID, run.State)
	if text := failureText(run.Error); text != "" {
		message += ": " + text
	}
	fix := run.Error.Fix
	if fix == "" {
		fix = "see what happened with: runner jobs show " + run.ID
	}
	return &abi.Error{Code: codeRunNotDone, Message: message, Fix: fix}
}
