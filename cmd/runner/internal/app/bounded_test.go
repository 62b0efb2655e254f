package app

import (
	"bytes"
	"errors"
	"log/slog"
	"net"
	"strings"
	"testing"
	"testing/synctest"
)

// endless is a listener to which everybody connects.
type endless struct{ closed chan struct{} }

func (l endless) Accept() (net.Conn, error) {
	select {
	case <-l.closed:
		return nil, net.ErrClosed
	default:
		c, _ := net.Pipe()
		return c, nil
	}
}
func (l endless) Close() error   { close(l.closed); return nil }
func (l endless) Addr() net.Addr { return nil }

func TestAListenerHasNoMoreThanItsBoundOfConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := bounded(endless{make(chan struct{})}, 2)
		accepted := make(chan net.Conn, 10)
		ended := make(chan error, 1)
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					ended <- err
					return
				}
				accepted <- c
			}
		}()
		synctest.Wait()
		if n := len(accepted); n != 2 {
			t.Fatalf("%d connections, want 2", n)
		}
		first := <-accepted
		for range 2 { // the second close frees nothing
			_ = first.Close()
			synctest.Wait()
		}
		if n := len(accepted); n != 2 {
			t.Errorf("%d connections after one was closed, want 2", n)
		}
		_ = l.Close()
		if err := <-ended; !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
		close(accepted)
		for c := range accepted {
			_ = c.Close()
		}
	})
}

func TestAClientOfMetricsThatHasGoneIsNoWarning(t *testing.T) {
	var out bytes.Buffer
	l := metricsLog{slog.New(slog.NewTextHandler(&out, nil))}
	l.Println("error encoding and sending metric family:", errors.New("broken pipe"))
	if out.Len() > 0 {
		t.Errorf("logged %s", out.String())
	}
	l.Println("error gathering metrics:", errors.New("collector failed"))
	if !strings.Contains(out.String(), "admin.metrics-incomplete") || !strings.Contains(out.String(), "collector failed") {
		t.Errorf("logged %q", out.String())
	}
}
