package outbox

import (
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/internal/sqltext"
	"github.com/jobrunner/runner/engine/job"
)

// DefaultSchema is where table and function are unless a Config says otherwise.
const DefaultSchema = "runner"

// Config says which database to use and how. The zero values are good defaults,
// URL apart.
type Config struct {
	// URL is a connection string as libpq takes it, postgres://… or key=value.
	// What it leaves out comes from the PG* variables. It may lead through a
	// pooler; then wakes do not arrive and rows are found by polling.
	URL string
	// Schema of the outbox; "" is DefaultSchema.
	Schema string
	// MaxConns is the most connections; 0 is 2. One more listens for wakes.
	MaxConns int
	// ConnectTimeout bounds one attempt to connect; 0 is 10 s.
	ConnectTimeout time.Duration
	// NoListen leaves new rows to polling, saving the connection that would listen.
	NoListen bool
	// Logger gets what no caller can be told; nil discards.
	Logger *slog.Logger

	// now replaces the server's clock by an expression, for tests.
	now string
}

func (c Config) withDefaults() (Config, error) {
	switch {
	case c.URL == "":
		return c, &abi.Error{Code: job.CodeInvalid, Message: "the outbox has no database URL", Fix: "give one, as in postgres://user@host/database"}
	case c.MaxConns < 0 || c.ConnectTimeout < 0:
		return c, &abi.Error{Code: job.CodeInvalid, Message: "a negative setting of the outbox", Fix: "use 0 for the default"}
	}
	if c.Schema == "" {
		c.Schema = DefaultSchema
	}
	if err := checkSchema(c.Schema); err != nil {
		return c, err
	}
	if c.MaxConns == 0 {
		c.MaxConns = 2
	}
	if c.ConnectTimeout == 0 {
		c.ConnectTimeout = 10 * time.Second
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.now == "" {
		c.now = "date_trunc('milliseconds', statement_timestamp())"
	}
	return c, nil
}

// checkSchema refuses names that sqltext.CheckSchema does.
func checkSchema(schema string) error {
	if problem := sqltext.CheckSchema(schema); problem != "" {
		return &abi.Error{Code: job.CodeInvalid, Message: problem, Fix: sqltext.SchemaNames}
	}
	return nil
}

// parse reads the URL. Its errors never repeat it: it may hold a password.
func (c *Config) parse() (*pgxpool.Config, error) {
	p, err := pgxpool.ParseConfig(c.URL)
	if err != nil {
		return nil, &abi.Error{
			Code:    job.CodeInvalid,
			Message: "the URL of the outbox's database cannot be read",
			Fix:     "write it as postgres://user:password@host:5432/database?sslmode=verify-full, with special characters of the password escaped as %XX",
		}
	}
	p.MaxConns = int32(c.MaxConns)
	p.MaxConnIdleTime = 5 * time.Minute
	p.ConnConfig.ConnectTimeout = c.ConnectTimeout
	// Nothing is kept on the server's session: it may be a pooler's, and whoever
	// has it next is the application.
	p.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	if p.ConnConfig.RuntimeParams["application_name"] == "" {
		p.ConnConfig.RuntimeParams["application_name"] = "runner-outbox"
	}
	// Whatever the application's are.
	p.ConnConfig.RuntimeParams["client_encoding"] = "UTF8"
	p.ConnConfig.RuntimeParams["standard_conforming_strings"] = "on"
	return p, nil
}

// refresh has a connection made with the password of now, where it comes from a
// file that may have changed since the URL was read.
func (c *Config) refresh(to *pgx.ConnConfig) {
	if now, err := pgx.ParseConfig(c.URL); err == nil {
		to.Password = now.Password
	}
}

// target names the database in messages, without credentials.
func target(p *pgxpool.Config) string {
	host := p.ConnConfig.Host
	if !strings.HasPrefix(host, "/") {
		host = fmt.Sprintf("%s:%d", host, p.ConnConfig.Port)
	}
	return fmt.Sprintf("%s at %s", p.ConnConfig.Database, host)
}
