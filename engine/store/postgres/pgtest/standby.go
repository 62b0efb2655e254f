package pgtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// Standby starts a server that replicates this one by streaming, from a base
// backup. What commits on this one from then on waits until the standby has it.
func (s *Server) Standby(ctx context.Context) (*Server, error) {
	dir, err := folder()
	if err != nil {
		return nil, err
	}
	standby := &Server{dir: dir, bin: s.bin, port: s.port}
	if err := standby.follow(ctx, s); err != nil {
		return nil, errors.Join(err, standby.Stop(), os.RemoveAll(dir))
	}
	return standby, s.alter(ctx, "SET synchronous_standby_names = '*'")
}

func (s *Server) follow(ctx context.Context, primary *Server) error {
	cred, err := serverUser()
	if err != nil {
		return err
	}
	if cred != nil {
		if err := os.Chown(s.dir, int(cred.Uid), int(cred.Gid)); err != nil {
			return err
		}
	}
	if err := s.startGuard(cred); err != nil {
		return err
	}
	out, err := s.run(ctx, cred, "pg_basebackup", "-D", s.data(), "-R", "-X", "stream", "-c", "fast", "--no-sync",
		"-h", primary.dir, "-p", strconv.Itoa(primary.port), "-U", "postgres")
	if err != nil {
		return fmt.Errorf("pg_basebackup: %w: %s", err, out)
	}
	return s.configure(ctx, Options{})
}

// Promote makes a standby a primary, which waits for no standby of its own.
func (s *Server) Promote(ctx context.Context) error {
	cred, err := serverUser()
	if err != nil {
		return err
	}
	if out, err := s.run(ctx, cred, "pg_ctl", "-D", s.data(), "-w", "-t", patience, "promote"); err != nil {
		return fmt.Errorf("pg_ctl promote: %w: %s", err, out)
	}
	return s.alter(ctx, "RESET synchronous_standby_names")
}

// alter changes a setting of a server that runs.
func (s *Server) alter(ctx context.Context, what string) error {
	if err := s.Exec(ctx, "ALTER SYSTEM "+what); err != nil {
		return err
	}
	return s.Exec(ctx, "SELECT pg_reload_conf()")
}

// Fill leaves no space on the file system of the server's data, which had better
// be a small one of its own, and answers what gives it back.
func (s *Server) Fill() (free func() error, err error) {
	if s.dir == "" {
		return nil, errors.New("pgtest: the disk of the server of " + EnvURL + " is not ours to fill")
	}
	path := filepath.Join(s.dir, "filler")
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	for _, n := range []int{1 << 20, 1 << 12} { // until not even a page fits
		block := make([]byte, n)
		for err == nil {
			_, err = f.Write(block)
		}
		err = nil
	}
	return func() error { return errors.Join(f.Close(), os.Remove(path)) }, nil
}
