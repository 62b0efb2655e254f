package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/cmd/runner/internal/app"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

func newMigrate(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Look at and upgrade the database's schema",
		Long: `The schema of a database is a number that each release of runner knows. serve
creates a new SQLite database by itself and never changes an existing one: after an
upgrade of the binary, stop it, make a backup and run migrate up.

In Postgres the tables are in a schema of their own, called runner unless the URL says
otherwise (postgres://…/app?schema=jobs). serve creates nothing there, so that its role
needs no right to: a role that may, runs migrate up once before the first start, and
grants serve's role what migrate grants prints.`,
		Example: `  runner migrate status
  runner migrate up
  runner migrate up --database-url postgres://owner@db.example.com/app`,
		GroupID: groupOperate,
	}
	return e.group(cmd, newMigrateStatus(e), newMigrateUp(e), newMigrateGrants(e), newMigrateOutbox(e))
}

// schemaView is a database's schema as JSON.
type schemaView struct {
	Database string `json:"database"`
	Version  int    `json:"version"`
	Latest   int    `json:"latest"`
	Applied  []int  `json:"applied,omitempty"`
}

func newMigrateStatus(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Say which schema the database has and which this build needs",
		Long: `Say which schema version the database has and which this build needs. The exit
code is 1 when they differ, so that a deployment can wait for the migration.`,
		Example: `  runner migrate status
  runner migrate status --database-url sqlite:/var/lib/runner/runner.db --json`,
		Args: cobra.NoArgs,
	}
	t := e.targetFlags(cmd)
	e.jsonFlag(cmd)
	cmd.RunE = e.run(func(ctx context.Context, _ *cobra.Command, _ []string) error {
		db, m, err := e.migrator(t)
		if err != nil {
			return err
		}
		if _, err := os.Stat(db.Path); !db.Shared() && errors.Is(err, fs.ErrNotExist) {
			return &abi.Error{Code: job.CodeDatabaseMissing, Message: "there is no database at " + db.Path, Fix: "check the path; runner migrate up or runner serve creates it", Err: err}
		}
		v := schemaView{Database: db.String(), Latest: m.Latest()}
		if v.Version, err = m.Version(ctx); err != nil {
			return err
		}
		if e.json {
			err = printJSON(e.Stdout, v)
		} else {
			_, err = fmt.Fprintf(e.Stdout, "%s: schema %d, this build needs %d\n", v.Database, v.Version, v.Latest)
		}
		switch {
		case err != nil:
			return err
		case v.Version < v.Latest:
			return &exit{code: exitProblem, err: &abi.Error{Code: job.CodeDatabaseSchema, Message: "the schema is older than this build needs", Fix: "run: runner migrate up"}}
		case v.Version > v.Latest:
			return &exit{code: exitProblem, err: &abi.Error{Code: job.CodeDatabaseSchema, Message: "the schema is newer than this build knows", Fix: "upgrade this runner to the version that migrated the database"}}
		}
		return nil
	})
	return cmd
}

func newMigrateUp(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Bring the database's schema to what this build needs",
		Long: `Apply the migrations that the database lacks: in SQLite all of them in one
transaction, in Postgres each in one of its own. A missing SQLite file is created, and
in Postgres a missing schema. Running it again does nothing, and two at a time wait
for each other.`,
		Example: `  runner migrate up
  runner migrate up --database-url sqlite:/var/lib/runner/runner.db
  runner migrate up --database-url postgres://owner@db.example.com/app`,
		Args: cobra.NoArgs,
	}
	t := e.targetFlags(cmd)
	e.jsonFlag(cmd)
	cmd.RunE = e.run(func(ctx context.Context, _ *cobra.Command, _ []string) error {
		db, m, err := e.migrator(t)
		if err != nil {
			return err
		}
		applied, err := m.Migrate(ctx)
		if err != nil {
			return err
		}
		if e.json {
			return printJSON(e.Stdout, schemaView{Database: db.String(), Version: m.Latest(), Latest: m.Latest(), Applied: applied})
		}
		if len(applied) == 0 {
			_, err = fmt.Fprintf(e.Stdout, "%s: schema %d, nothing to do\n", db, m.Latest())
			return err
		}
		_, err = fmt.Fprintf(e.Stdout, "%s: applied %s, schema %d now\n", db, count(len(applied), "migration"), m.Latest())
		return err
	})
	return cmd
}

func (e *env) migrator(t *target) (app.Database, store.Migrator, error) {
	db, _, err := e.database(t)
	if err != nil {
		return db, nil, err
	}
	migrator, err := app.NewMigrator(db)
	return db, migrator, err
}
