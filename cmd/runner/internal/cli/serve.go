package cli

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/cmd/runner/internal/app"
	"github.com/jobrunner/runner/engine/manifest"
)

// serveFlags are the flags of serve.
type serveFlags struct {
	listen, logFormat, logLevel string
	outbox                      string
	drain                       time.Duration
	watch                       bool
	roles                       []string
}

func newServe(e *env) *cobra.Command {
	var f serveFlags
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Work the queue: the process that runs jobs",
		Long: `Run what is due, until told to stop. Manifest and modules are checked first, as
validate does; nothing is started while there is a problem.

Without --database-url, $RUNNER_DATABASE_URL or a database in the manifest, runs are
kept in runner.db beside the manifest, which is created when it is missing. One process
serves a SQLite database at a time; others may enqueue, list and operate meanwhile. Any
number of processes serve one Postgres database, which runner migrate up has prepared.

Signals:
  SIGTERM, SIGINT  drain: claim nothing more, let attempts finish for as long as --drain
                   says, hand the rest back uncounted, then exit 0
  a second one     stop now: what runs is aborted and handed back uncounted
  SIGHUP           load manifest and modules again; --watch does so by itself when a
                   file changes

A reload that finds a problem changes nothing: every problem is logged and what was
served before is still served. Attempts under way finish on the module they began with,
and a started run goes on with that module unless its job says on_deploy = "latest".

--outbox-url names an application's Postgres database, prepared by runner migrate outbox:
what the application stages there in its own transactions is published from here. It may
be the queue's database, and several processes may share the work.

--roles narrows what the process does: worker claims runs and works them off, scheduler
fires schedules, relay publishes what is staged in the outbox. Without it a process does
all of them. One that is no worker loads no modules, and does not count as the process
that serves a SQLite file.

--listen serves /healthz (the process is alive), /readyz (it takes work: the database
answers, it holds its lease and nothing is draining) and /metrics (Prometheus). Bind it
where only operators reach it.`,
		Example: `  runner serve
  runner serve -f deploy/jobs.toml --database-url sqlite:/var/lib/runner/runner.db
  RUNNER_DATABASE_URL=postgres://runner@db.example.com/app runner serve
  runner serve --outbox-url postgres://relay@db.example.com/shop
  runner serve --roles relay --outbox-url postgres://relay@db.example.com/shop
  runner serve --watch --log-format text --log-level debug
  runner serve --listen '' --drain 60s`,
		Args:    cobra.NoArgs,
		GroupID: groupWork,
	}
	t := e.targetFlags(cmd)
	fl := cmd.Flags()
	fl.StringVar(&f.listen, "listen", "127.0.0.1:7070", "address of /healthz, /readyz and /metrics; empty for none")
	fl.StringVar(&f.outbox, "outbox-url", "", "publish what an application stages in this Postgres database (default $"+app.EnvOutbox+", or none)")
	durationVar(fl, &f.drain, "drain", 0, "how long attempts may finish when told to stop (default the manifest's, 25s)")
	fl.BoolVar(&f.watch, "watch", false, "load manifest and modules again when their files change")
	fl.StringVar(&f.logFormat, "log-format", "text", "text or json")
	fl.StringVar(&f.logLevel, "log-level", "info", "debug, info, warn or error")
	fl.StringSliceVar(&f.roles, "roles", nil, "what this process does: "+roleNames()+" (default all)")
	e.complete(cmd, "roles", cobra.FixedCompletions(strings.Split(roleNames(), ", "), cobra.ShellCompDirectiveNoFileComp))
	e.complete(cmd, "log-format", cobra.FixedCompletions([]string{"text", "json"}, cobra.ShellCompDirectiveNoFileComp))
	e.complete(cmd, "log-level", cobra.FixedCompletions([]string{"debug", "info", "warn", "error"}, cobra.ShellCompDirectiveNoFileComp))
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		e.started, e.command = true, cmd.CommandPath() // not e.run: signals mean other things here
		if err := checkFlags(cmd); err != nil {
			return err
		}
		return e.serve(cmd.Context(), t, f)
	}
	return cmd
}

func (e *env) serve(ctx context.Context, t *target, f serveFlags) error {
	logger, err := e.logger(f.logFormat, f.logLevel)
	if err != nil {
		return err
	}
	if f.drain != 0 && (f.drain < manifest.MinDrain || f.drain > manifest.MaxDrain) {
		return usagef("leave it out for the manifest's", "--drain must be from %s to %s; this is %s",
			manifest.FormatDuration(manifest.MinDrain), manifest.FormatDuration(manifest.MaxDrain), manifest.FormatDuration(f.drain))
	}
	roles, err := e.roles(&f)
	if err != nil {
		return err
	}
	app.SpareCollections(e.Getenv)
	// Before anything is opened, so that no signal is lost to the default action.
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)

	starting, cancel := context.WithCancel(ctx)
	defer cancel()
	type result struct {
		s   *app.Server
		err error
	}
	started := make(chan result, 1)
	go func() {
		var r result
		r.err = safely(func() (err error) {
			r.s, err = app.StartServer(starting, app.ServerConfig{
				Manifest: t.file, Database: t.database, Roles: roles, Outbox: f.outbox, Getenv: e.Getenv, Listen: f.listen, Drain: f.drain, Logger: logger,
			})
			return err
		})
		started <- r
	}()
	var reload, stop bool
	for {
		select {
		case r := <-started:
			switch {
			case stop && errors.Is(r.err, context.Canceled):
				return &abi.Error{Code: codeInterrupted, Message: "told to stop before it had started; nothing has begun"}
			case r.err != nil:
				return r.err
			case stop:
				return drain(r.s, signals)
			}
			return serveUntilTold(ctx, r.s, signals, f.watch, reload)
		case sig := <-signals:
			if sig == syscall.SIGHUP {
				reload = true
				continue
			}
			stop = true
			cancel()
		}
	}
}

// roles are those that --roles names. It completes f's outbox, without which a
// process that is told to relay would do nothing.
func (e *env) roles(f *serveFlags) ([]app.Role, error) {
	named := f.outbox != ""
	if !named {
		f.outbox = e.Getenv(app.EnvOutbox)
	}
	if f.roles == nil {
		return app.Roles, nil
	}
	roles, err := app.ParseRoles(f.roles)
	if err != nil {
		return nil, usagef("name one or more of: "+roleNames(), "--roles: %v", err)
	}
	switch relays := slices.Contains(roles, app.RoleRelay); {
	case relays && f.outbox == "":
		return nil, usagef("name the application's database with --outbox-url or $"+app.EnvOutbox, "a process with the role relay needs an outbox")
	case !relays && named:
		return nil, usagef("add the role relay, or leave --outbox-url out", "--outbox-url is for the role relay, which --roles leaves out")
	}
	return roles, nil
}

func roleNames() string {
	names := make([]string, len(app.Roles))
	for i, r := range app.Roles {
		names[i] = string(r)
	}
	return strings.Join(names, ", ")
}

// serveUntilTold reacts to signals and to changed files until s has stopped.
func serveUntilTold(ctx context.Context, s *app.Server, signals <-chan os.Signal, watch, reload bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var changed <-chan struct{}
	if watch {
		changed = s.Watch(ctx)
	}
	// A reload compiles modules, which takes seconds: signals are heard meanwhile.
	reloaded := make(chan error, 1)
	busy, again := false, reload
	for {
		if again && !busy {
			busy, again = true, false
			go func() { reloaded <- safely(func() error { s.Reload(ctx); return nil }) }()
		}
		select {
		case err := <-reloaded:
			if err != nil {
				return err
			}
			busy = false
		case <-changed:
			again = true
		case sig := <-signals:
			if sig == syscall.SIGHUP {
				again = true
				continue
			}
			cancel()
			if busy {
				<-reloaded
			}
			return drain(s, signals)
		}
	}
}

// drain drains s; a second signal stops it.
func drain(s *app.Server, signals <-chan os.Signal) error {
	done := make(chan error, 1)
	go func() { done <- safely(func() error { return s.Drain(context.Background()) }) }()
	for {
		select {
		case err := <-done:
			return err
		case sig := <-signals:
			if sig != syscall.SIGHUP {
				go func() { _ = s.Stop() }() // its error is the drain's
			}
		}
	}
}

// logger writes to stderr.
func (e *env) logger(format, level string) (*slog.Logger, error) {
	levels := []string{"debug", "info", "warn", "error"}
	i := slices.Index(levels, level)
	if i < 0 {
		return nil, usagef("one of "+strings.Join(levels, ", "), "--log-level %q is not known", level)
	}
	opts := &slog.HandlerOptions{Level: slog.Level(4 * (i - 1))}
	switch format {
	case "json":
		return slog.New(slog.NewJSONHandler(e.Stderr, opts)), nil
	case "text":
		return slog.New(slog.NewTextHandler(e.Stderr, opts)), nil
	}
	return nil, usagef("text or json", "--log-format %q is not known", format)
}
