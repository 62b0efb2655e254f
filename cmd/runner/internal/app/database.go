package app

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/manifest"
)

// EnvDatabase names the environment variable that wins over the manifest.
const EnvDatabase = "RUNNER_DATABASE_URL"

// Who names a database, besides the environment and a manifest.
const (
	sourceFlag    = "--database-url"
	sourceDefault = "the default"
)

// CodeDatabaseURL is of a database address that cannot be used.
const CodeDatabaseURL = "X_DATABASE_URL_INVALID"

// Database is where a store's data lies: in a SQLite file or in a Postgres
// database.
type Database struct {
	Path   string // of the SQLite file, absolute; "" when it is Postgres
	Source string // who said so, for messages: "--database-url", …

	postgres postgresAddress // when Path is ""; holds a password
}

// Shared reports whether many workers may serve the database at a time.
func (d Database) Shared() bool { return d.Path == "" }

// String is the address as a URL without what is secret.
func (d Database) String() string {
	if d.Shared() {
		return d.postgres.shown()
	}
	return "sqlite:" + d.Path
}

// GoString keeps the password from %#v too.
func (d Database) GoString() string { return d.String() }

// checkFolder says so when the file's folder is missing: a database is created,
// the place for it is not.
func (d Database) checkFolder() error {
	if d.Shared() {
		return nil
	}
	dir := filepath.Dir(d.Path)
	info, err := os.Stat(dir)
	if err == nil && info.IsDir() {
		return nil
	}
	return &abi.Error{
		Code:    job.CodeDatabaseUnavailable,
		Message: fmt.Sprintf("the folder %s for the database of %s does not exist", dir, d.Source),
		Fix:     "create it, or name another path",
		Err:     err,
	}
}

// DatabaseParams are the three places that may name a database, strongest
// first. A relative path of the manifest is relative to the manifest, any other
// to the working directory. Manifest may be nil.
type DatabaseParams struct {
	Flag     string
	Env      string
	Manifest *manifest.Manifest
}

// FindDatabase is the database that p names; without any it is runner.db in
// the working directory. Errors: X_DATABASE_URL_INVALID, which shows no password.
func FindDatabase(p DatabaseParams) (Database, error) {
	switch {
	case p.Flag != "":
		return parseDatabase(p.Flag, "", sourceFlag)
	case p.Env != "":
		return parseDatabase(p.Env, "", EnvDatabase)
	case p.Manifest != nil && p.Manifest.Runner.Database != "":
		return parseDatabase(p.Manifest.Runner.Database, filepath.Dir(p.Manifest.Path), p.Manifest.Path)
	}
	return parseDatabase("sqlite:runner.db", "", sourceDefault)
}

func parseDatabase(raw, dir, source string) (Database, error) {
	scheme, path, found := strings.Cut(raw, ":")
	if strings.Contains(scheme, "=") {
		// As libpq takes it: host=… password=…
		return Database{}, &abi.Error{
			Code:    CodeDatabaseURL,
			Message: fmt.Sprintf("the database of %s is a list of keywords, or a file without a scheme", source),
			Fix:     "write postgres://USER:PASSWORD@HOST:5432/NAME, with special characters of the password escaped as %XX, or sqlite:PATH",
		}
	}
	if !found {
		return Database{}, &abi.Error{
			Code:    CodeDatabaseURL,
			Message: fmt.Sprintf("the database %q of %s has no scheme", hideUserinfo(raw), source),
			Fix:     "write sqlite:" + hideUserinfo(raw) + " for a SQLite file",
		}
	}
	switch strings.ToLower(scheme) {
	case "sqlite":
	case "postgres", "postgresql":
		address, err := parsePostgres(raw, source)
		return Database{postgres: address, Source: source}, err
	default:
		return Database{}, &abi.Error{
			Code:    CodeDatabaseURL,
			Message: fmt.Sprintf("the database %q of %s has the unknown scheme %q", hideUserinfo(raw), source, scheme),
			Fix:     "write sqlite:PATH, or postgres://USER@HOST/NAME",
		}
	}
	path = strings.TrimPrefix(path, "//")
	bad := ""
	switch {
	case path == "":
		bad = "names no file"
	case strings.HasPrefix(path, ":memory:"):
		bad = "is in memory and would forget every run"
	case strings.ContainsAny(path, "?#\x00"):
		bad = "has options or a character that no file name should have"
	case strings.HasSuffix(path, "/"):
		bad = "names a folder"
	}
	if bad != "" {
		return Database{}, &abi.Error{
			Code:    CodeDatabaseURL,
			Message: fmt.Sprintf("the database %q of %s %s", hideUserinfo(raw), source, bad),
			Fix:     "write sqlite:PATH with the path of a file",
		}
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(dir, path)
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return Database{}, fmt.Errorf("resolve %s: %w", path, err)
	}
	return Database{Path: abs, Source: source}, nil
}

// hideUserinfo keeps the password of a URL out of messages. What looks like a
// URL with credentials but does not parse is cut at its scheme.
func hideUserinfo(raw string) string {
	if before, _, found := strings.Cut(raw, "?"); found {
		return hideUserinfo(before) + "?…" // a password may be a parameter
	}
	if scheme, rest, found := strings.Cut(raw, ":"); found && strings.Contains(strings.ToLower(rest), "password") {
		return scheme + ":…" // keywords after a scheme, whatever else they are
	}
	if !strings.Contains(raw, "@") {
		return raw
	}
	if u, err := url.Parse(raw); err == nil && u.User != nil {
		return u.Redacted()
	}
	scheme, _, found := strings.Cut(raw, "://")
	if !found {
		return "…" // USER:PASSWORD@HOST: nothing of it is sure to be no secret
	}
	return scheme + "://…"
}
