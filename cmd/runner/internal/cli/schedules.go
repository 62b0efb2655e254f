package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/manifest"
)

func newSchedules(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "schedules",
		Short: "List schedules, preview, run, pause, resume and delete them",
		Long: `A schedule of the manifest enqueues runs at the times that its cron expression names in
its zone. Processes that serve fire it: one at a time, each occurrence once.`,
		Example: `  runner schedules ls
  runner schedules next nightly-digest -n 5
  runner schedules pause nightly-digest`,
		GroupID: groupOperate,
	}
	return e.group(cmd, newSchedulesLs(e), newSchedulesNext(e), newSchedulesRun(e), newSchedulesPause(e), newSchedulesResume(e), newSchedulesDelete(e))
}

// scheduleView is a schedule as JSON. Names and meanings are stable; a value that
// does not exist is absent.
type scheduleView struct {
	Name              string    `json:"name"`
	State             string    `json:"state"`
	Declared          bool      `json:"declared"`
	Cron              string    `json:"cron,omitempty"`
	Zone              string    `json:"tz,omitempty"`
	Next              time.Time `json:"next,omitzero"`
	Watermark         time.Time `json:"watermark,omitzero"`
	FiredOccurrence   time.Time `json:"fired_occurrence,omitzero"`
	FiredAt           time.Time `json:"fired_at,omitzero"`
	Fires             int64     `json:"fires"`
	SkippedOccurrence time.Time `json:"skipped_occurrence,omitzero"`
	SkippedFor        string    `json:"skipped_for,omitempty"`
	Skips             int64     `json:"skips"`
	Missed            int64     `json:"missed"`
	PausedAt          time.Time `json:"paused_at,omitzero"`
	PausedBy          string    `json:"paused_by,omitempty"`
	LedBy             string    `json:"led_by,omitempty"`
	LedUntil          time.Time `json:"led_until,omitzero"`
}

// States of a schedule in a listing.
const (
	scheduleActive     = "active"     // a process leads it
	schedulePaused     = "paused"     // by an operator
	scheduleIdle       = "idle"       // nothing leads it: no process that declares it serves
	scheduleUndeclared = "undeclared" // the manifest has it not, and nothing leads it
)

func viewSchedule(s engine.ScheduleStatus, now time.Time) scheduleView {
	r := s.Row
	v := scheduleView{
		Name: s.Name, Declared: s.Declared != nil, Next: s.Next.UTC(), Watermark: r.Watermark, FiredOccurrence: r.FiredOccurrence, FiredAt: r.FiredAt,
		Fires: r.Fires, SkippedOccurrence: r.SkippedOccurrence, SkippedFor: r.SkippedFor, Skips: r.Skips, Missed: r.Missed,
		PausedAt: r.PausedAt, PausedBy: r.PausedBy,
	}
	led := r.LeasedUntil.After(now)
	if led {
		v.LedBy, v.LedUntil = r.Holder, r.LeasedUntil
	}
	if s.Declared != nil {
		v.Cron, v.Zone = s.Declared.Spec.String(), s.Declared.Zone.String()
	}
	switch {
	case !r.PausedAt.IsZero():
		v.State = schedulePaused
	case led:
		v.State = scheduleActive
	case s.Declared == nil:
		v.State = scheduleUndeclared
	default:
		v.State = scheduleIdle
	}
	return v
}

func newSchedulesLs(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List schedules, and how far each has come",
		Long: `List the schedules of the manifest, and those that the database knows besides. A schedule
is active while a process fires it, paused by an operator, idle while no process serves a
manifest that declares it, and undeclared when this manifest does not have it and no
process fires it: such a one stays where it is until it is declared again, or removed.

NEXT is the first occurrence that is still to be dealt with, LAST the last that became
runs. All times are UTC; schedules next shows them in the schedule's zone.`,
		Example: `  runner schedules ls
  runner schedules ls --json`,
		Args: cobra.NoArgs,
	}
	t := e.targetFlags(cmd)
	e.jsonFlag(cmd)
	cmd.RunE = e.run(func(ctx context.Context, _ *cobra.Command, _ []string) error {
		return e.withStore(ctx, t, func(ctx context.Context, o opened) error {
			all, now, err := o.client.Schedules(ctx)
			if err != nil {
				return err
			}
			views := make([]scheduleView, 0, len(all))
			for _, s := range all {
				views = append(views, viewSchedule(s, now))
			}
			if e.json {
				return printJSON(e.Stdout, map[string]any{"schedules": views})
			}
			e.printSchedules(views, now)
			return nil
		})
	})
	return cmd
}

func (e *env) printSchedules(views []scheduleView, now time.Time) {
	t := table{head: []string{"SCHEDULE", "STATE", "CRON", "ZONE", "NEXT", "LAST", "NOTE"}}
	for _, v := range views {
		t.row(v.Name, v.State, v.Cron, v.Zone, minuteOf(v.Next), minuteOf(v.FiredOccurrence), cut(noteOfSchedule(v, now)))
	}
	t.print(e.Stdout, e.out, func(col int, text string) string {
		switch state := strings.TrimSpace(text); {
		case col != 1:
		case state == scheduleActive:
			return e.out.green(text)
		case state == schedulePaused, state == scheduleUndeclared:
			return e.out.yellow(text)
		}
		return text
	})
}

// minuteOf is an occurrence in a list.
func minuteOf(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format(time.RFC3339)
}

// noteOfSchedule is the one thing worth knowing of a schedule in a list.
func noteOfSchedule(v scheduleView, now time.Time) string {
	switch {
	case !v.PausedAt.IsZero() && v.PausedBy != "":
		return fmt.Sprintf("paused %s ago by %s", ago(now, v.PausedAt), v.PausedBy)
	case !v.PausedAt.IsZero():
		return fmt.Sprintf("paused %s ago", ago(now, v.PausedAt))
	case !v.SkippedOccurrence.IsZero() && !v.SkippedOccurrence.Before(v.FiredOccurrence):
		return fmt.Sprintf("skipped %s: run %s is live", minuteOf(v.SkippedOccurrence), v.SkippedFor)
	case !v.Next.IsZero() && now.Sub(v.Next) > time.Minute:
		return fmt.Sprintf("overdue for %s", short(now.Sub(v.Next)))
	}
	return ""
}

// occurrenceView is an occurrence as JSON: when it is, in UTC and on the clocks of
// its zone, and, with jitter, when its runs become due.
type occurrenceView struct {
	Occurrence time.Time `json:"occurrence"`
	Local      string    `json:"local"`
	Due        time.Time `json:"due,omitzero"`
}

// maxPreview bounds how many occurrences are listed.
const maxPreview = 10_000

func newSchedulesNext(e *env) *cobra.Command {
	var n int
	var from, file string
	cmd := &cobra.Command{
		Use:   "next NAME",
		Short: "Show when a schedule of the manifest comes next",
		Long: `Show the next occurrences of a schedule, on the clocks of its zone and in UTC, as the
scheduler computes them: a time that a clock change skips comes at the end of the gap, and
one that it repeats comes once. It reads the manifest and no database, and knows nothing
of pauses.`,
		Example: `  runner schedules next nightly-digest
  runner schedules next nightly-digest -n 20 --from 2026-10-24T00:00:00Z`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: e.completeSchedule,
	}
	e.manifestFlag(cmd, &file)
	e.jsonFlag(cmd)
	cmd.Flags().IntVarP(&n, "number", "n", 10, "how many")
	cmd.Flags().StringVar(&from, "from", "", "after this instant, as in 2026-03-01T09:00:00Z (default now)")
	cmd.RunE = e.run(func(_ context.Context, _ *cobra.Command, args []string) error {
		if n < 1 || n > maxPreview {
			return usagef(fmt.Sprintf("write 1 to %d", maxPreview), "--number %d cannot be listed", n)
		}
		at, err := parseTime("from", from)
		if err != nil {
			return err
		}
		if at.IsZero() {
			at = time.Now()
		}
		m, report := manifest.Load(file)
		if report != nil {
			return report
		}
		s := m.Schedules[args[0]]
		if s == nil {
			return &abi.Error{
				Code: job.CodeScheduleNotFound, Message: fmt.Sprintf("%s declares no schedule %q", file, args[0]),
				Fix: "name one of [schedules], or another manifest with -f",
			}
		}
		return e.printNext(s, at, n)
	})
	return cmd
}

func (e *env) printNext(s *manifest.Schedule, at time.Time, n int) error {
	views := []occurrenceView{}
	t := table{head: []string{"LOCAL", "UTC"}}
	if s.Jitter > 0 {
		t.head = append(t.head, "DUE")
	}
	for range n {
		if at = s.Next(at); at.IsZero() {
			break
		}
		v := occurrenceView{Occurrence: at.UTC(), Local: at.Format("2006-01-02T15:04:05-07:00")}
		row := []string{at.Format("Mon 2006-01-02T15:04:05-07:00"), minuteOf(at)}
		if s.Jitter > 0 {
			v.Due = s.Due(at).UTC()
			row = append(row, instant(v.Due))
		}
		views = append(views, v)
		t.row(row...)
	}
	if e.json {
		return printJSON(e.Stdout, map[string]any{"occurrences": views})
	}
	t.print(e.Stdout, e.out, nil)
	return nil
}

// scheduledView is a run that schedules run enqueued, as JSON.
type scheduledView struct {
	Job     string    `json:"job"`
	ID      string    `json:"id"`
	Deduped bool      `json:"deduped,omitempty"`
	State   job.State `json:"state"`
}
