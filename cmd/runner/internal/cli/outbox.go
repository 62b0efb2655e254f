package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/jobrunner/runner/cmd/runner/internal/app"
	"github.com/jobrunner/runner/engine/store"
)

func newOutbox(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "outbox",
		Short: "Look at what an application has staged, and stage again what was refused",
		Long: `An application stages runs and events in its own Postgres database, in its own
transactions, with select runner.enqueue(…) and runner.publish(…); a process that serves
with --outbox-url publishes them. A row is staged until then, published when a run stands
for it or the event is out, or rejected when neither can be made of it: an unknown job,
an input against the schema, another tenant's. A rejected row holds nobody up and waits
for a person.

runner migrate outbox prepares a database for it.`,
		Example: `  runner outbox ls --state rejected --database-url postgres://relay@db.example.com/shop
  runner outbox retry --all --code X_JOB_UNKNOWN`,
		GroupID: groupOperate,
	}
	return e.group(cmd, newOutboxLs(e), newOutboxRetry(e), newOutboxAudit(e))
}

// outboxFlags are targetFlags for a command about an outbox.
func (e *env) outboxFlags(cmd *cobra.Command) *target {
	t := e.targetFlags(cmd)
	cmd.Flag("database-url").Usage = "the application's database, postgres://USER@HOST/NAME (default: $" + app.EnvOutbox + ", then the queue's)"
	return t
}

func (e *env) outboxDatabase(t *target) (app.Database, error) {
	p := app.DatabaseParams{Flag: t.database, Env: e.Getenv(app.EnvDatabase)}
	env := e.Getenv(app.EnvOutbox)
	if p.Flag == "" && env == "" {
		m, err := e.manifest(t)
		if err != nil {
			return app.Database{}, err
		}
		p.Manifest = m
	}
	return app.FindOutbox(p, env)
}

// withOutbox opens the outbox of t for the time of fn.
func (e *env) withOutbox(ctx context.Context, t *target, fn func(context.Context, store.Outbox) error) error {
	d, err := e.outboxDatabase(t)
	if err != nil {
		return err
	}
	o, err := app.OpenOutbox(ctx, d, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	return errors.Join(fn(ctx, o), o.Close())
}

// stagedView is a row of an outbox as JSON. Names and meanings are stable; a
// value that does not exist is absent. The input is the application's own.
type stagedView struct {
	ID          string            `json:"id"`
	Job         string            `json:"job,omitempty"`
	Topic       string            `json:"topic,omitempty"`
	KeepMS      int64             `json:"keep_ms,omitempty"`
	State       store.StagedState `json:"state"`
	Key         string            `json:"key,omitempty"`
	Tenant      string            `json:"tenant,omitempty"`
	RunAt       time.Time         `json:"run_at,omitzero"`
	DelayMS     int64             `json:"delay_ms,omitempty"`
	Priority    *int              `json:"priority,omitempty"`
	MaxAttempts int               `json:"max_attempts,omitempty"`
	OnConflict  store.OnConflict  `json:"on_conflict"`
	EnqueuedBy  string            `json:"enqueued_by,omitempty"`
	Traceparent string            `json:"traceparent,omitempty"`
	StagedAt    time.Time         `json:"staged_at"`
	Relay       string            `json:"relay,omitempty"`
	Claims      int64             `json:"claims"`
	SettledAt   time.Time         `json:"settled_at,omitzero"`
	RunID       string            `json:"run_id,omitempty"`
	Code        string            `json:"code,omitempty"`
	Reason      string            `json:"reason,omitempty"`
	Retry       string            `json:"retry,omitempty"` // of a rejected row: the command that stages it again
}

// stagedPage is a page of rows as JSON.
type stagedPage struct {
	Rows []stagedView `json:"rows"`
	Next string       `json:"next,omitempty"` // what --before of the next page is
}

func viewStaged(s store.Staged) stagedView {
	v := stagedView{
		ID: s.ID, Job: s.Job, State: s.State, Key: s.Key, Tenant: s.Tenant, RunAt: s.RunAt, DelayMS: s.Delay.Milliseconds(),
		Priority: s.Priority, MaxAttempts: s.MaxAttempts, OnConflict: s.OnConflict, EnqueuedBy: s.EnqueuedBy, Traceparent: s.Traceparent,
		StagedAt: s.StagedAt, Relay: s.Relay, Claims: s.Claim, SettledAt: s.SettledAt, RunID: s.RunID, Code: s.Code, Reason: s.Reason,
	}
	if e := s.Event; e != nil {
		v.Topic, v.KeepMS, v.Key, v.Tenant, v.EnqueuedBy = e.Topic, e.Keep.Milliseconds(), e.Key, e.Tenant, e.By
	}
	return v
}

func newOutboxLs(e *env) *cobra.Command {
	var p store.ListStagedParams
	var state string
	cmd := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List staged rows, those staged last first",
		Long: `List rows of the outbox, those staged last first, each with the run that stands for
it or the reason why there is none. Filters combine; without any, all rows are listed.

A page ends after --limit rows; --before with the last id of a page gives the next.`,
		Example: `  runner outbox ls
  runner outbox ls --state rejected --json
  runner outbox ls --database-url postgres://relay@db.example.com/shop --job send-mail`,
		Args: cobra.NoArgs,
	}
	t := e.outboxFlags(cmd)
	e.jsonFlag(cmd)
	f := cmd.Flags()
	f.StringVar(&state, "state", "", "only rows in this state: "+stagedStates())
	f.StringVar(&p.Job, "job", "", "only rows for this job")
	f.StringVar(&p.Code, "code", "", "only rows rejected with this code")
	f.StringVar(&p.Before, "before", "", "only rows staged before the row with this id")
	f.IntVar(&p.Limit, "limit", 100, "rows to list, at most 1000")
	e.complete(cmd, "job", e.completeJobs)
	e.complete(cmd, "state", cobra.FixedCompletions(strings.Split(stagedStates(), ", "), cobra.ShellCompDirectiveNoFileComp))
	cmd.RunE = e.run(func(ctx context.Context, cmd *cobra.Command, _ []string) error {
		if p.State = store.StagedState(state); state != "" && !p.State.Valid() {
			return usagef("one of "+stagedStates(), "--state %q is no state of a row", state)
		}
		return e.withOutbox(ctx, t, func(ctx context.Context, o store.Outbox) error {
			rows, err := o.ListStaged(ctx, p)
			if err != nil {
				return err
			}
			next := ""
			if len(rows) == p.Limit && len(rows) > 0 {
				next = rows[len(rows)-1].ID
			}
			if e.json {
				views := make([]stagedView, 0, len(rows))
				for _, r := range rows {
					v := viewStaged(r)
					if r.State == store.Rejected {
						v.Retry = elsewhere(cmd, "runner outbox retry "+r.ID)
					}
					views = append(views, v)
				}
				return printJSON(e.Stdout, stagedPage{Rows: views, Next: next})
			}
			e.printStaged(rows)
			e.noteMore(cmd, next)
			if p.State == store.Rejected && len(rows) > 0 {
				e.note("stage one again: %s", elsewhere(cmd, "runner outbox retry "+rows[0].ID))
			}
			return nil
		})
	})
	return cmd
}

func (e *env) printStaged(rows []store.Staged) {
	t := table{head: []string{"ID", "JOB", "STATE", "AGE", "TENANT", "NOTE"}}
	for _, r := range rows {
		what, tenant := r.Job, r.Tenant
		if r.Event != nil {
			what, tenant = "event "+r.Event.Topic, r.Event.Tenant
		}
		t.row(r.ID, what, string(r.State), short(r.Age), tenant, cut(noteOfStaged(r)))
	}
	t.print(e.Stdout, e.out, func(col int, text string) string {
		if col != 2 {
			return text
		}
		switch strings.TrimSpace(text) {
		case string(store.Published):
			return e.out.green(text)
		case string(store.Rejected):
			return e.out.red(text)
		}
		return text
	})
}

// noteOfStaged is the one thing worth knowing of a row in a list.
func noteOfStaged(r store.Staged) string {
	switch {
	case r.State == store.Rejected:
		return r.Code + ": " + r.Reason
	case r.Event != nil:
		return r.Event.Key
	case r.State == store.Published && r.RunID != r.ID:
		return "run " + r.RunID
	}
	return r.Key
}

func stagedStates() string {
	return strings.Join([]string{string(store.Waiting), string(store.Published), string(store.Rejected)}, ", ")
}

func newOutboxRetry(e *env) *cobra.Command {
	var p store.RetryStagedParams
	var all bool
	cmd := &cobra.Command{
		Use:   "retry [ID…]",
		Short: "Stage rejected rows again",
		Long: `Stage rejected rows again, once the reason is gone: the job is declared, its schema
takes the input. They keep their id and their place in the order, and are published as if
they had never been refused. Name rows by their ids, or all of them with --all, which
--job and --code narrow.

Of ids, all are staged again or none.`,
		Example: `  runner outbox retry 0197b2f4-5c1e-7d3a-9d5e-0c4f1b2a3d4e
  runner outbox retry --all --code X_JOB_UNKNOWN
  runner outbox retry --all --job send-mail --json`,
	}
	t := e.outboxFlags(cmd)
	e.jsonFlag(cmd)
	f := cmd.Flags()
	f.BoolVar(&all, "all", false, "all rejected rows, as far as --job and --code go")
	f.StringVar(&p.Job, "job", "", "with --all: only rows for this job")
	f.StringVar(&p.Code, "code", "", "with --all: only rows rejected with this code")
	byFlag(cmd, &p.By, "", byOfAct)
	e.complete(cmd, "job", e.completeJobs)
	cmd.RunE = e.run(func(ctx context.Context, _ *cobra.Command, args []string) error {
		p.By = actorOr(p.By)
		switch {
		case all == (len(args) > 0):
			return usagef("name rows, or write --all", "which rows are meant is not said, or said twice")
		case !all && p.Job+p.Code != "":
			return usagef("add --all, or leave them out", "--job and --code narrow --all")
		}
		p.IDs, p.All = args, all
		return e.withOutbox(ctx, t, func(ctx context.Context, o store.Outbox) error {
			ids, err := retryStaged(ctx, o, p)
			if err != nil {
				return err
			}
			if e.json {
				return printJSON(e.Stdout, map[string]any{"ids": ids})
			}
			_, err = fmt.Fprintf(e.Stdout, "staged %s again\n", count(len(ids), "row"))
			return err
		})
	})
	return cmd
}

// retryStaged goes on until all rows that p means are staged again. Those that
// are rejected anew meanwhile are left alone: it stops at the rows there were.
func retryStaged(ctx context.Context, o store.Outbox, p store.RetryStagedParams) ([]string, error) {
	ids := []string{}
	seen := map[string]bool{}
	for {
		some, err := o.RetryStaged(ctx, p)
		if err != nil {
			return nil, err
		}
		fresh := 0
		for _, id := range some {
			if !seen[id] {
				seen[id] = true
				ids, fresh = append(ids, id), fresh+1
			}
		}
		if len(p.IDs) > 0 || fresh == 0 || len(some) < 1000 {
			return ids, nil
		}
	}
}

// outboxView is what migrate outbox did, as JSON.
type outboxView struct {
	schemaView
	Enqueuers []string `json:"enqueuers,omitempty"`
	Relays    []string `json:"relays,omitempty"`
}

func newMigrateOutbox(e *env) *cobra.Command {
	var enqueuers, relays []string
	cmd := &cobra.Command{
		Use:   "outbox",
		Short: "Prepare an application's Postgres database for staging runs",
		Long: `Install or upgrade the outbox of an application's Postgres database: a table and the
functions runner.enqueue and runner.publish, in a schema of their own (runner, unless
the URL says ?schema=NAME). The queue need not be in that database, and may be.

Nobody but the owner may use it until a role is named: --enqueuer for one that stages
runs and events, with the right to call these functions and no other, and --relay for
the one that runner serve --outbox-url connects as. Running it again upgrades and grants
what is missing; it takes nothing away.`,
		Example: `  runner migrate outbox --database-url postgres://owner@db.example.com/shop
  runner migrate outbox --database-url postgres://owner@db.example.com/shop \
    --enqueuer shop --relay runner_relay`,
		Args: cobra.NoArgs,
	}
	t := e.outboxFlags(cmd)
	e.jsonFlag(cmd)
	cmd.Flags().StringArrayVar(&enqueuers, "enqueuer", nil, "a role that may stage runs; may be repeated")
	cmd.Flags().StringArrayVar(&relays, "relay", nil, "a role that may publish them; may be repeated")
	cmd.RunE = e.run(func(ctx context.Context, _ *cobra.Command, _ []string) error {
		d, err := e.outboxDatabase(t)
		if err != nil {
			return err
		}
		res, err := app.MigrateOutbox(ctx, app.MigrateOutboxParams{Database: d, Enqueuers: enqueuers, Relays: relays})
		if err != nil {
			return err
		}
		if e.json {
			return printJSON(e.Stdout, outboxView{
				schemaView: schemaView{Database: d.String(), Version: res.Latest, Latest: res.Latest, Applied: res.Applied},
				Enqueuers:  enqueuers, Relays: relays,
			})
		}
		did := "nothing to migrate"
		if len(res.Applied) > 0 {
			did = "applied " + count(len(res.Applied), "migration")
		}
		_, err = fmt.Fprintf(e.Stdout, "%s: outbox %d, %s\n", d, res.Latest, did)
		for _, role := range enqueuers {
			_, _ = fmt.Fprintf(e.Stdout, "  %s may stage runs\n", cell(role))
		}
		for _, role := range relays {
			_, _ = fmt.Fprintf(e.Stdout, "  %s may publish them\n", cell(role))
		}
		return err
	})
	return cmd
}
