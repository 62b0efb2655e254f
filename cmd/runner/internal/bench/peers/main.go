package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// params are what the flags say.
type params struct {
	database string // of the server; others are made beside it
	runner   string
	peers    string // "" measures the runner alone
	only     string
	rounds   int
	jobs     int
	out      string
	dir      string // to build in
}

// measureTimeout ends a program that hangs.
const measureTimeout = 10 * time.Minute

func main() {
	var p params
	flag.StringVar(&p.runner, "runner", "bin/runner", "the runner's binary")
	flag.StringVar(&p.peers, "peers", "", "the folder of the peers' programs")
	flag.StringVar(&p.only, "only", "", "measure this one alone: runner, runner-go, river, graphile or dbos")
	flag.IntVar(&p.rounds, "rounds", 3, "how often each is measured")
	flag.IntVar(&p.jobs, "jobs", 50000, "jobs that each inserts and works off")
	flag.StringVar(&p.out, "json", "", "keep everything in this file")
	flag.Parse()
	p.database = os.Getenv("RUNNER_DATABASE_URL")
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := measure(ctx, p); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func measure(ctx context.Context, p params) (err error) {
	if p.rounds < 1 || p.jobs < 1 {
		return errors.New("-rounds and -jobs are at least 1")
	}
	if p.dir, err = os.MkdirTemp("", "runner-peers-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(p.dir)) }()
	if p.runner, err = filepath.Abs(p.runner); err != nil {
		return err
	}
	server, err := connect(ctx, p.database)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.conn.Close(context.WithoutCancel(ctx))) }()
	r := &report{When: time.Now().UTC(), Server: server.version, Jobs: p.jobs, Samples: map[string]map[string][]float64{}, Failures: map[string]string{}}
	all := prepared(ctx, p, r)
	for round := range p.rounds {
		for i := range all {
			s := all[(i+round)%len(all)]
			if _, failed := r.Failures[s.name]; failed {
				continue
			}
			if err := one(ctx, server, s, r, round); ctx.Err() != nil {
				return context.Cause(ctx)
			} else if err != nil {
				_, _ = fmt.Fprintf(os.Stderr, "%s failed: %v\n", s.name, err)
				r.Failures[s.name] = err.Error()
			}
		}
	}
	r.finish()
	if p.out != "" {
		if err := r.write(p.out); err != nil {
			return err
		}
	}
	if err := r.print(os.Stdout); err != nil {
		return err
	}
	if len(r.Samples) == 0 {
		return errors.New("nothing could be measured")
	}
	return nil
}

// prepared are the subjects that can be measured; the report has the others.
func prepared(ctx context.Context, p params, r *report) []subject {
	var all []subject
	for _, s := range subjects(p) {
		if p.only != "" && s.name != p.only {
			continue
		}
		r.order = append(r.order, s.name)
		if s.prepare != nil {
			_, _ = fmt.Fprintf(os.Stderr, "building %s …\n", s.name)
			if err := s.prepare(ctx); err != nil {
				r.Failures[s.name] = err.Error()
				continue
			}
		}
		all = append(all, s)
	}
	return all
}

// one measures s once, in a new database.
func one(ctx context.Context, server *server, s subject, r *report, round int) (err error) {
	ctx, cancel := context.WithTimeout(ctx, measureTimeout)
	defer cancel()
	database, drop, err := server.newDatabase(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, drop()) }()
	_, _ = fmt.Fprintf(os.Stderr, "round %d: %s …\n", round+1, s.name)
	found, err := s.measure(ctx, database)
	if err != nil {
		return err
	}
	if r.Samples[s.name] == nil {
		r.Samples[s.name] = map[string][]float64{}
	}
	for m, v := range found {
		r.Samples[s.name][m] = append(r.Samples[s.name][m], v)
	}
	return nil
}

// server makes databases beside the one that was named. One goroutine uses it.
type server struct {
	conn    *pgx.Conn
	url     *url.URL
	version string
	made    int
}

func connect(ctx context.Context, raw string) (*server, error) {
	u, err := url.Parse(raw)
	if err != nil || !slices.Contains([]string{"postgres", "postgresql"}, u.Scheme) {
		return nil, errors.New("RUNNER_DATABASE_URL is no postgres:// URL; make bench STORE=postgres starts a server and sets it")
	}
	s := &server{url: u}
	if s.conn, err = pgx.Connect(ctx, raw); err != nil {
		return nil, err
	}
	if err := s.conn.QueryRow(ctx, "SELECT current_setting('server_version')").Scan(&s.version); err != nil {
		return nil, errors.Join(err, s.conn.Close(ctx))
	}
	return s, nil
}

// newDatabase makes an empty database. What was measured before has been written
// out by then, so that nobody pays for another's work.
func (s *server) newDatabase(ctx context.Context) (database string, drop func() error, err error) {
	s.made++
	name := fmt.Sprintf("runner_bench_%d_%d", os.Getpid(), s.made)
	if _, err := s.conn.Exec(ctx, "CREATE DATABASE "+name); err != nil {
		return "", nil, fmt.Errorf("make a database: %w", err)
	}
	_, _ = s.conn.Exec(ctx, "CHECKPOINT") // who may not has a noisier measurement
	u := *s.url
	u.Path = "/" + name
	return u.String(), func() error {
		_, err := s.conn.Exec(context.WithoutCancel(ctx), "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)")
		return err
	}, nil
}
