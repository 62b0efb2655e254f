// Command onpgtest runs another command on a throwaway Postgres:
//
//	go run ./cmd/runner/internal/onpgtest go run ./examples/demo -store postgres
//
// It starts the server that is installed here, with its stock configuration, on
// a socket in a temporary folder; gives the command an empty database as
// RUNNER_DATABASE_URL; and removes everything when the command has ended,
// however that ends. Nothing is installed: without a server it says how to get
// one. What starts the server is package pgtest.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/jobrunner/runner/engine/store/postgres/pgtest"
)

const howToInstall = `there is no Postgres here to start (14 or newer is needed). Install one:
  Debian, Ubuntu   apt-get install postgresql
  Fedora, RHEL     dnf install postgresql-server
  macOS            brew install postgresql@17
or name a server with DATABASE_URL=postgres://USER:PASSWORD@HOST/NAME`

func main() {
	var settings values
	flag.Var(&settings, "c", "a setting of the server, as in max_connections=20; may be repeated")
	flag.Usage = func() {
		_, _ = fmt.Fprintln(os.Stderr, "usage: onpgtest [-c NAME=VALUE] COMMAND ARG…")
		flag.PrintDefaults()
	}
	flag.Parse()
	code, err := run(settings, flag.Args())
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "onpgtest:", err)
	}
	os.Exit(code)
}

// run answers the command's exit code, or 2 with the reason why it has none.
func run(settings values, command []string) (code int, err error) {
	if len(command) == 0 {
		flag.Usage()
		return 2, errors.New("no command was given")
	}
	if !pgtest.Installed() {
		return 2, errors.New(howToInstall)
	}
	// A ^C reaches the command by itself; what it leaves is removed here.
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	server, err := pgtest.Start(ctx, pgtest.Options{Settings: settings})
	if err != nil {
		return 2, err
	}
	defer func() { err = errors.Join(err, server.Stop()) }()
	url, _, err := server.CreateDatabase(ctx)
	if err != nil {
		return 2, err
	}
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Env = append(os.Environ(), "RUNNER_DATABASE_URL="+url)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err := cmd.Start(); err != nil {
		return 2, err
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	for {
		select {
		case sig := <-signals:
			if sig == syscall.SIGTERM {
				_ = cmd.Process.Signal(sig)
			}
		case err := <-done:
			var exit *exec.ExitError
			if errors.As(err, &exit) && exit.ExitCode() > 0 {
				return exit.ExitCode(), nil
			}
			if err != nil {
				return 2, err
			}
			return 0, nil
		}
	}
}

// values are NAME=VALUE flags.
type values map[string]string

// String implements flag.Value.
func (v *values) String() string { return "" }

// Set implements flag.Value.
func (v *values) Set(text string) error {
	name, value, ok := strings.Cut(text, "=")
	if !ok {
		return fmt.Errorf("%q is no NAME=VALUE", text)
	}
	if *v == nil {
		*v = values{}
	}
	(*v)[name] = value
	return nil
}
