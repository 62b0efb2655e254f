package cli

import (
	"context"
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
	var p store.AuditParams
	subjects := map[store.AuditKind]*string{}
	cmd := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List entries, newest first",
		Long: `List what operators did, newest first. A page ends after --limit entries; --before with
the last id of a page gives the next.`,
		Example: `  runner audit ls
  runner audit ls --run 0197b2f4-5c1e-7d3a-9d5e-0c4f1b2a3d4e
  runner audit ls --queue mail
  runner audit ls --limit 1000 --json`,
		Args: cobra.NoArgs,
	}
	t := e.targetFlags(cmd)
	e.jsonFlag(cmd)
	f := cmd.Flags()
	for _, kind := range auditKinds {
		usage := "only what was done to this " + string(kind)
		if kind == store.AuditRun {
			usage = "only what was done to the run with this id, which may be gone"
		}
		subjects[kind] = f.String(string(kind), "", usage)
	}
	cmd.MarkFlagsMutuallyExclusive("run", "queue", "job", "tenant", "schedule")
	f.Int64Var(&p.Before, "before", 0, "only entries older than the one with this id")
	f.IntVar(&p.Limit, "limit", 100, "entries to list, at most 1000")
	e.complete(cmd, "run", e.completeRuns)
	e.complete(cmd, "job", e.completeJobs)
	cmd.RunE = e.run(func(ctx context.Context, cmd *cobra.Command, _ []string) error {
		for kind, subject := range subjects {
			if *subject != "" {
				p.Kind, p.Subject = kind, *subject
				if kind == store.AuditRun {
					p.Subject = strings.ToLower(*subject)
				}
			}
		}
		return e.withStore(ctx, t, func(ctx context.Context, o opened) error {
			entries, err := o.store.Audit(ctx, p)
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
		})
	})
	return cmd
}
