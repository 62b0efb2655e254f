package chaostest

import (
	"bytes"
	"io"
	"net"
	"regexp"
	"testing"
	"time"
)

// ghost is a request that the proxy looks out for: the first with needle in it.
// It reaches the server long after its client has lost the connection, as one does
// of which a network, or a pooler, still has the bytes; or it just has all be
// held back from then on, itself first.
type ghost struct {
	needle []byte
	stalls bool
	seen   chan struct{} // closed once the proxy has it
	// Closed once the request has passed, since it has more in it: a server that has
	// done that more already would refuse the whole of it.
	passed chan struct{}
	// Of one that does not stall:
	hangUp chan struct{} // closed to have the client lose its connection
	arrive chan struct{} // closed to have the request arrive
	gone   chan struct{} // closed to end it
}

// await has the proxy look out for a request. It is to be dismissed.
func (p *proxy) await(needle string, stalls bool) *ghost {
	g := &ghost{needle: []byte(needle), stalls: stalls}
	for _, c := range []*chan struct{}{&g.seen, &g.passed, &g.hangUp, &g.arrive, &g.gone} {
		*c = make(chan struct{})
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ghosts[g] = struct{}{}
	return g
}

// dismiss ends a ghost wherever it is, and what it stalls.
func (p *proxy) dismiss(g *ghost) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, awaited := p.ghosts[g]; !awaited && g.stalls {
		p.stalls--
		p.more.Broadcast()
	}
	delete(p.ghosts, g)
	for _, c := range []chan struct{}{g.hangUp, g.arrive, g.gone} {
		select {
		case <-c:
		default:
			close(c)
		}
	}
}

// haunted returns the ghost that a piece of a request becomes; nil if none.
func (p *proxy) haunted(piece []byte) *ghost {
	p.mu.Lock()
	defer p.mu.Unlock()
	for g := range p.ghosts {
		if !bytes.Contains(piece, g.needle) {
			continue
		}
		delete(p.ghosts, g)
		switch {
		case g.stalls:
			p.stalls++
			close(g.seen)
		case g.alone(piece):
			return g
		default:
			close(g.passed)
		}
	}
	return nil
}

var token = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\.\d\.\d+`)

// alone reports whether no other step's record is in a request: a token as a value
// of its own, which is a length of four bytes and a string of JSON.
func (g *ghost) alone(request []byte) bool {
	for _, at := range token.FindAllIndex(request, -1) {
		if at[0] > 2 && request[at[0]-3] == 0 && !bytes.Equal(request[at[0]:at[1]], g.needle) {
			return false
		}
	}
	return true
}

// terminate is a Postgres client's goodbye.
var terminate = []byte{'X', 0, 0, 0, 4}

// walk takes a connection over when first has been read of it. What the server
// answers is nobody's.
func (g *ghost) walk(server, client net.Conn, first []byte) {
	all := bytes.Clone(first)
	close(g.seen)
	<-g.hangUp
	if c, ok := client.(*net.TCPConn); ok {
		_ = c.CloseWrite()
	}
	_ = client.SetReadDeadline(time.Now().Add(5 * time.Second))
	rest, _ := io.ReadAll(client) // what it had sent when it noticed
	<-g.arrive
	_, _ = server.Write(append(append(all, bytes.TrimSuffix(rest, terminate)...), terminate...))
	<-g.gone
}

func TestAGhostArrivesAfterItsClientHasLeft(t *testing.T) {
	upstream, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = upstream.Close() }()
	arrived := make(chan string)
	go func() {
		for {
			c, err := upstream.Accept()
			if err != nil {
				return
			}
			go func() {
				for buf := make([]byte, 100); ; {
					n, err := c.Read(buf)
					if err != nil {
						return
					}
					arrived <- string(buf[:n])
				}
			}()
		}
	}()
	p, err := newProxy(func() (net.Conn, error) { return net.Dial("tcp", upstream.Addr().String()) })
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	send := func(text string) net.Conn {
		c, err := net.Dial("tcp", p.listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(c, text); err != nil {
			t.Fatal(err)
		}
		return c
	}
	g := p.await("token", false)
	defer p.dismiss(g)
	first := send("with token")
	<-g.seen
	close(g.hangUp)
	if n, err := first.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		t.Fatalf("the client reads %d, %v", n, err)
	}
	_ = first.Close()
	again := send("token again")
	if text := <-arrived; text != "token again" {
		t.Fatalf("%q arrived instead of the repeat", text)
	}
	close(g.arrive)
	if text := <-arrived; text != "with token"+string(terminate) {
		t.Fatalf("%q arrived instead of the ghost", text)
	}
	_ = again.Close()
}
