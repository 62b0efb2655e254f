package chaostest

import (
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// proxy stands between a process and the Postgres server. It passes bytes on
// until it is told otherwise. It is safe for concurrent use.
type proxy struct {
	listener net.Listener
	dial     func() (net.Conn, error)

	mu     sync.Mutex
	more   *sync.Cond // what follows has changed
	delay  time.Duration
	stalls int // how many there are at a time
	ghosts map[*ghost]struct{}
	conns  map[net.Conn]struct{}
	over   bool
	wg     sync.WaitGroup
}

func newProxy(dial func() (net.Conn, error)) (*proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{listener: l, dial: dial, conns: map[net.Conn]struct{}{}, ghosts: map[*ghost]struct{}{}}
	p.more = sync.NewCond(&p.mu)
	p.wg.Go(p.accept)
	return p, nil
}

func (p *proxy) accept() {
	for {
		in, err := p.listener.Accept()
		if err != nil {
			return
		}
		out, err := p.dial()
		if err != nil {
			_ = in.Close()
			continue
		}
		p.mu.Lock()
		if p.over {
			p.mu.Unlock()
			_, _ = in.Close(), out.Close()
			return
		}
		p.conns[in], p.conns[out] = struct{}{}, struct{}{}
		p.mu.Unlock()
		p.wg.Go(func() { p.pass(out, in, p.haunted) })
		p.wg.Go(func() { p.pass(in, out, nil) })
	}
}

// pass copies from one side to the other; the end of either ends both, but for a
// client's that a ghost has taken the connection from. haunted looks at what a
// client sends; it is nil in the other direction.
func (p *proxy) pass(to, from net.Conn, haunted func([]byte) *ghost) {
	buf := make([]byte, 256<<10)
	for {
		n, err := from.Read(buf)
		var g *ghost
		if haunted != nil {
			g = haunted(buf[:n])
		}
		if n > 0 && p.wait(from) {
			if g != nil {
				g.walk(to, from, buf[:n])
				break
			}
			if _, werr := to.Write(buf[:n]); werr != nil && haunted != nil {
				err = werr
			}
		}
		if err != nil {
			break
		}
	}
	p.mu.Lock()
	delete(p.conns, to)
	delete(p.conns, from)
	p.mu.Unlock()
	_, _ = to.Close(), from.Close()
}

// wait holds bytes back as long as the proxy is told to, and reports whether
// the connection is still there.
func (p *proxy) wait(c net.Conn) bool {
	p.mu.Lock()
	delay := p.delay
	p.mu.Unlock()
	if delay > 0 {
		time.Sleep(delay)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		if _, ok := p.conns[c]; !ok {
			return false
		}
		if p.stalls == 0 {
			return true
		}
		p.more.Wait()
	}
}

// setDelay holds each piece back for d, in both directions.
func (p *proxy) setDelay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// setStall holds everything back, as a network that drops packets does.
func (p *proxy) setStall(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if on {
		p.stalls++
	} else {
		p.stalls--
	}
	p.more.Broadcast()
}

// cut ends all connections; new ones are accepted.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.Close()
		delete(p.conns, c)
	}
	p.more.Broadcast()
}

func (p *proxy) close() {
	_ = p.listener.Close()
	p.mu.Lock()
	p.over, p.delay = true, 0
	p.mu.Unlock()
	p.cut()
	p.wg.Wait()
}

func TestProxyPassesStallsAndCuts(t *testing.T) {
	upstream, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = upstream.Close() }()
	go func() {
		for {
			c, err := upstream.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(c, c) }()
		}
	}()
	p, err := newProxy(func() (net.Conn, error) { return net.Dial("tcp", upstream.Addr().String()) })
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	c, err := net.Dial("tcp", p.listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	echo := func(text string) (string, error) {
		if _, err := io.WriteString(c, text); err != nil {
			return "", err
		}
		back := make([]byte, len(text))
		_, err := io.ReadFull(c, back)
		return string(back), err
	}
	if back, err := echo("through"); back != "through" {
		t.Fatalf("%q, %v", back, err)
	}
	p.setStall(true)
	done := make(chan string, 1)
	go func() {
		back, _ := echo("late")
		done <- back
	}()
	select {
	case back := <-done:
		t.Fatalf("a stalled proxy passed %q", back)
	default:
	}
	p.setStall(false)
	if back := <-done; back != "late" {
		t.Fatalf("after a stall came %q", back)
	}
	p.cut()
	if back, err := echo("gone"); err == nil {
		t.Errorf("a cut connection answered %q", back)
	}
}
