package app

import (
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
)

// boundedListener accepts when fewer than its bound of connections are open.
type boundedListener struct {
	net.Listener
	free   chan struct{} // has room for each open connection
	closed chan struct{}
	once   sync.Once
}

func bounded(l net.Listener, most int) *boundedListener {
	return &boundedListener{Listener: l, free: make(chan struct{}, most), closed: make(chan struct{})}
}

// Accept implements net.Listener.
func (l *boundedListener) Accept() (net.Conn, error) {
	select {
	case l.free <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.free
		return nil, err
	}
	return &boundedConn{Conn: c, release: func() { <-l.free }}, nil
}

// Close implements net.Listener.
func (l *boundedListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// boundedConn gives its place back when it is closed.
type boundedConn struct {
	net.Conn
	once    sync.Once
	release func()
}

// Close implements net.Conn.
func (c *boundedConn) Close() error {
	err := c.Conn.Close()
	c.once.Do(c.release)
	return err
}

// metricsLog is what the handler of /metrics logs: what cannot be gathered is for
// the operator, and that a client has gone for nobody.
type metricsLog struct{ log *slog.Logger }

// Println implements promhttp.Logger.
func (l metricsLog) Println(v ...any) {
	text := strings.TrimSpace(fmt.Sprintln(v...))
	if strings.HasPrefix(text, "error gathering") {
		l.log.Warn("admin.metrics-incomplete", "error", text)
		return
	}
	l.log.Debug("admin.metrics-unsent", "error", text)
}
