package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

func newJobsLogs(e *env) *cobra.Command {
	var follow bool
	cmd := &cobra.Command{
		Use:   "logs ID",
		Short: "Show what a run's handler logged",
		Long: fmt.Sprintf(`Show the last lines that the handler of a run logged, of all attempts: up to %d lines and
%d KiB are kept of a run, for as long as the run. How many earlier ones are not kept any
more is said on stderr.

Lines are kept when their attempt ends, and every third of the worker's lease while it
goes on. With --follow, later lines are shown as they come, until the run has ended.
With --json the lines are one document, or with --follow a document each.`, job.MaxLogLines, job.MaxLogBytes>>10),
		Example: `  runner jobs logs 0197b2f4-5c1e-7d3a-9d5e-0c4f1b2a3d4e
  runner jobs logs 0197b2f4 --follow`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: e.completeRuns,
	}
	t := e.targetFlags(cmd)
	e.jsonFlag(cmd)
	cmd.Flags().BoolVar(&follow, "follow", false, "go on with later lines until the run has ended")
	cmd.RunE = e.run(func(ctx context.Context, _ *cobra.Command, args []string) error {
		return e.withStore(ctx, t, func(ctx context.Context, o opened) error {
			id, err := wholeID(ctx, o.store, args[0])
			if err != nil {
				return err
			}
			run, err := o.store.Get(ctx, id) // or it would be a run that logged nothing
			if err != nil {
				return err
			}
			if follow {
				return e.followLogs(ctx, o.store, run)
			}
			res, err := o.store.ListLogs(ctx, store.ListLogsParams{Run: id})
			if err != nil {
				return err
			}
			if e.json {
				return printJSON(e.Stdout, logsView{Logs: viewLog(res.Lines), Dropped: res.Dropped})
			}
			e.sayDropped(res.Dropped)
			return e.printLog(run, res.Lines)
		})
	})
	return cmd
}

// followLogs prints lines as they come, until the run has ended.
func (e *env) followLogs(ctx context.Context, s store.Store, run job.Run) error {
	after, wait := int64(0), followFloor
	for {
		ended := run.State.Terminal() // before the look: what the end brought is there then
		res, err := s.ListLogs(ctx, store.ListLogsParams{Run: run.ID, After: after})
		if err != nil {
			return err
		}
		if missed := res.Dropped - after; missed > 0 {
			e.sayDropped(missed)
		}
		if err := e.printLog(run, res.Lines); err != nil || ended {
			return err
		}
		if n := len(res.Lines); n > 0 {
			after, wait = res.Lines[n-1].Seq, followFloor
		}
		t := time.NewTimer(wait)
		select {
		case <-t.C:
			wait = min(2*wait, followCeiling)
		case <-ctx.Done():
			t.Stop()
			return context.Cause(ctx)
		}
		if run, err = s.Get(ctx, run.ID); err != nil {
			if ctx.Err() != nil {
				err = context.Cause(ctx)
			}
			return err
		}
	}
}

func (e *env) sayDropped(n int64) {
	if n > 0 {
		e.note("%s", droppedText(n))
	}
}

func droppedText(n int64) string {
	if n == 1 {
		return "1 earlier line is not kept any more"
	}
	return fmt.Sprintf("%d earlier lines are not kept any more", n)
}

// printLog prints lines, each on its own.
func (e *env) printLog(run job.Run, lines []job.LogLine) error {
	for _, l := range lines {
		if e.json {
			b, err := json.Marshal(viewLog([]job.LogLine{l})[0])
			if err != nil {
				return err
			}
			if _, err := fmt.Fprintf(e.Stdout, "%s\n", printableJSON(b)); err != nil {
				return err
			}
			continue
		}
		if err := printLogLine(e.Stdout, e.out, run, l); err != nil {
			return err
		}
	}
	return nil
}

func printLogLine(w io.Writer, s style, run job.Run, l job.LogLine) error {
	text := cell(l.Text)
	if l.Step != "" {
		text = cell(l.Step) + ": " + text
	}
	_, err := fmt.Fprintf(w, "%s %-5s %s\n", s.dim(fmt.Sprintf("%10s  #%d", offset(l.At.Sub(run.CreatedAt)), l.Attempt)), l.Level, text)
	return err
}

// logView is a line as JSON.
type logView struct {
	Seq     int64     `json:"seq"`
	At      time.Time `json:"at"`
	Attempt int       `json:"attempt"`
	Level   string    `json:"level"`
	Step    string    `json:"step,omitempty"`
	Text    string    `json:"text"`
}

// logsView is what is kept of what a run's handler logged, as JSON.
type logsView struct {
	Logs    []logView `json:"logs"`
	Dropped int64     `json:"logs_dropped"`
}

func viewLog(lines []job.LogLine) []logView {
	out := make([]logView, 0, len(lines))
	for _, l := range lines {
		out = append(out, logView(l))
	}
	return out
}
