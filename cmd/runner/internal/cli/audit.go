package cli

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/jobrunner/runner/engine/store"
)

func newAudit(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "List who did what",
		Long: `What operators did to runs: cancels, retries, promotions and deletions, each kept for
90 days by the write that did it.`,
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

func newAuditLs(e *env) *cobra.Command {
	var (
		p   store.AuditParams
		run string
	)
	cmd := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List entries, newest first",
		Long: `List what operators did, newest first. A page ends after --limit entries; --before with
the last id of a page gives the next.`,
		Example: `  runner audit ls
  runner audit ls --run 0197b2f4-5c1e-7d3a-9d5e-0c4f1b2a3d4e
  runner audit ls --limit 1000 --json`,
		Args: cobra.NoArgs,
	}
	t := e.targetFlags(cmd)
	e.jsonFlag(cmd)
	f := cmd.Flags()
	f.StringVar(&run, "run", "", "only what was done to the run with this id, which may be gone")
	f.Int64Var(&p.Before, "before", 0, "only entries older than the one with this id")
	f.IntVar(&p.Limit, "limit", 100, "entries to list, at most 1000")
	e.complete(cmd, "run", e.completeRuns)
	cmd.RunE = e.run(func(ctx context.Context, _ *cobra.Command, _ []string) error {
		if run != "" {
			p.Kind, p.Subject = store.AuditRun, run
		}
		return e.withStore(ctx, t, func(ctx context.Context, o opened) error {
			entries, err := o.store.Audit(ctx, p)
			if err != nil {
				return err
			}
			if e.json {
				views := make([]auditView, 0, len(entries))
				for _, a := range entries {
					views = append(views, auditView(a))
				}
				return printJSON(e.Stdout, map[string]any{"entries": views})
			}
			t := table{head: []string{"ID", "AT", "BY", "VERB", "KIND", "SUBJECT", "DETAIL"}}
			for _, a := range entries {
				t.row(strconv.FormatInt(a.ID, 10), instant(a.At), a.By, string(a.Verb), string(a.Kind), a.Subject, cut(a.Detail))
			}
			t.print(e.Stdout, e.out, nil)
			if len(entries) == p.Limit && len(entries) > 0 {
				_, _ = fmt.Fprintf(e.Stderr, "more: runner audit ls --before %d\n", entries[len(entries)-1].ID)
			}
			return nil
		})
	})
	return cmd
}
