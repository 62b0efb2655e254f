package capability

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/jobrunner/runner/abi"
)

var errGone = errors.New("lease lost")

// patient connects without any limit of time, so that only the end of a request
// can end it.
func patient(t *testing.T, r *net.Resolver, patterns ...string) *Set {
	t.Helper()
	o := newOutside(NewOutside(Config{Timeout: time.Hour}).cfg, dialer{resolver: r, tls: &tls.Config{}, timeout: time.Hour})
	t.Cleanup(o.Close)
	s, err := o.Grant(Grants{HTTP: patterns})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// An attempt that is over leaves no socket behind, wherever its request was.
func TestACancelledRequestClosesItsConnection(t *testing.T) {
	for name, c := range map[string]struct {
		scheme string
		head   string // what the server says before it falls silent
		wait   func(r *bufio.Reader) error
	}{
		"in the TLS handshake": {"https", "", func(r *bufio.Reader) error { _, err := r.ReadByte(); return err }},
		"before the status":    {"http", "", func(r *bufio.Reader) error { _, err := request(r); return err }},
		"in the headers":       {"http", "HTTP/1.1 200 OK\r\nA: ", func(r *bufio.Reader) error { _, err := request(r); return err }},
		"in the body":          {"http", "HTTP/1.1 200 OK\r\n\r\nslow", func(r *bufio.Reader) error { _, err := request(r); return err }},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			closed := make(chan error, 1)
			url := raw(t, func(conn net.Conn, r *bufio.Reader) {
				if err := c.wait(r); err != nil {
					closed <- err
					return
				}
				_, _ = io.WriteString(conn, c.head)
				cancel(errGone)
				_, err := io.Copy(io.Discard, r) // ends when the other side hangs up
				closed <- err
			})
			url = c.scheme + strings.TrimPrefix(url, "http")
			if _, _, err := patient(t, nil, url+"/*").Fetch(ctx, get(url+"/"), nil); err != errGone {
				t.Errorf("error %v", err)
			}
			<-closed
		})
	}
}

// Nor does one that is over while the name is looked up.
func TestACancelledRequestEndsItsLookUp(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	ended := make(chan struct{}, 1)
	s := patient(t, &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		cancel(errGone)
		<-ctx.Done()
		select {
		case ended <- struct{}{}:
		default: // it is asked again, for the other kind of address
		}
		return nil, ctx.Err()
	}}, "http://api.example.com/*")
	if _, _, err := s.Fetch(ctx, get("http://api.example.com/"), nil); err != errGone {
		t.Errorf("error %v", err)
	}
	<-ended
}

// Guests share connections, and nothing else: what one sends, and what a server
// gives it to keep, is not in the next one's request.
func TestAConnectionCarriesNothingFromOneGuestToAnother(t *testing.T) {
	var conns []string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conns = append(conns, r.RemoteAddr)
		w.Header().Set("Set-Cookie", "session=sesame; Path=/")
		w.Header().Set("Www-Authenticate", "Basic")
		_ = r.Header.Write(w)
	}))
	defer srv.Close()
	o := NewOutside(Config{})
	defer o.Close()
	for i := range 2 {
		s, err := o.Grant(Grants{HTTP: []string{srv.URL + "/*"}})
		if err != nil {
			t.Fatal(err)
		}
		req := get(srv.URL + "/")
		if i == 0 {
			req.Headers = map[string]string{"Authorization": "Bearer sesame", "X-Tenant": "sesame"}
		}
		_, body, err := s.Fetch(t.Context(), req, nil)
		if err != nil || strings.Contains(string(body), "sesame") != (i == 0) {
			t.Errorf("request %d: %s, %v", i, body, err)
		}
	}
	if len(conns) != 2 || conns[0] != conns[1] {
		t.Errorf("not one connection: %s", conns)
	}
}

func TestTLSIsCheckedAndHTTP2Spoken(t *testing.T) {
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.Proto) }))
	srv.EnableHTTP2 = true
	srv.Config.ErrorLog = quiet
	srv.StartTLS()
	defer srv.Close()
	s := grant(t, Config{}, Grants{HTTP: []string{srv.URL + "/*"}})
	if _, _, err := s.Fetch(t.Context(), get(srv.URL+"/"), nil); refusal(t, err) != abi.CodeFailed || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("a certificate of nobody: %v", err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(srv.Certificate())
	d := dialer{tls: &tls.Config{RootCAs: pool, NextProtos: []string{"h2", "http/1.1"}}, timeout: connectTimeout}
	o := newOutside(s.out.cfg, d)
	defer o.Close()
	s, err := o.Grant(Grants{HTTP: []string{srv.URL + "/*"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, body, err := s.Fetch(t.Context(), get(srv.URL+"/"), nil); err != nil || string(body) != "HTTP/2.0" {
		t.Errorf("%s, %v", body, err)
	}
}
