package app

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store/postgres"
)

func TestPostgresURLIsTakenApart(t *testing.T) {
	for _, c := range []struct {
		url, driver string
		want        postgres.Config
	}{
		{"postgres://u:pw@h:5433/app?sslmode=require", "postgres://u:pw@h:5433/app?sslmode=require", postgres.Config{}},
		{"POSTGRESQL://h/app?schema=jobs&pool_max_conns=25&pooling=transaction", "postgresql://h/app", postgres.Config{Schema: "jobs", MaxConns: 25, Pooling: postgres.PoolingTransaction}},
		{"postgres://a:5432,b:5433/app?target_session_attrs=read-write&schema=x", "postgres://a:5432,b:5433/app?target_session_attrs=read-write", postgres.Config{Schema: "x"}},
		{"postgres:///app?host=%2Frun%2Fpg&port=6432", "postgres:///app?host=%2Frun%2Fpg&port=6432", postgres.Config{}},
	} {
		d, err := FindDatabase(DatabaseParams{Env: c.url})
		if err != nil {
			t.Errorf("%s: %v", c.url, err)
			continue
		}
		c.want.URL = c.driver
		if got := d.postgres.config(nil); got != c.want || !d.Shared() {
			t.Errorf("%s: %+v, want %+v", c.url, got, c.want)
		}
	}
}

func TestDatabaseShowsNoSecretHoweverItIsPrinted(t *testing.T) {
	d, err := FindDatabase(DatabaseParams{Flag: "postgres://someone:hunter2@db.example.com:5433/app?sslmode=require&schema=jobs&sslpassword=hunter2"})
	if err != nil {
		t.Fatal(err)
	}
	var logs bytes.Buffer
	slog.New(slog.NewJSONHandler(&logs, nil)).Info("opened", "database", d)
	slog.New(slog.NewTextHandler(&logs, nil)).Info("opened", "database", d)
	printed := fmt.Sprintf("%v %+v %#v %s %s", d, d, d, d.String(), logs.String())
	if strings.Contains(printed, "hunter2") || strings.Contains(printed, "someone") {
		t.Errorf("shown: %s", printed)
	}
	if want := "postgres://db.example.com:5433/app?schema=jobs"; d.String() != want {
		t.Errorf("%s, want %s", d, want)
	}
	d, err = FindDatabase(DatabaseParams{Flag: "postgres:///app?host=%2Frun%2Fpg&password=hunter2"})
	if want := "postgres:///app?host=/run/pg"; err != nil || d.String() != want {
		t.Errorf("%s, %v, want %s", d, err, want)
	}
}

func TestSchemaThatIsWrongNamesTheCommandThatMendsIt(t *testing.T) {
	old := &abi.Error{Code: job.CodeDatabaseSchema, Message: "old", Fix: "run `runner migrate up`"}
	for source, want := range map[string]string{
		sourceFlag:       "run: runner migrate up --database-url URL, with this URL",
		EnvDatabase:      `run: runner migrate up --database-url "$RUNNER_DATABASE_URL"`,
		"/srv/jobs.toml": "run: runner migrate up -f /srv/jobs.toml",
		sourceDefault:    "run: runner migrate up",
	} {
		var got *abi.Error
		if err := (Database{Source: source}).explain(t.Context(), old); !asError(err, &got) || got.Fix != want || got.Code != old.Code {
			t.Errorf("%s: %v, want %s", source, err, want)
		}
	}
	newer := &abi.Error{Code: job.CodeDatabaseSchema, Message: "newer", Fix: "upgrade"}
	if err := (Database{Source: sourceFlag}).explain(t.Context(), newer); err != error(newer) {
		t.Errorf("%v", err)
	}
}

func TestServerThatDoesNotAnswerInTimeIsUnavailableAndACallerWhoGaveUpIsNot(t *testing.T) {
	late := fmt.Errorf("receive message: %w", context.DeadlineExceeded)
	if err := (Database{}).explain(t.Context(), late); abi.CodeOf(err) != job.CodeDatabaseUnavailable || !errors.Is(err, late) {
		t.Errorf("%v", err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err := (Database{}).explain(gone, late); err != late {
		t.Errorf("%v", err)
	}
}

func asError(err error, target **abi.Error) bool {
	e, ok := err.(*abi.Error)
	*target = e
	return ok
}
