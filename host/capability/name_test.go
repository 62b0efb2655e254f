package capability

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/jobrunner/runner/abi"
)

// nameServer resolves every name to ips.
func nameServer(ips ...string) *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		client, server := net.Pipe()
		go func() {
			defer server.Close()
			for {
				var size [2]byte
				if _, err := io.ReadFull(server, size[:]); err != nil {
					return
				}
				q := make([]byte, binary.BigEndian.Uint16(size[:]))
				if _, err := io.ReadFull(server, q); err != nil {
					return
				}
				a := answerTo(q, ips)
				if _, err := server.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(a))), a...)); err != nil {
					return
				}
			}
		}()
		return client, nil
	}}
}

// answerTo is the answer to the question in q: those of ips that have its type.
func answerTo(q []byte, ips []string) []byte {
	end := 12
	for q[end] != 0 {
		end += int(q[end]) + 1
	}
	question := q[12 : end+5]
	a := append([]byte{q[0], q[1], 0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0}, question...)
	for _, text := range ips {
		ip := netip.MustParseAddr(text)
		typ := byte(28) // AAAA
		if ip.Is4() {
			typ = 1
		}
		if question[len(question)-3] != typ {
			continue
		}
		a[7]++
		b := ip.AsSlice()
		a = append(append(a, 0xc0, 12, 0, typ, 0, 1, 0, 0, 0, 1, 0, byte(len(b))), b...)
	}
	return a
}

func TestANameThatLeadsInsideIsDeniedWhenConnecting(t *testing.T) {
	reached := false
	srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached = true }))
	defer srv.Close()
	_, port, _ := net.SplitHostPort(srv.Listener.Addr().String())
	for _, ips := range [][]string{
		{"127.0.0.1"}, {"0.0.0.0"}, {"10.0.0.1"}, {"192.168.0.1"}, {"169.254.169.254"}, {"100.100.100.200"},
		{"::1"}, {"::"}, {"fe80::1"}, {"fd00:ec2::254"}, {"::ffff:127.0.0.1"}, {"::ffff:169.254.169.254"}, {"::127.0.0.1"},
		{"64:ff9b::7f00:1"}, {"2002:7f00:1::"}, {"::ffff:0:7f00:1"}, {"fec0::1"},
		{"127.0.0.1", "169.254.169.254", "::1"},
	} {
		s := grant(t, Config{Resolver: nameServer(ips...)}, Grants{HTTP: []string{"http://rebound.example.com:" + port + "/*"}})
		_, _, err := s.Fetch(t.Context(), get("http://rebound.example.com:"+port+"/"), nil)
		var r *abi.Refusal
		if !errors.As(err, &r) || r.Code != abi.CodeDenied || r.Failure.Code != CodeDenied || reached {
			t.Errorf("%s: %v, reached %v", ips, err, reached)
		}
	}
}

// A name server may answer differently each time it is asked: what counts is the
// address of each single connection. A connection that one module may use, to
// the same address and port, is none that another's name may.
func TestANameThatIsBoundAnewIsDeniedWhateverWasConnectedBefore(t *testing.T) {
	requests := 0
	srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { requests++ }))
	defer srv.Close()
	_, port, _ := net.SplitHostPort(srv.Listener.Addr().String())
	o := NewOutside(Config{Resolver: nameServer("127.0.0.1")})
	defer o.Close()
	set := func(pattern string) *Set {
		s, err := o.Grant(Grants{HTTP: []string{pattern}})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	local, named := set(srv.URL+"/*"), set("http://rebound.example.com:"+port+"/*")
	if _, _, err := local.Fetch(t.Context(), get(srv.URL+"/"), nil); err != nil {
		t.Fatal(err)
	}
	_, _, err := named.Fetch(t.Context(), get("http://rebound.example.com:"+port+"/"), nil)
	if refusal(t, err) != abi.CodeDenied || requests != 1 {
		t.Errorf("%v after %d requests", err, requests)
	}
}

func TestARefusalDoesNotSayWhereTheRunnerIs(t *testing.T) {
	broken := &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		return nil, errors.New("name server 10.9.8.7 is away")
	}}
	s := grant(t, Config{Resolver: broken}, Grants{HTTP: []string{"http://api.example.com/*"}})
	_, _, err := s.Fetch(t.Context(), get("http://api.example.com/?token=sesame"), nil)
	if refusal(t, err); err.Error() != "request to api.example.com: its name cannot be looked up: name server 10.9.8.7 is away" {
		t.Errorf("%v", err) // the error of Dial is the system's own, which names no server
	}
	// A connection that is reset: the error of the system has both addresses.
	srv := raw(t, func(c net.Conn, r *bufio.Reader) {
		_ = c.(*net.TCPConn).SetLinger(0)
		_, _ = r.ReadString('\n')
	})
	s = grant(t, Config{}, Grants{HTTP: []string{srv + "/*"}})
	if _, _, err = s.Fetch(t.Context(), get(srv+"/"), nil); refusal(t, err) != abi.CodeFailed || strings.Count(err.Error(), "127.0.0.1") != 1 {
		t.Errorf("%v", err)
	}
}
