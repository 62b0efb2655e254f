package engine_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"testing"

	"github.com/jobrunner/runner/engine"
	"github.com/jobrunner/runner/engine/internal/enginetest"
	"github.com/jobrunner/runner/engine/internal/leaktest"
	"github.com/jobrunner/runner/engine/store"
	"github.com/jobrunner/runner/engine/store/postgres"
	"github.com/jobrunner/runner/engine/store/postgres/pgtest"
)

func TestMain(m *testing.M) {
	code := leaktest.Main(m)
	if server != nil {
		if err := server.Stop(); err != nil {
			_, _ = fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// server is started by the first example.
var server *pgtest.Server

// databaseURL is that of the example that runs.
var databaseURL string

// newDatabase is the URL of an empty Postgres database whose schema has been made,
// as `runner migrate up` does.
func newDatabase() string {
	ctx := context.Background()
	var err error
	if server == nil {
		if server, err = pgtest.Start(ctx, pgtest.Options{}); err != nil {
			log.Fatal(err)
		}
	}
	url, _, err := server.CreateDatabase(ctx)
	if err != nil {
		log.Fatal(err)
	}
	m, err := postgres.OpenMigrator(postgres.Config{URL: url})
	if err == nil {
		_, err = m.Migrate(ctx)
	}
	if err != nil {
		log.Fatal(err)
	}
	return url
}

// closing is an engine with the store that it uses.
type closing struct {
	*engine.Engine
	db store.Store
}

// Close closes both.
func (c closing) Close() error { return errors.Join(c.Engine.Close(), c.db.Close()) }

// worker serves the job of the examples, as another process would with a module.
func worker(ctx context.Context, h enginetest.Handler) closing {
	db, err := postgres.Open(ctx, postgres.Config{URL: databaseURL})
	if err != nil {
		log.Fatal(err)
	}
	e, err := engine.New(engine.Config{Store: db, Deployment: enginetest.Serve(&enginetest.Guest{
		Name: "mail", Handlers: map[string]enginetest.Handler{"welcome": h},
	}, nil)})
	if err == nil {
		err = e.Start(ctx)
	}
	if err != nil {
		log.Fatal(err)
	}
	return closing{e, db}
}
