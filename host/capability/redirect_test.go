package capability

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/jobrunner/runner/abi"
)

func TestRedirectsAreFollowedOnlyWhereAllowed(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/open/in":
			http.Redirect(w, r, "/open/end", http.StatusFound)
		case "/open/out":
			http.Redirect(w, r, "/closed/end", http.StatusFound)
		case "/open/loop":
			http.Redirect(w, r, "/open/loop", http.StatusFound)
		default:
			io.WriteString(w, r.URL.Path)
		}
	}))
	defer srv.Close()
	s := grant(t, Config{}, Grants{HTTP: []string{srv.URL + "/open/*"}})
	for path, want := range map[string]int{"/open/in": 200, "/open/out": 302, "/open/loop": 302} {
		resp, body, err := s.Fetch(t.Context(), get(srv.URL+path), nil)
		if err != nil || resp.Status != want {
			t.Errorf("%s: %d %s, %v", path, resp.Status, body, err)
		}
	}
}

// seen is a server that answers with what it got: the request's method, path,
// headers and body.
func seen(t *testing.T) *httptest.Server {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		io.WriteString(w, r.Method+" "+r.URL.Path+"\n")
		_ = r.Header.Write(w)
		w.Write(body)
	}))
	t.Cleanup(srv.Close)
	return srv
}

// redirecting is a server that redirects to its query, with its path as status.
func redirecting(t *testing.T, start func(http.Handler) *httptest.Server) *httptest.Server {
	srv := start(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", r.URL.Query().Get("to"))
		status := map[string]int{"/302": 302, "/307": 307, "/308": 308}[r.URL.Path]
		w.WriteHeader(status)
	}))
	t.Cleanup(srv.Close)
	return srv
}

func TestARedirectLeavesWhatIsNotGrantedAlone(t *testing.T) {
	reached := false
	inside := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached = true }))
	defer inside.Close()
	srv := redirecting(t, httptest.NewServer)
	s := grant(t, Config{}, Grants{HTTP: []string{srv.URL + "/302"}})
	host := strings.TrimPrefix(srv.URL, "http://")
	_, port, _ := net.SplitHostPort(host)
	for _, to := range []string{
		inside.URL + "/",                                // another port
		"https://" + host + "/302",                      // another scheme
		"http://localhost:" + port + "/302",             // another name for the same host
		"http://127.1:" + port + "/302",                 // another spelling of it
		"http://[::ffff:127.0.0.1]:" + port + "/302",    // and another
		"http://2130706433:" + port + "/302",            // and another
		"http://user:pw@" + host + "/302",               // with user information
		"http://169.254.169.254/latest/meta-data/",      // where clouds keep credentials
		"http://metadata.google.internal/",              //
		"ftp://" + host + "/302",                        // schemes of other clients
		"file:///etc/passwd",                            //
		"gopher://" + host + "/_x",                      //
		"javascript:alert(1)",                           //
		"//evil.example.com/302",                        // relative to the scheme
		`http://` + host + `/302/..%5c..%5cadmin`,       // beyond the path
		"/302/../admin",                                 //
		"http://" + host + "\t/302", "http://[::1", "%", // nonsense
	} {
		u := srv.URL + "/302?to=" + strings.NewReplacer("%", "%25", "&", "%26", "\t", "%09").Replace(to)
		resp, _, err := s.Fetch(t.Context(), get(u), nil)
		// Where the target cannot even be read, there is nothing to answer.
		if err == nil && resp.Status != 302 || err != nil && refusal(t, err) != abi.CodeFailed {
			t.Errorf("to %s: %d, %v", to, resp.Status, err)
		}
	}
	if reached {
		t.Error("a server inside was reached")
	}
}

func TestNoSecretFollowsToAnotherOrigin(t *testing.T) {
	target := seen(t)
	first := redirecting(t, httptest.NewServer)
	s := grant(t, Config{}, Grants{HTTP: []string{first.URL + "/*", target.URL + "/*"}})
	request := func(method, status, to string) abi.HTTPRequest {
		return abi.HTTPRequest{Method: method, URL: first.URL + "/" + status + "?token=sesame&to=" + to, Headers: map[string]string{
			"Authorization": "Bearer sesame", "Cookie": "a=sesame", "X-Api-Key": "sesame", "Referer": "http://x/sesame", "User-Agent": "mine", "Accept": "text/plain",
		}}
	}
	for _, to := range []string{target.URL + "/end", first.URL + "/302?to=" + target.URL + "/end"} {
		resp, body, err := s.Fetch(t.Context(), request("GET", "302", to), nil)
		if err != nil || resp.Status != 200 || !strings.HasPrefix(string(body), "GET /end\n") {
			t.Fatalf("%d %s, %v", resp.Status, body, err)
		}
		if strings.Contains(string(body), "sesame") || !strings.Contains(string(body), "User-Agent: mine") || !strings.Contains(string(body), "Accept: text/plain") {
			t.Errorf("to %s came\n%s", to, body)
		}
	}
	// A body stays with the origin that it was sent to. 302 drops it by itself.
	for _, status := range []string{"307", "308"} {
		if resp, _, err := s.Fetch(t.Context(), request("POST", status, target.URL+"/end"), []byte("sesame")); err != nil || resp.Status/100 != 3 {
			t.Errorf("%s: %d, %v", status, resp.Status, err)
		}
	}
	if resp, body, err := s.Fetch(t.Context(), request("POST", "302", target.URL+"/end"), []byte("sesame")); err != nil || resp.Status != 200 || strings.Contains(string(body), "sesame") {
		t.Errorf("%d %s, %v", resp.Status, body, err)
	}
}

func TestWhatAGuestSendsFollowsWithinItsOrigin(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/start" {
			http.Redirect(w, r, "/end", http.StatusPermanentRedirect)
			return
		}
		body, _ := io.ReadAll(r.Body)
		io.WriteString(w, r.Header.Get("X-Api-Key")+" "+string(body))
	}))
	defer srv.Close()
	s := grant(t, Config{}, Grants{HTTP: []string{srv.URL + "/*"}})
	req := abi.HTTPRequest{Method: "POST", URL: srv.URL + "/start", Headers: map[string]string{"X-Api-Key": "key"}}
	if resp, body, err := s.Fetch(t.Context(), req, []byte("body")); err != nil || string(body) != "key body" {
		t.Errorf("%d %s, %v", resp.Status, body, err)
	}
}

// The way back to the first origin was chosen by another one, which must not
// make a guest's credentials act there.
func TestASecretDoesNotComeBackByAnotherOrigin(t *testing.T) {
	target := seen(t)
	between := redirecting(t, httptest.NewServer)
	mux := http.NewServeMux()
	first := httptest.NewServer(mux)
	defer first.Close()
	mux.HandleFunc("/start", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, between.URL+"/302?to="+first.URL+"/back", http.StatusFound)
	})
	mux.Handle("/back", target.Config.Handler)
	s := grant(t, Config{}, Grants{HTTP: []string{first.URL + "/*", between.URL + "/*"}})
	req := get(first.URL + "/start")
	req.Headers = map[string]string{"Authorization": "Bearer sesame", "X-Api-Key": "sesame"}
	resp, body, err := s.Fetch(t.Context(), req, nil)
	if err != nil || !strings.HasPrefix(string(body), "GET /back\n") || strings.Contains(string(body), "sesame") {
		t.Errorf("%d %s, %v", resp.Status, body, err)
	}
}

// net/http looks at the name alone: it would send the header in the clear.
func TestNoSecretFollowsFromTLSToPlainText(t *testing.T) {
	target := seen(t)
	first := redirecting(t, httptest.NewTLSServer)
	pool := x509.NewCertPool()
	pool.AddCert(first.Certificate())
	o := newOutside(NewOutside(Config{}).cfg, dialer{tls: &tls.Config{RootCAs: pool, NextProtos: []string{"h2", "http/1.1"}}, timeout: connectTimeout})
	defer o.Close()
	s, err := o.Grant(Grants{HTTP: []string{first.URL + "/*", target.URL + "/*"}})
	if err != nil {
		t.Fatal(err)
	}
	req := get(first.URL + "/302?token=sesame&to=" + target.URL + "/end")
	req.Headers = map[string]string{"Authorization": "Bearer sesame"}
	resp, body, err := s.Fetch(t.Context(), req, nil)
	if err != nil || !strings.HasPrefix(string(body), "GET /end\n") || strings.Contains(string(body), "sesame") {
		t.Errorf("%d %s, %v", resp.Status, body, err)
	}
}

func TestAnOriginIsSchemeHostAndPort(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"https://a.example.com/x", "https://A.example.com:443/y?z", true},
		{"http://a.example.com", "http://a.example.com:80/", true},
		{"https://a.example.com/", "http://a.example.com/", false},
		{"https://a.example.com:8443/", "http://a.example.com:8443/", false},
		{"https://a.example.com/", "https://a.example.com:8443/", false},
		{"https://a.example.com/", "https://b.a.example.com/", false},
	} {
		a, errA := url.Parse(c.a)
		b, errB := url.Parse(c.b)
		if errA != nil || errB != nil {
			t.Fatal(errA, errB)
		}
		if sameOrigin(a, b) != c.want || sameOrigin(b, a) != c.want {
			t.Errorf("%s and %s: not %v", a, b, c.want)
		}
	}
}
