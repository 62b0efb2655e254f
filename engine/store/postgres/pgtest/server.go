package pgtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
)

// Server is a running Postgres of this process. Its superuser is "postgres",
// without a password, reachable through its socket only.
type Server struct {
	url   string // of the database postgres
	dir   string // "" for a server that was there before
	bin   string
	port  int
	guard *exec.Cmd
	hold  io.Closer // the guard stops the server when this closes
}

// Options of a server. Zero values are the server's own defaults.
type Options struct {
	// Settings are passed as -c NAME=VALUE.
	Settings map[string]string
	// Rules are lines that go before those of pg_hba.conf, which trust everyone.
	Rules string
}

// Start starts a server with its durability on (fsync and all else as
// installed) and waits until it answers.
func Start(ctx context.Context, o Options) (*Server, error) {
	bin, err := binaries(ctx)
	if err != nil {
		return nil, err
	}
	dir, err := folder()
	if err != nil {
		return nil, err
	}
	s := &Server{dir: dir, bin: bin, port: 20000 + os.Getpid()%40000}
	if err := s.start(ctx, o); err != nil {
		return nil, errors.Join(err, s.Stop(), os.RemoveAll(dir))
	}
	return s, nil
}

func (s *Server) start(ctx context.Context, o Options) error {
	cred, err := serverUser()
	if err != nil {
		return err
	}
	if cred != nil {
		if err := os.Chown(s.dir, int(cred.Uid), int(cred.Gid)); err != nil {
			return err
		}
	}
	// The guard comes first: whatever happens from here on is cleaned up by it.
	if err := s.startGuard(cred); err != nil {
		return err
	}
	// What survives is what survives the server's crash, not the machine's.
	args := []string{"-D", s.data(), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"}
	if out, err := s.run(ctx, cred, "initdb", args...); err != nil {
		return fmt.Errorf("initdb: %w: %s", err, out)
	}
	if o.Rules != "" {
		path := filepath.Join(s.data(), "pg_hba.conf")
		rules, err := os.ReadFile(path)
		if err == nil {
			err = os.WriteFile(path, append([]byte(o.Rules+"\n"), rules...), 0) // it is there, and keeps its mode
		}
		if err != nil {
			return err
		}
	}
	return s.configure(ctx, o)
}

// configure adds settings to those that the server's folder has, and starts it.
func (s *Server) configure(ctx context.Context, o Options) error {
	settings := "listen_addresses=''\nunix_socket_directories='" + s.dir + "'\nport=" + strconv.Itoa(s.port) + "\n"
	for name, value := range o.Settings {
		settings += name + "='" + strings.ReplaceAll(value, "'", "''") + "'\n"
	}
	conf, err := os.OpenFile(filepath.Join(s.data(), "postgresql.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = conf.WriteString(settings)
	if err = errors.Join(err, conf.Close()); err != nil {
		return err
	}
	s.url = fmt.Sprintf("postgres://postgres@/postgres?host=%s&port=%d", url.QueryEscape(s.dir), s.port)
	return s.Up(ctx)
}

// patience is how many seconds pg_ctl waits for a server to start or to stop,
// which on a busy machine may take many times what it takes elsewhere.
const patience = "600"

func (s *Server) data() string { return filepath.Join(s.dir, "data") }
func (s *Server) log() string  { return filepath.Join(s.dir, "log") }

// Up starts a server that was brought Down.
func (s *Server) Up(ctx context.Context) error {
	cred, err := serverUser()
	if err != nil {
		return err
	}
	if out, err := s.run(ctx, cred, "pg_ctl", "-D", s.data(), "-l", s.log(), "-w", "-t", patience, "start"); err != nil {
		text, _ := os.ReadFile(s.log())
		return fmt.Errorf("pg_ctl start: %w: %s\n%s", err, out, text)
	}
	return nil
}

// Down stops the server the given way: "fast", or "immediate", which is a crash.
// Its data stays.
func (s *Server) Down(ctx context.Context, mode string) error {
	if s.dir == "" {
		return errors.New("pgtest: the server of RUNNER_TEST_DATABASE_URL is not ours to stop")
	}
	cred, err := serverUser()
	if err != nil {
		return err
	}
	if out, err := s.run(ctx, cred, "pg_ctl", "-D", s.data(), "-w", "-t", patience, "-m", mode, "stop"); err != nil {
		return fmt.Errorf("pg_ctl stop: %w: %s", err, out)
	}
	return nil
}

// Stop ends the server and removes its data. It may be called twice.
func (s *Server) Stop() error {
	if s.hold == nil {
		return nil
	}
	err := s.hold.Close()
	s.hold = nil
	// The folder is empty now, and where it is the server's user may not write.
	return errors.Join(err, s.guard.Wait(), os.RemoveAll(s.dir))
}

// URL is that of the server's own database, for a superuser.
func (s *Server) URL() string { return s.url }

// Bin is the folder of the server's binaries; "" for a server that was there
// before.
func (s *Server) Bin() string { return s.bin }

// folder makes a temporary folder that a server can use: below $TMPDIR, unless its
// path is too long for a socket or the server's user may not enter it.
func folder() (string, error) {
	base := os.TempDir()
	if len(base) > maxFolder || os.Geteuid() == 0 && !enterable(base) {
		base = "/tmp"
	}
	return os.MkdirTemp(base, "pgtest-")
}

// maxFolder leaves room for the names below it in the 108 bytes that the path of
// a socket has on Linux, 104 elsewhere.
const maxFolder = 64

// enterable reports whether anyone may enter a folder.
func enterable(dir string) bool {
	for {
		info, err := os.Stat(dir)
		if err != nil || info.Mode()&0o001 == 0 {
			return false
		}
		if up := filepath.Dir(dir); up != dir {
			dir = up
			continue
		}
		return true
	}
}

// databases is how many were made.
var databases atomic.Int64

// CreateDatabase makes an empty database and returns its URL and what drops it,
// whoever is connected to it.
func (s *Server) CreateDatabase(ctx context.Context) (dbURL string, drop func() error, err error) {
	// Two may be made in one tick of a clock.
	name := fmt.Sprintf("t%d_%d_%d", os.Getpid(), time.Now().UnixNano(), databases.Add(1))
	if err := s.Exec(ctx, "CREATE DATABASE "+name); err != nil {
		return "", nil, err
	}
	u, err := url.Parse(s.url)
	if err != nil {
		return "", nil, err
	}
	u.Path = "/" + name
	return u.String(), func() error {
		return s.Exec(context.Background(), "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)")
	}, nil
}

// Exec runs statements on a connection of its own to the server's database.
func (s *Server) Exec(ctx context.Context, sql string) error {
	c, err := pgx.Connect(ctx, s.url)
	if err != nil {
		return err
	}
	_, err = c.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol)
	return errors.Join(err, c.Close(ctx))
}

func (s *Server) run(ctx context.Context, cred *credential, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(s.bin, name), args...)
	cmd.Dir = s.dir
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	runAs(cmd, cred)
	var out bytes.Buffer
	// pg_ctl leaves the server with its output, so a pipe would stay open.
	file, err := os.CreateTemp(s.dir, "out-")
	if err != nil {
		return "", err
	}
	defer os.Remove(file.Name())
	defer file.Close()
	cmd.Stdout, cmd.Stderr = file, file
	err = cmd.Run()
	text, rerr := os.ReadFile(file.Name())
	out.Write(text)
	return out.String(), errors.Join(err, rerr)
}

// startGuard starts the shell that ends the server when this process is gone.
func (s *Server) startGuard(cred *credential) error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	cmd := exec.Command("/bin/sh", "-c", `read -r _; "$1/pg_ctl" -D "$2/data" -m immediate -w -t "$3" stop >/dev/null 2>&1; rm -rf "$2" 2>/dev/null; [ ! -e "$2/data" ]`, "pgtest", s.bin, s.dir, patience)
	cmd.Dir = "/"
	cmd.Stdin = r
	detach(cmd)
	runAs(cmd, cred)
	if err := cmd.Start(); err != nil {
		return errors.Join(err, w.Close())
	}
	s.guard, s.hold = cmd, w
	return nil
}
