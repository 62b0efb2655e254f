package app

import (
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/store/postgres"
)

// postgresAddress is a postgres:// URL taken apart: what libpq knows goes to the
// driver, and what is the runner's own to the store's Config.
type postgresAddress struct {
	url      string // with its password
	schema   string
	pooling  postgres.Pooling
	maxConns int
}

// The parameters of a postgres:// URL that are the runner's own. They are part
// of the URL because every process of a fleet must agree on them.
const (
	paramSchema   = "schema"
	paramPooling  = "pooling"
	paramMaxConns = "pool_max_conns"
)

// parsePostgres takes a URL apart. Errors: X_DATABASE_URL_INVALID.
func parsePostgres(raw, source string) (postgresAddress, error) {
	bad := func(what, fix string) error {
		return &abi.Error{Code: CodeDatabaseURL, Message: fmt.Sprintf("the database of %s %s", source, what), Fix: fix}
	}
	const form = "write postgres://USER:PASSWORD@HOST:5432/NAME, with special characters of the password escaped as %XX"
	u, err := url.Parse(raw)
	if err != nil || u.Opaque != "" {
		return postgresAddress{}, bad("is no URL that can be read", form)
	}
	// Not Query(), which leaves out what it cannot read.
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return postgresAddress{}, bad("has parameters that cannot be read", form)
	}
	var a postgresAddress
	for _, p := range []struct {
		name string
		set  func(string) error
	}{
		{paramSchema, func(v string) error { a.schema = v; return nil }},
		{paramPooling, func(v string) error {
			a.pooling = postgres.Pooling(v)
			if !slices.Contains([]postgres.Pooling{postgres.PoolingNone, postgres.PoolingTransaction}, a.pooling) {
				return fmt.Errorf("%q is none of: %s, %s", v, postgres.PoolingNone, postgres.PoolingTransaction)
			}
			return nil
		}},
		{paramMaxConns, func(v string) (err error) {
			if a.maxConns, err = strconv.Atoi(v); err != nil || a.maxConns < 2 || a.maxConns > 1000 {
				return fmt.Errorf("%q is no number from 2 to 1000", v)
			}
			return nil
		}},
	} {
		values, ok := query[p.name]
		if !ok {
			continue
		}
		err := errors.New("it stands twice")
		if len(values) == 1 {
			err = p.set(values[0])
		}
		if err != nil {
			return postgresAddress{}, bad(fmt.Sprintf("has a wrong %s: %v", p.name, err), "correct it, or leave it out")
		}
		query.Del(p.name)
	}
	u.Scheme = strings.ToLower(u.Scheme)
	if u.RawQuery != "" {
		u.RawQuery = query.Encode()
	}
	a.url = u.String()
	if _, err := postgres.OpenMigrator(a.config(nil)); err != nil { // it does not connect
		var coded *abi.Error
		if errors.As(err, &coded) {
			return postgresAddress{}, bad("cannot be used: "+coded.Message, coded.Fix)
		}
		return postgresAddress{}, bad("cannot be used", form)
	}
	return a, nil
}

// config is the store's, as every process of a fleet must have it.
func (a postgresAddress) config(logger *slog.Logger) postgres.Config {
	return postgres.Config{URL: a.url, Schema: a.schema, Pooling: a.pooling, MaxConns: a.maxConns, Logger: logger}
}

// shown says where the database is, without user, password and what else a URL
// may carry.
func (a postgresAddress) shown() string {
	u, err := url.Parse(a.url)
	if err != nil {
		return "postgres:…"
	}
	shown := url.URL{Scheme: "postgres", Host: u.Host, Path: u.Path}
	query := url.Values{}
	for _, name := range []string{"host", "port", "dbname"} { // as libpq has them too
		if v := u.Query().Get(name); v != "" {
			query.Set(name, v)
		}
	}
	if a.schema != "" {
		query.Set(paramSchema, a.schema)
	}
	shown.RawQuery = query.Encode()
	if shown.Host == "" && shown.Path == "" && shown.RawQuery == "" {
		return "postgres:///"
	}
	return strings.ReplaceAll(shown.String(), "%2F", "/") // of a socket's folder
}

// CodeNotPostgres says that something is for Postgres only.
const CodeNotPostgres = "X_DATABASE_NOT_POSTGRES"

// Grants is the SQL that gives the roles of workers and of enqueuers what they need
// in d's schema. Errors: X_DATABASE_NOT_POSTGRES.
func Grants(d Database, workers, enqueuers []string) (string, error) {
	if !d.Shared() {
		return "", &abi.Error{
			Code:    CodeNotPostgres,
			Message: fmt.Sprintf("%s is a SQLite file, which has no roles", d),
			Fix:     "name a Postgres database with --database-url; for a file, set its permissions",
		}
	}
	var all strings.Builder
	for _, to := range []struct {
		role  postgres.Role
		names []string
	}{{postgres.RoleWorker, workers}, {postgres.RoleEnqueuer, enqueuers}} {
		for _, name := range to.names {
			sql, err := postgres.Grants(d.postgres.config(nil), to.role, name)
			if err != nil {
				return "", err
			}
			all.WriteString(strings.TrimSpace(sql) + "\n")
		}
	}
	return all.String(), nil
}
