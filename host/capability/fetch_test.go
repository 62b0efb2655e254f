package capability

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/jobrunner/runner/abi"
)

func grant(t *testing.T, c Config, g Grants) *Set {
	t.Helper()
	o := NewOutside(c)
	t.Cleanup(o.Close)
	s, err := o.Grant(g)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// quiet is for servers whose clients misbehave on purpose.
var quiet = log.New(io.Discard, "", 0)

func get(url string) abi.HTTPRequest { return abi.HTTPRequest{Method: "GET", URL: url} }

// refusal is the code of err, which must be a Refusal that says why.
func refusal(t *testing.T, err error) abi.Code {
	t.Helper()
	var r *abi.Refusal
	if !errors.As(err, &r) || r.Failure.Message == "" {
		t.Fatalf("error %v, want a refusal with a message", err)
	}
	return r.Code
}

func TestFetchAnswersTheResponse(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		w.Header().Set("X-Seen", r.Method+" "+r.URL.Path+" "+r.Header.Get("X-Mine")+" "+string(b))
		w.WriteHeader(418)
		io.WriteString(w, "short")
	}))
	defer srv.Close()
	s := grant(t, Config{}, Grants{HTTP: []string{srv.URL + "/*"}})
	req := abi.HTTPRequest{Method: "POST", URL: srv.URL + "/tea", Headers: map[string]string{"X-Mine": "yes"}}
	resp, body, err := s.Fetch(t.Context(), req, []byte("pot"))
	if err != nil || resp.Status != 418 || string(body) != "short" || resp.Headers["X-Seen"] != "POST /tea yes pot" {
		t.Errorf("response %+v %s, %v", resp, body, err)
	}
	if f := s.Features(); f != abi.FeatureHTTP {
		t.Errorf("features %b", f)
	}
}

func TestWhatIsNotGrantedIsDenied(t *testing.T) {
	s := grant(t, Config{Secrets: func(context.Context, string) (string, error) { return "v", nil }}, Grants{})
	_, _, err := s.Fetch(t.Context(), get("https://api.example.com/?token=sesame"), nil)
	if got := refusal(t, err); got != abi.CodeDenied {
		t.Errorf("fetch: code %d", got)
	}
	if strings.Contains(err.Error(), "sesame") {
		t.Errorf("the refusal repeats the query: %v", err)
	}
	if _, err := s.Secret(t.Context(), "KEY"); refusal(t, err) != abi.CodeDenied {
		t.Errorf("secret: %v", err)
	}
	if s.Features() != 0 || len(s.Environ()) != 0 {
		t.Errorf("features %b, environment %v", s.Features(), s.Environ())
	}
}

func TestAResponseThatIsTooLargeIsRefused(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, strings.Repeat("x", len(r.URL.RawQuery)))
	}))
	defer srv.Close()
	s := grant(t, Config{MaxResponse: 8}, Grants{HTTP: []string{srv.URL + "/*"}})
	if _, body, err := s.Fetch(t.Context(), get(srv.URL+"/?12345678"), nil); err != nil || len(body) != 8 {
		t.Errorf("%d bytes, %v", len(body), err)
	}
	_, _, err := s.Fetch(t.Context(), get(srv.URL+"/?123456789"), nil)
	if got := refusal(t, err); got != abi.CodeLimit {
		t.Errorf("code %d", got)
	}
}

func TestASlowServerTimesOutAndACancelledAttemptStops(t *testing.T) {
	stop := make(chan struct{})
	arrived := make(chan struct{}, 2)
	srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		arrived <- struct{}{}
		<-stop
	}))
	defer srv.Close()
	defer close(stop)
	s := grant(t, Config{}, Grants{HTTP: []string{srv.URL + "/*"}})
	req := get(srv.URL + "/")
	req.TimeoutMS = 20
	_, _, err := s.Fetch(t.Context(), req, nil)
	if got := refusal(t, err); got != abi.CodeTimeout {
		t.Errorf("code %d", got)
	}

	ctx, cancel := context.WithCancelCause(t.Context())
	for len(arrived) > 0 {
		<-arrived
	}
	go func() {
		<-arrived
		cancel(errGone)
	}()
	if _, _, err := s.Fetch(ctx, get(srv.URL+"/"), nil); err != errGone {
		t.Errorf("error %v", err)
	}
}

func TestHeadersOfTheConnectionAreTheHosts(t *testing.T) {
	s := grant(t, Config{}, Grants{HTTP: []string{"https://api.example.com/*"}})
	for _, name := range []string{"host", "Transfer-Encoding", "content-length", "Proxy-Authorization"} {
		req := get("https://api.example.com/")
		req.Headers = map[string]string{name: "x"}
		_, _, err := s.Fetch(t.Context(), req, nil)
		if got := refusal(t, err); got != abi.CodeInvalid {
			t.Errorf("%s: code %d", name, got)
		}
	}
}

func TestAFailedRequestDoesNotRepeatTheURL(t *testing.T) {
	url := raw(t, func(net.Conn, *bufio.Reader) {}) // hangs up
	s := grant(t, Config{}, Grants{HTTP: []string{url + "/*"}})
	_, _, err := s.Fetch(t.Context(), get(url+"/path?token=sesame"), nil)
	if got := refusal(t, err); got != abi.CodeFailed || strings.Contains(err.Error(), "sesame") {
		t.Errorf("code %d: %v", got, err)
	}
}

func TestProxiesOfTheEnvironmentAreNotUsed(t *testing.T) {
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1")
	if o := NewOutside(Config{}); o.transport.Proxy != nil {
		t.Error("the transport asks for a proxy")
	}
}
