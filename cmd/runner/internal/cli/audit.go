package cli

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/jobrunner/runner/engine/store"
)

func newAudit(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "List who did what",
		Long: `What operators did: which runs they cancelled, retried, promoted and deleted, and what
they paused, resumed and forgot. Each entry is written by the commit that does it, and
kept for 90 days. Who enqueued a run or published an event stands in the run or event.`,
		Example: `  runner audit ls
  runner audit ls --run 0197b2f4-5c1e-7d3a-9d5e-0c4f1b2a3d4e`,
		GroupID: groupOperate,
	}
	return e.group(cmd, newAuditLs(e))
}

// auditView is an entry as JSON.
type auditView struct {
	ID      int64           `json:"id"`
	At      time.Time       `json:"at"`
	By      string          `json:"by"`
	Verb    store.AuditVerb `json:"verb"`
	Kind    store.AuditKind `json:"kind"`
	Subject string          `json:"subject"`
	Detail  string          `json:"detail,omitempty"`
}

// auditPage is a page of entries as JSON.
type auditPage struct {
	Entries []auditView `json:"entries"`
	Next    int64       `json:"next,omitempty"` // what --before of the next page is
}

// auditKinds are what something can be done to.
var auditKinds = []store.AuditKind{
	store.AuditRun, store.AuditKind(store.PauseQueue), store.AuditKind(store.PauseJob), store.AuditKind(store.PauseTenant), store.AuditSchedule,
}

func newAuditLs(e *env) *cobra.Command {
	subjects := map[store.AuditKind]*string{}
	cmd := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List entries, newest first",
		Long: `List what operators did, newest first. A page ends after --limit entries; --before with
the last id of a page gives the next. Filters narrow one another. Who staged rows of an
outbox again is in that outbox's database: see runner outbox audit.`,
		Example: `  runner audit ls
  runner audit ls --run 0197b2f4-5c1e-7d3a-9d5e-0c4f1b2a3d4e
  runner audit ls --by ann --verb delete --since 7d
  runner audit ls --queue mail --until 2026-03-01T00:00:00Z
  runner audit ls --limit 1000 --json`,
		Args: cobra.NoArgs,
	}
	t := e.targetFlags(cmd)
	e.jsonFlag(cmd)
	for _, kind := range auditKinds {
		usage := "only what was done to this " + string(kind)
		if kind == store.AuditRun {
			usage = "only what was done to the run with this id, which may be gone"
		}
		subjects[kind] = cmd.Flags().String(string(kind), "", usage)
	}
	cmd.MarkFlagsMutuallyExclusive("run", "queue", "job", "tenant", "schedule")
	f := e.auditFlags(cmd)
	e.complete(cmd, "run", e.completeRuns)
	e.complete(cmd, "job", e.completeJobs)
	cmd.RunE = e.run(func(ctx context.Context, cmd *cobra.Command, _ []string) error {
		for kind, subject := range subjects {
			if *subject != "" {
				f.p.Kind, f.p.Subject = kind, *subject
				if kind == store.AuditRun {
					f.p.Subject = strings.ToLower(*subject)
				}
			}
		}
		return e.withStore(ctx, t, func(ctx context.Context, o opened) error {
			return e.listAudit(ctx, cmd, o.store, f, o.store.Now)
		})
	})
	return cmd
}

// auditFilter is which entries a listing of an audit is about, as its flags say.
type auditFilter struct {
	p                  store.AuditParams
	verb, since, until string
}

func (e *env) auditFlags(cmd *cobra.Command) *auditFilter {
	af := &auditFilter{}
	f := cmd.Flags()
	f.StringVar(&af.p.By, "by", "", "only what this operator did")
	f.StringVar(&af.verb, "verb", "", "only this: "+auditVerbs())
	f.StringVar(&af.since, "since", "", "only what was done since: a time (2026-01-31T08:00:00Z), or how long ago (24h, 7d)")
	f.StringVar(&af.until, "until", "", "only what was done before: the same")
	f.Int64Var(&af.p.Before, "before", 0, "only entries older than the one with this id")
	f.IntVar(&af.p.Limit, "limit", 100, "entries to list, at most 1000")
	e.complete(cmd, "verb", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return strings.Split(auditVerbs(), ", "), cobra.ShellCompDirectiveNoFileComp
	})
	return af
}

func auditVerbs() string {
	var names []string
	for _, v := range store.AuditVerbs {
		names = append(names, string(v))
	}
	return strings.Join(names, ", ")
}

// listAudit prints a page of entries. now is what how long ago is counted from.
func (e *env) listAudit(ctx context.Context, cmd *cobra.Command, from store.Auditor, f *auditFilter, now func(context.Context) (time.Time, error)) error {
	p := f.p
	if p.Verb = store.AuditVerb(f.verb); p.Verb != "" && !slices.Contains(store.AuditVerbs, p.Verb) {
		return usagef("one of "+auditVerbs(), "--verb %q is nothing that an operator does", f.verb)
	}
	if f.since != "" || f.until != "" {
		at, err := now(ctx)
		if err != nil {
			return err
		}
		if p.Since, err = instantOf("--since", f.since, at); err != nil {
			return err
		}
		if p.Until, err = instantOf("--until", f.until, at); err != nil {
			return err
		}
	}
	entries, err := from.Audit(ctx, p)
	if err != nil {
		return err
	}
	var next int64
	if len(entries) == p.Limit && len(entries) > 0 {
		next = entries[len(entries)-1].ID
	}
	if e.json {
		views := make([]auditView, 0, len(entries))
		for _, a := range entries {
			views = append(views, auditView(a))
		}
		return printJSON(e.Stdout, auditPage{Entries: views, Next: next})
	}
	t := table{head: []string{"ID", "AT", "BY", "VERB", "KIND", "SUBJECT", "DETAIL"}}
	for _, a := range entries {
		t.row(strconv.FormatInt(a.ID, 10), instant(a.At), a.By, string(a.Verb), string(a.Kind), a.Subject, cut(a.Detail))
	}
	t.print(e.Stdout, e.out, nil)
	if next > 0 {
		e.noteMore(cmd, strconv.FormatInt(next, 10))
	}
	return nil
}

func newOutboxAudit(e *env) *cobra.Command {
	var row string
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "List who staged rows again",
		Long: `List who staged which rejected rows again, newest first. The entries are in the outbox's
own database: each is written by the commit that does it, and the queue's audit may be in
another. They are kept for 90 days, and then until rows are staged again.`,
		Example: `  runner outbox audit
  runner outbox audit --row 0197b2f4-5c1e-7d3a-9d5e-0c4f1b2a3d4e
  runner outbox audit --by ann --since 7d --json`,
		Args: cobra.NoArgs,
	}
	t := e.outboxFlags(cmd)
	e.jsonFlag(cmd)
	cmd.Flags().StringVar(&row, "row", "", "only what was done to the row with this id, which may be gone")
	f := e.auditFlags(cmd)
	cmd.RunE = e.run(func(ctx context.Context, cmd *cobra.Command, _ []string) error {
		if row != "" {
			f.p.Kind, f.p.Subject = store.AuditRow, strings.ToLower(row)
		}
		return e.withOutbox(ctx, t, func(ctx context.Context, o store.Outbox) error {
			return e.listAudit(ctx, cmd, o, f, func(context.Context) (time.Time, error) { return time.Now(), nil })
		})
	})
	return cmd
}
