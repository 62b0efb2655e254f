package postgres

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

// DefaultSchema is where the tables live unless a Config says otherwise.
const DefaultSchema = "runner"

// Pooling says whether connections lead to the server or to a pooler that gives
// each transaction whichever server connection is free.
type Pooling string

const (
	// PoolingAuto looks: a pooler answers with a process id that is not the
	// server's.
	PoolingAuto Pooling = ""
	// PoolingNone prepares statements and keeps them with the connection.
	PoolingNone Pooling = "none"
	// PoolingTransaction keeps nothing with a connection: statements are sent
	// whole, and wakes are found by polling.
	PoolingTransaction Pooling = "transaction"
)

// Config says which database to use and how. The zero values are good defaults,
// URL apart.
type Config struct {
	// URL is a connection string as libpq takes it, postgres://… or key=value.
	// What it leaves out comes from the PG* variables.
	URL string
	// Schema that holds the tables; "" is DefaultSchema.
	Schema string
	// MaxConns is the most connections; 0 is 10. One more listens for wakes.
	MaxConns int
	// ConnectTimeout bounds one attempt to connect; 0 is 10 s.
	ConnectTimeout time.Duration
	// StatementTimeout has the server end a statement that takes longer;
	// 0 leaves the server's setting. It is not applied through a pooler.
	StatementTimeout time.Duration
	// Pooling is found out when it is PoolingAuto.
	Pooling Pooling
	// NoListen leaves the wakes of other processes to polling, saving the
	// connection that would listen.
	NoListen bool
	// Logger gets what no caller can be told; nil discards.
	Logger *slog.Logger

	// now replaces the server's clock by an expression, for tests.
	now string
}

func (c Config) withDefaults() (Config, error) {
	switch {
	case c.URL == "":
		return c, &abi.Error{Code: job.CodeInvalid, Message: "the Postgres store has no URL", Fix: "give one, as in postgres://user@host/database"}
	case c.MaxConns < 0 || c.ConnectTimeout < 0 || c.StatementTimeout < 0:
		return c, &abi.Error{Code: job.CodeInvalid, Message: "a negative setting of the Postgres store", Fix: "use 0 for the default"}
	}
	switch c.Pooling {
	case PoolingAuto, PoolingNone, PoolingTransaction:
	default:
		return c, &abi.Error{
			Code:    job.CodeInvalid,
			Message: fmt.Sprintf("the pooling %q is unknown", c.Pooling),
			Fix:     fmt.Sprintf("use %s, %s, or nothing to have it found out", PoolingNone, PoolingTransaction),
		}
	}
	if c.Schema == "" {
		c.Schema = DefaultSchema
	}
	if problem := sqltext.CheckSchema(c.Schema); problem != "" {
		return c, &abi.Error{Code: job.CodeInvalid, Message: problem, Fix: sqltext.SchemaNames}
	}
	if c.MaxConns == 0 {
		c.MaxConns = 10
	}
	if c.ConnectTimeout == 0 {
		c.ConnectTimeout = 10 * time.Second
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.now == "" {
		c.now = systemNow
	}
	return c, nil
}

func (c *Config) dialect() dialect { return dialect{schema: c.Schema, now: c.now} }

// channel is that of NOTIFY.
func (c *Config) channel() string { return c.Schema + ".wake" }

// parse reads the URL. Its errors never repeat it: it may hold a password.
func (c *Config) parse() (*pgxpool.Config, error) {
	p, err := pgxpool.ParseConfig(c.URL)
	if err != nil {
		return nil, &abi.Error{
			Code:    job.CodeInvalid,
			Message: "the database URL cannot be read",
			Fix:     "write it as postgres://user:password@host:5432/database?sslmode=verify-full, with special characters of the password escaped as %XX",
		}
	}
	p.MaxConns = int32(c.MaxConns)
	p.MaxConnIdleTime = 5 * time.Minute
	p.ConnConfig.ConnectTimeout = c.ConnectTimeout
	if p.ConnConfig.RuntimeParams["application_name"] == "" {
		p.ConnConfig.RuntimeParams["application_name"] = "runner"
	}
	// Whatever role and database have been set to.
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
