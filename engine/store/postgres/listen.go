package postgres

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
)

// Times of the listening connection.
const (
	proofEvery   = time.Minute // a connection that is silent for so long is probed again
	listenBackon = time.Minute // a connection that held so long starts the backoff anew
	listenMin    = 250 * time.Millisecond
	listenMax    = 30 * time.Second
)

// probePrefix begins the payload of a probe. No queue is stored so: see enc.
const probePrefix = "\x01p"

// listener receives the wakes of other processes over a connection of its own.
// It counts for something only once a probe, sent through the pool, has come
// back: a proxy may accept LISTEN and deliver nothing.
type listener struct {
	s      *Store
	cfg    *pgx.ConnConfig
	wait   time.Duration // for a probe to come back
	proven atomic.Bool
	warned bool         // that wakes do not arrive
	failed atomic.Int64 // sessions that ended
	begun  atomic.Bool
	ctx    context.Context
	stop   context.CancelFunc
	end    chan struct{}
}

func newListener(s *Store, cfg *pgx.ConnConfig) *listener {
	ctx, cancel := context.WithCancel(context.Background())
	cfg = cfg.Copy()
	cfg.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	return &listener{s: s, cfg: cfg, wait: 5 * time.Second, ctx: ctx, stop: cancel, end: make(chan struct{})}
}

// Wakes implements store.Notifier.
func (s *Store) Wakes(wake func(queue string)) (stop func()) {
	stop, first := s.hub.Listen(wake)
	if first && s.listen != nil && s.listen.begun.CompareAndSwap(false, true) {
		go s.listen.loop()
	}
	return stop
}

// Listening reports whether the wakes of other processes are known to arrive:
// a probe has come back on the connection that is open now.
func (s *Store) Listening() bool { return s.listen != nil && s.listen.proven.Load() }

func (l *listener) close() {
	l.stop()
	if l.begun.Load() {
		<-l.end
	}
}

func (l *listener) loop() {
	defer close(l.end)
	backoff := listenMin
	for l.ctx.Err() == nil {
		began := time.Now()
		err := l.session()
		l.proven.Store(false)
		l.failed.Add(1)
		if l.ctx.Err() != nil {
			return
		}
		if errors.Is(err, errUnproven) && !l.warned {
			l.warned = true
			l.s.cfg.Logger.Warn("wakes of other processes do not arrive, their work is found by polling",
				"database", l.s.target, "fix", "give the runner a URL that leads to the server itself, and its role the right to LISTEN")
		}
		if time.Since(began) > listenBackon {
			backoff = listenMin
		}
		if pauseFor(l.ctx, backoff) != nil {
			return
		}
		backoff = min(2*backoff, listenMax)
	}
}

func pauseFor(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// errUnproven says that a probe did not come back.
var errUnproven = errors.New("a probe did not come back")

// session is the life of one connection.
func (l *listener) session() error {
	ctx, cancel := context.WithTimeout(l.ctx, l.s.cfg.ConnectTimeout)
	cfg := l.cfg.Copy()
	l.s.cfg.refresh(cfg)
	c, err := pgx.ConnectConfig(ctx, cfg)
	cancel()
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = c.Close(ctx)
	}()
	if _, err := c.Exec(l.ctx, "LISTEN "+pgx.Identifier{l.s.cfg.channel()}.Sanitize()); err != nil {
		return err
	}
	for {
		if err := l.prove(c); err != nil {
			return err
		}
		if !l.proven.Swap(true) {
			l.s.hub.Post(slices.Values([]string{""})) // what came before was not heard
		}
		if err := l.receive(c, proofEvery, nil); err != nil {
			return err
		}
	}
}

// prove sends a probe through the pool and waits for it.
func (l *listener) prove(c *pgx.Conn) error {
	probe := probePrefix + rand.Text()
	ctx, cancel := context.WithTimeout(l.ctx, l.wait)
	defer cancel()
	err := l.s.write(ctx, func(q queryer) error {
		return l.s.runAll(ctx, q, call{st: qNotify, args: []any{l.s.cfg.channel(), []string{probe}}})
	})
	if err != nil {
		return err
	}
	back := false
	if err := l.receive(c, l.wait, func(payload string) bool { back = payload == probe; return back }); err != nil {
		return err
	}
	if !back {
		return errUnproven
	}
	return nil
}

// receive passes wakes on until done says so of a payload, or d has passed.
func (l *listener) receive(c *pgx.Conn, d time.Duration, done func(payload string) bool) error {
	deadline := time.Now().Add(d)
	for {
		ctx, cancel := context.WithDeadline(l.ctx, deadline)
		n, err := c.WaitForNotification(ctx)
		over := ctx.Err() != nil && l.ctx.Err() == nil
		cancel()
		switch {
		case err != nil && over && !c.IsClosed():
			return nil
		case err != nil:
			return err
		case done != nil && done(n.Payload):
			return nil
		case !strings.HasPrefix(n.Payload, probePrefix):
			l.s.hub.Post(slices.Values([]string{dec([]byte(n.Payload))}))
			deadline = extend(deadline, d, done)
		}
	}
}

// extend moves the deadline of a wait that ends by silence alone.
func extend(deadline time.Time, d time.Duration, done func(string) bool) time.Time {
	if done == nil {
		return time.Now().Add(d)
	}
	return deadline
}
