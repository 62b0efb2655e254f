package cli

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/jobrunner/runner/engine"
	"github.com/jobrunner/runner/engine/manifest"
	"github.com/jobrunner/runner/engine/store"
)

func newQueues(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "queues",
		Short: "List queues, pause and resume them",
		Long: `A queue holds runs until a worker claims them. A queue, a job or a tenant can be paused:
nothing of it is claimed until it is resumed, whatever is deployed or restarted
meanwhile. What is running goes on, and what waits is counted as before.`,
		Example: `  runner queues ls
  runner queues pause mail --reason 'the provider is down'
  runner queues resume mail`,
		GroupID: groupOperate,
	}
	return e.group(cmd, newQueuesLs(e), newQueuesPause(e), newQueuesResume(e))
}

// queueView is a queue as JSON.
type queueView struct {
	Name      string     `json:"name"`
	Ready     int64      `json:"ready"`
	Delayed   int64      `json:"delayed"`
	Suspended int64      `json:"suspended"`
	Running   int64      `json:"running"`
	Dead      int64      `json:"dead"`
	AtLeast   []string   `json:"at_least,omitempty"` // counts that stopped at their bound, by name
	OldestDue time.Time  `json:"oldest_due,omitzero"`
	Paused    *pauseView `json:"paused,omitempty"`
}

// queuesView is all queues and pauses as JSON.
type queuesView struct {
	Queues []queueView `json:"queues"`
	Pauses []pauseView `json:"pauses"`
}

// pauseView is a pause as JSON.
type pauseView struct {
	Kind   store.PauseKind `json:"kind"`
	Name   string          `json:"name"`
	Since  time.Time       `json:"since"`
	By     string          `json:"by"`
	Reason string          `json:"reason,omitempty"`
}

func newQueuesLs(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List queues with what waits in them, and what is paused",
		Long: `List the queues that have runs or are paused: how many runs are ready, wait for a time
or run, how long the oldest has been due, and who paused what. Runs that wait for a
limit are counted as ready.

Of a queue at most 100,000 ready runs are counted, and 10,000 that wait for a time: a
number with a + behind it is at least so many.`,
		Example: `  runner queues ls
  runner queues ls --json`,
		Args: cobra.NoArgs,
	}
	t := e.targetFlags(cmd)
	e.jsonFlag(cmd)
	cmd.RunE = e.run(func(ctx context.Context, _ *cobra.Command, _ []string) error {
		return e.withStore(ctx, t, func(ctx context.Context, o opened) error {
			stats, err := o.client.Stats(ctx)
			if err != nil {
				return err
			}
			pauses, err := o.client.Pauses(ctx)
			if err != nil {
				return err
			}
			return e.printQueues(queueViews(stats, pauses), livePauses(pauses), stats.Now)
		})
	})
	return cmd
}

// livePauses are those that have not been resumed.
func livePauses(pauses []store.Pause) []pauseView {
	out := []pauseView{}
	for _, p := range pauses {
		if !p.PausedAt.IsZero() {
			out = append(out, pauseView{Kind: p.Kind, Name: p.Name, Since: p.PausedAt, By: p.By, Reason: p.Reason})
		}
	}
	return out
}

func queueViews(stats store.Stats, pauses []store.Pause) []queueView {
	views := []queueView{}
	for _, q := range stats.Queues {
		v := queueView{
			Name: q.Queue, Ready: q.Ready, Delayed: q.Delayed, Suspended: q.Suspended, Running: q.Running, Dead: q.Dead, OldestDue: q.OldestDue,
		}
		if q.ReadyAtLeast {
			v.AtLeast = append(v.AtLeast, "ready")
		}
		if q.TimedAtLeast {
			v.AtLeast = append(v.AtLeast, "delayed", "suspended")
		}
		views = append(views, v)
	}
	for _, p := range livePauses(pauses) {
		if p.Kind != store.PauseQueue {
			continue
		}
		i := slices.IndexFunc(views, func(v queueView) bool { return v.Name == p.Name })
		if i < 0 {
			i = len(views)
			views = append(views, queueView{Name: p.Name})
		}
		views[i].Paused = &p
	}
	slices.SortFunc(views, func(a, b queueView) int { return strings.Compare(a.Name, b.Name) })
	return views
}

func (e *env) printQueues(queues []queueView, pauses []pauseView, now time.Time) error {
	if e.json {
		return printJSON(e.Stdout, queuesView{Queues: queues, Pauses: pauses})
	}
	t := table{head: []string{"QUEUE", "READY", "DELAYED", "SUSPENDED", "RUNNING", "DEAD", "OLDEST", "PAUSED"}}
	for _, q := range queues {
		count := func(n int64, name string) string {
			if slices.Contains(q.AtLeast, name) {
				return strconv.FormatInt(n, 10) + "+"
			}
			return strconv.FormatInt(n, 10)
		}
		oldest, paused := "", ""
		if !q.OldestDue.IsZero() {
			oldest = ago(now, q.OldestDue)
		}
		if q.Paused != nil {
			paused = "by " + q.Paused.By
		}
		t.row(q.Name, count(q.Ready, "ready"), count(q.Delayed, "delayed"), count(q.Suspended, "suspended"),
			count(q.Running, "running"), count(q.Dead, "dead"), oldest, paused)
	}
	t.print(e.Stdout, e.out, nil)
	if len(pauses) == 0 {
		return nil
	}
	fmt.Fprintln(e.Stdout)
	p := table{head: []string{"PAUSED", "NAME", "SINCE", "BY", "REASON"}}
	for _, v := range pauses {
		p.row(string(v.Kind), v.Name, ago(now, v.Since), v.By, cut(v.Reason))
	}
	p.print(e.Stdout, e.out, nil)
	return nil
}

// paused is what a pause or a resume is of.
type paused struct {
	job, tenant string
	by, reason  string
}

func (p *paused) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&p.job, "job", "", "a job, in whichever queue its runs are")
	f.StringVar(&p.tenant, "tenant", "", "a tenant, in every queue")
	byFlag(cmd, &p.by, "", byOfAct)
}

// params reads which of a queue, a job and a tenant is named.
func (p *paused) params(cmd *cobra.Command, args []string) (store.PauseParams, error) {
	out := store.PauseParams{Reason: p.reason}
	named := 0
	if len(args) == 1 {
		out.Kind, out.Name = store.PauseQueue, args[0]
		named++
	}
	if cmd.Flags().Changed("job") {
		out.Kind, out.Name = store.PauseJob, p.job
		named++
	}
	if cmd.Flags().Changed("tenant") {
		out.Kind, out.Name = store.PauseTenant, p.tenant
		named++
	}
	if named != 1 {
		return out, usagef("name a queue, or a job with --job, or a tenant with --tenant", "one thing is paused or resumed at a time")
	}
	return out, nil
}

// set pauses or resumes, and says what came of it.
func (e *env) set(ctx context.Context, t *target, p *paused, params store.PauseParams) error {
	return e.withStore(engine.WithActor(ctx, actorOr(p.by)), t, func(ctx context.Context, o opened) error {
		changed, err := o.client.SetPause(ctx, params)
		if err != nil {
			return err
		}
		v, already := pausedView{Kind: string(params.Kind), Name: params.Name, Done: "paused", Changed: changed, Note: undeclared(o.manifest, params)}, "was paused already"
		if params.Resume {
			v.Done, already = "resumed", "was not paused"
		}
		return e.printPaused(v, already)
	})
}

// pausedView is what a pause, a resume or a delete of one thing did, as JSON.
type pausedView struct {
	Kind    string `json:"kind"` // queue, job, tenant or schedule
	Name    string `json:"name"`
	Done    string `json:"done"` // paused, resumed or deleted
	Changed bool   `json:"changed"`
	Note    string `json:"note,omitempty"`
}

// printPaused says what was done; already is what is said when it changed nothing.
func (e *env) printPaused(v pausedView, already string) error {
	if e.json {
		return printJSON(e.Stdout, v)
	}
	if v.Note != "" {
		e.note("note: %s", v.Note)
	}
	did := v.Done
	if !v.Changed {
		did = already
	}
	_, err := fmt.Fprintf(e.Stdout, "%s %s %s\n", v.Kind, cell(strconv.Quote(v.Name)), did)
	return err
}

// undeclared warns of a pause that probably pauses nothing, as of a name that
// is misspelt. It is not refused: jobs of another manifest may share
// the database, and a pause may come before the deploy.
func undeclared(m *manifest.Manifest, p store.PauseParams) string {
	if m == nil || p.Resume {
		return ""
	}
	_, declared := m.Queues[p.Name]
	if p.Kind == store.PauseJob {
		_, declared = m.Jobs[p.Name]
	}
	if !declared && p.Kind != store.PauseTenant {
		return fmt.Sprintf("%s declares no %s %q", m.Path, p.Kind, p.Name)
	}
	return ""
}

func newQueuesPause(e *env) *cobra.Command {
	p := &paused{}
	cmd := &cobra.Command{
		Use:   "pause [QUEUE]",
		Short: "Claim nothing of a queue, a job or a tenant until it is resumed",
		Long: `Pause a queue, a job or a tenant: no run of it begins until it is resumed. What is
running goes on, enqueues are accepted, and what waits is counted as before. A pause
stands in the database: it holds for every process, through deploys and restarts. Who
paused what, and why, is in the audit.`,
		Example: `  runner queues pause mail --reason 'the provider is down'
  runner queues pause --job send-invite
  runner queues pause --tenant acme`,
		Args: cobra.MaximumNArgs(1),
	}
	t := e.targetFlags(cmd)
	e.jsonFlag(cmd)
	p.flags(cmd)
	cmd.Flags().StringVar(&p.reason, "reason", "", "why, for whoever finds it paused")
	cmd.RunE = e.run(func(ctx context.Context, cmd *cobra.Command, args []string) error {
		params, err := p.params(cmd, args)
		if err != nil {
			return err
		}
		return e.set(ctx, t, p, params)
	})
	return cmd
}

func newQueuesResume(e *env) *cobra.Command {
	p := &paused{}
	cmd := &cobra.Command{
		Use:   "resume [QUEUE]",
		Short: "Take a pause back",
		Long: `Take the pause of a queue, a job or a tenant back: its runs are claimed again, in the
order in which they would have been.`,
		Example: `  runner queues resume mail
  runner queues resume --job send-invite
  runner queues resume --tenant acme`,
		Args: cobra.MaximumNArgs(1),
	}
	t := e.targetFlags(cmd)
	e.jsonFlag(cmd)
	p.flags(cmd)
	cmd.RunE = e.run(func(ctx context.Context, cmd *cobra.Command, args []string) error {
		params, err := p.params(cmd, args)
		if err != nil {
			return err
		}
		params.Resume = true
		return e.set(ctx, t, p, params)
	})
	return cmd
}
