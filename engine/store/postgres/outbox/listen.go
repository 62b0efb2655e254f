package outbox

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
)

// Times of the listening connection.
const (
	proofWait  = 5 * time.Second // for a probe to come back
	proofEvery = time.Minute     // a connection that is silent for so long is probed again
	listenMin  = 250 * time.Millisecond
	listenMax  = 30 * time.Second
	// unprovenMax is the longest wait where connections are made but deliver
	// nothing, as through a pooler: that does not change by itself.
	unprovenMax = 10 * time.Minute
)

// probePrefix begins the payload of a probe.
const probePrefix = "probe "

// listener hears of new rows over a connection of its own. It counts for
// something only once a probe, sent through the pool, has come back: a pooler
// accepts LISTEN and delivers nothing.
type listener struct {
	d       *DB
	cfg     *pgx.ConnConfig
	channel string
	wait    time.Duration // for a probe to come back
	proven  atomic.Bool
	failed  atomic.Int64 // sessions that ended
	warned  bool
	ctx     context.Context
	stop    context.CancelFunc
	end     chan struct{} // closed when loop has ended

	calling sync.Mutex // held while subscribers are called; their stop waits for it
	mu      sync.Mutex
	subs    map[int]func()
	next    int
	begun   bool
}

func newListener(d *DB, cfg *pgx.ConnConfig, channel string) *listener {
	ctx, cancel := context.WithCancel(context.Background())
	return &listener{d: d, cfg: cfg, channel: channel, wait: proofWait, ctx: ctx, stop: cancel, end: make(chan struct{}), subs: map[int]func(){}}
}

// Wakes implements store.OutboxRelay.
func (d *DB) Wakes(wake func()) (stop func()) {
	l := d.listen
	l.mu.Lock()
	defer l.mu.Unlock()
	id := l.next
	l.next++
	l.subs[id] = wake
	if !l.begun && !d.cfg.NoListen && l.ctx.Err() == nil {
		l.begun = true
		go l.loop()
	}
	return func() {
		l.calling.Lock() // a call under way ends first
		defer l.calling.Unlock()
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.subs, id)
	}
}

// Listening implements store.OutboxRelay.
func (d *DB) Listening() bool { return d.listen.proven.Load() }

func (l *listener) close() {
	l.stop()
	l.mu.Lock()
	begun := l.begun
	l.mu.Unlock()
	if begun {
		<-l.end
	}
}

func (l *listener) post() {
	l.calling.Lock()
	defer l.calling.Unlock()
	l.mu.Lock()
	subs := make([]func(), 0, len(l.subs))
	for _, f := range l.subs {
		subs = append(subs, f)
	}
	l.mu.Unlock()
	for _, f := range subs {
		f()
	}
}

func (l *listener) loop() {
	defer close(l.end)
	wait := listenMin
	for l.ctx.Err() == nil {
		began := time.Now()
		err := l.session()
		l.proven.Store(false)
		l.failed.Add(1)
		if l.ctx.Err() != nil {
			return
		}
		most := listenMax
		if errors.Is(err, errUnproven) {
			most = unprovenMax
			l.warn()
		}
		if time.Since(began) > proofEvery {
			wait = listenMin
		}
		t := time.NewTimer(wait)
		select {
		case <-l.ctx.Done():
			t.Stop()
			return
		case <-t.C:
		}
		wait = min(2*wait, most)
	}
}

func (l *listener) warn() {
	if l.warned {
		return
	}
	l.warned = true
	l.d.cfg.Logger.Warn("outbox.listen-unproven",
		"database", l.d.at.target, "effect", "staged rows are found by polling",
		"fix", "give the relay a URL that leads to the server itself, not to a transaction pooler")
}

// errUnproven says that a probe did not come back.
var errUnproven = errors.New("a probe did not come back")

// session is the life of one connection.
func (l *listener) session() error {
	ctx, cancel := context.WithTimeout(l.ctx, l.d.cfg.ConnectTimeout)
	cfg := l.cfg.Copy()
	l.d.cfg.refresh(cfg)
	c, err := connect(ctx, cfg)
	cancel()
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = c.Close(ctx)
	}()
	if _, err := c.Exec(l.ctx, "LISTEN "+pgx.Identifier{l.channel}.Sanitize()); err != nil {
		return err
	}
	for {
		if err := l.prove(c); err != nil {
			return err
		}
		if !l.proven.Swap(true) {
			l.post() // what came before was not heard
		}
		if err := l.receive(c, proofEvery, nil); err != nil {
			return err
		}
	}
}

// prove sends a probe through the pool and waits for it.
func (l *listener) prove(c *pgx.Conn) error {
	probe := probePrefix + rand.Text()
	ctx, cancel := context.WithTimeout(l.ctx, proofWait) // to send it
	defer cancel()
	if _, err := l.d.pool.Exec(ctx, l.d.text["notify"], l.channel, probe); err != nil {
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

// receive passes wakes on until done says so of a payload, or until d has passed:
// as a whole with done, without a wake otherwise.
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
		case strings.HasPrefix(n.Payload, probePrefix):
		default:
			if n.Payload == retried {
				l.d.floor.fail()
			}
			l.post()
			if done == nil {
				deadline = time.Now().Add(d)
			}
		}
	}
}
