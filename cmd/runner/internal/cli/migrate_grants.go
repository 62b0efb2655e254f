package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/jobrunner/runner/cmd/runner/internal/app"
)

func newMigrateGrants(e *env) *cobra.Command {
	var workers, enqueuers []string
	cmd := &cobra.Command{
		Use:   "grants",
		Short: "Print the SQL that gives roles what they need, and no more",
		Long: `Print the GRANT statements of a Postgres database for roles that exist: --worker for what
serve and the commands of an operator connect as, --enqueuer for a program that only
enqueues, which can read no input, output or step. Only the schema's owner (who ran
migrate up) can grant; nothing is done by this command itself, and none of it needs the
database. Print and run it again after a migration.`,
		Example: `  runner migrate grants --worker runner --database-url postgres://owner@db.example.com/app
  export RUNNER_DATABASE_URL=postgres://owner@db.example.com/app
  runner migrate grants --worker runner | psql "$RUNNER_DATABASE_URL"`,
		Args: cobra.NoArgs,
	}
	t := e.targetFlags(cmd)
	cmd.Flags().StringArrayVar(&workers, "worker", nil, "a role that works and operates; may be repeated")
	cmd.Flags().StringArrayVar(&enqueuers, "enqueuer", nil, "a role that only enqueues; may be repeated")
	cmd.RunE = e.run(func(_ context.Context, _ *cobra.Command, _ []string) error {
		if len(workers)+len(enqueuers) == 0 {
			return usagef("name one with --worker or --enqueuer", "there is no role to grant anything to")
		}
		db, _, err := e.database(t)
		if err != nil {
			return err
		}
		sql, err := app.Grants(db, workers, enqueuers)
		if err != nil {
			return err
		}
		_, err = fmt.Fprint(e.Stdout, sql)
		return err
	})
	return cmd
}
