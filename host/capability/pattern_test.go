package capability

import (
	"net/url"
	"testing"

	"github.com/jobrunner/runner/abi"
)

func TestWhatAPatternAllows(t *testing.T) {
	for _, c := range []struct {
		pattern, url string
		want         bool
	}{
		{"https://api.example.com/*", "https://api.example.com/", true},
		{"https://api.example.com/*", "https://api.example.com", true},
		{"https://api.example.com/*", "https://api.example.com/v1/things?q=1#f", true},
		{"https://api.example.com/*", "https://API.example.COM:443/v1", true},
		{"https://api.example.com/*", "http://api.example.com/", false},
		{"https://api.example.com/*", "https://api.example.com:8443/", false},
		{"https://api.example.com/*", "https://api.example.com.evil.net/", false},
		{"https://api.example.com/*", "https://evil-api.example.com/", false},
		{"https://api.example.com/*", "https://sub.api.example.com/", false},
		{"https://api.example.com/*", "https://api.example.com@evil.net/", false},
		{"https://api.example.com/*", "https://evil.net/https://api.example.com/", false},
		{"https://api.example.com/*", "https://user:pw@api.example.com/", false},
		{"https://api.example.com/*", "https://api.example.com./", false},
		{"https://api.example.com:8443/*", "https://api.example.com:8443/x", true},
		{"https://api.example.com:8443/*", "https://api.example.com/x", false},
		{"http://localhost/*", "http://localhost:80/x", true},

		{"https://a.example.com/v1/*", "https://a.example.com/v1/x", true},
		{"https://a.example.com/v1/*", "https://a.example.com/v1/", true},
		{"https://a.example.com/v1/*", "https://a.example.com/v1", false},
		{"https://a.example.com/v1/*", "https://a.example.com/v10/x", false},
		{"https://a.example.com/v1*", "https://a.example.com/v10/x", true},
		{"https://a.example.com/v1/*", "https://a.example.com/v1/../admin", false},
		{"https://a.example.com/v1/*", "https://a.example.com/v1/%2e%2E/admin", false},
		{"https://a.example.com/v1/*", "https://a.example.com/v1/.%2e/admin", false},
		{"https://a.example.com/v1/*", "https://a.example.com/v1/..%2fadmin", false},
		{"https://a.example.com/v1/*", "https://a.example.com/v1/%252e%252e/admin", false},
		{"https://a.example.com/v1/*", "https://a.example.com/v1/..%252fadmin", false},
		{"https://a.example.com/v1/*", "https://a.example.com/v1/..%255Cadmin", false},
		{"https://a.example.com/v1/*", "https://a.example.com/v1/%252e%252E%252fadmin", false},
		{"https://a.example.com/v1/*", "https://a.example.com/v1/x%252f..", false},
		{"https://a.example.com/v1/*", "https://a.example.com/v1/..%3bx/admin", false},
		{"https://a.example.com/v1/*", "https://a.example.com/v1/..%253bx/admin", false},
		{"https://a.example.com/v1/*", "https://a.example.com/v1/a%252fb..c", true},
		{"https://a.example.com/v1/*", "https://a.example.com/v1/..;x=1/admin", false},
		{"https://a.example.com/v1/*", `https://a.example.com/v1/..%5cadmin`, false},
		{"https://a.example.com/v1/*", "https://a.example.com/v1/./x", false},
		{"https://a.example.com/v1/*", "https://a.example.com/v1/a%2fb", true},
		{"https://a.example.com/v1/*", "https://a.example.com/%76%31/x", false},
		{"https://a.example.com/v1/*", "https://a.example.com//v1/x", false},
		{"https://a.example.com/v1/charges", "https://a.example.com/v1/charges?x=1", true},
		{"https://a.example.com/v1/charges", "https://a.example.com/v1/charges/2", false},

		{"https://*.example.com/*", "https://a.example.com/", true},
		{"https://*.example.com/*", "https://a.b.example.com/", true},
		{"https://*.example.com/*", "https://example.com/", false},
		{"https://*.example.com/*", "https://badexample.com/", false},

		{"http://127.0.0.1:8080/*", "http://127.0.0.1:8080/x", true},
		{"http://127.0.0.1:8080/*", "http://127.1:8080/x", false},
		{"http://127.0.0.1:8080/*", "http://0x7f.0.0.1:8080/x", false},
		{"http://127.0.0.1:8080/*", "http://2130706433:8080/x", false},
		{"http://[::1]/*", "http://[::1]/x", true},
		{"http://[::1]/*", "http://[::1%25lo]/x", false},
		{"http://localhost/*", "http://127.0.0.1/x", false},
	} {
		p, err := parsePattern(c.pattern)
		if err != nil {
			t.Errorf("%s: %v", c.pattern, err)
			continue
		}
		u, err := url.Parse(c.url)
		if err != nil {
			if c.want {
				t.Errorf("%s: %v", c.url, err)
			}
			continue
		}
		s := &Set{patterns: []pattern{p}}
		if got := s.permit(u) == nil; got != c.want {
			t.Errorf("%s allows %s: %v, want %v", c.pattern, c.url, got, c.want)
		}
	}
}

func TestPatternsThatMeanNothing(t *testing.T) {
	for _, text := range []string{
		"", "api.example.com/*", "ftp://a.example.com/*", "https://a.example.com", "https:///x", "https://*/x", "https://*.com/*",
		"https://a.*.com/*", "https://a.example.com/*/x", "https://a.example.com/x?y=1", "https://a.example.com/x#y", "https://u@a.example.com/*",
		"https://A.example.com/*", "https://a.example.com/../*", "https://a.example.com/%61*", "https://a b/*", "https://a.example.com:99x/*",
		"https://*.10.0.0.1/*", "https://0x7f.1/*", "https://a.example.com:/*\n", "https://[::1/*", `https://a.example.com\@b/*`, "https://ä.example.com/*",
	} {
		if p, err := parsePattern(text); err == nil {
			t.Errorf("%q is taken for %+v", text, p)
		} else if abi.CodeOf(err) != CodeGrantInvalid {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// Whatever a guest asks for, an allowed URL goes to the host of the pattern, by
// the reading of net/url and by that of a simple server.
func FuzzAllowedURLsStayWithinTheirPattern(f *testing.F) {
	for _, s := range []string{"https://a.example.com/v1/x", "https://a.example.com/v1/..%2f", "https://a.example.com\\@b/v1/", "https://a.example.com:443/v1/%00", "//a.example.com/v1/"} {
		f.Add(s)
	}
	p, err := parsePattern("https://a.example.com/v1/*")
	if err != nil {
		f.Fatal(err)
	}
	s := &Set{patterns: []pattern{p}}
	f.Fuzz(func(t *testing.T, text string) {
		u, err := url.Parse(text)
		if err != nil || s.permit(u) != nil {
			return
		}
		again, err := url.Parse(u.String())
		if err != nil || s.permit(again) != nil {
			t.Fatalf("%q is allowed, but what would be sent, %q, is not", text, u)
		}
		if clean := u.JoinPath(); u.Scheme != "https" || u.User != nil || len(clean.Path) < 4 || clean.Path[:4] != "/v1/" {
			t.Fatalf("%q is allowed and leads to %q", text, clean)
		}
	})
}
