package capability

import (
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"github.com/jobrunner/runner/abi"
)

// pattern is one allowed set of URLs.
type pattern struct {
	scheme string
	host   string // without brackets
	port   string
	path   string // as sent
	below  bool   // host stands for every name below it
	prefix bool   // path stands for every path that begins so
}

func parsePattern(text string) (pattern, error) {
	bad := func(why string) (pattern, error) {
		return pattern{}, &abi.Error{Code: CodeGrantInvalid, Message: "http: " + strconv.Quote(text) + " " + why,
			Fix: `write scheme, host and path, as in "https://api.example.com/v1/*"`}
	}
	scheme, rest, ok := strings.Cut(text, "://")
	if !ok || scheme != "https" && scheme != "http" {
		return bad("does not begin with https:// or http://")
	}
	authority, path, ok := strings.Cut(rest, "/")
	if !ok {
		return bad("has no path")
	}
	p := pattern{scheme: scheme, path: "/" + path}
	p.path, p.prefix = strings.CutSuffix(p.path, "*")
	authority, p.below = strings.CutPrefix(authority, "*.")
	switch {
	case strings.ContainsAny(p.path, "*?#%\\") || strings.ContainsFunc(p.path, func(r rune) bool { return r <= ' ' || r > '~' }):
		return bad("has a path with a * before its end, a query, a fragment, an escape, a blank or a letter outside ASCII")
	case climbs(p.path):
		return bad("has a path with . or ..")
	case strings.ContainsAny(authority, "*@%\\?# ") || authority != strings.ToLower(authority):
		return bad("has a host that is no name in lower case")
	}
	u, err := url.Parse(scheme + "://" + authority + "/")
	if err != nil || u.Hostname() == "" || u.Host != authority {
		return bad("has a host that is no name")
	}
	p.host, p.port = u.Hostname(), port(u)
	_, notIP := netip.ParseAddr(p.host)
	switch {
	case p.below && (notIP == nil || !strings.Contains(p.host, ".")):
		return bad("allows more hosts than one domain has")
	case notIP != nil && !isName(p.host):
		return bad("has a host that is no name")
	}
	return p, nil
}

// isName reports whether s can be a name that is looked up, in lower case. It
// refuses what resolvers may read as an address: a last label of digits.
func isName(s string) bool {
	labels := strings.Split(s, ".")
	for _, l := range labels {
		if l == "" || len(l) > 63 || strings.Trim(l, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
			return false
		}
	}
	last := labels[len(labels)-1]
	return len(s) <= 253 && (last[0] < '0' || last[0] > '9')
}

func port(u *url.URL) string {
	switch p := u.Port(); {
	case p != "":
		return p
	case u.Scheme == "https":
		return "443"
	}
	return "80"
}

// allows reports whether u is among the pattern's URLs; target has passed
// checkTarget.
func (p pattern) allows(u *url.URL) bool {
	host := strings.ToLower(u.Hostname())
	if p.below {
		if !strings.HasSuffix(host, "."+p.host) {
			return false
		}
	} else if host != p.host {
		return false
	}
	path := u.EscapedPath()
	if path == "" {
		path = "/"
	}
	return u.Scheme == p.scheme && port(u) == p.port && (path == p.path || p.prefix && strings.HasPrefix(path, p.path))
}

// checkTarget is what is wrong with u whatever the patterns say, or "".
func checkTarget(u *url.URL) string {
	switch {
	case u.User != nil:
		return "it has a user name or password in it"
	case u.Opaque != "" || u.Host == "":
		return "it is not absolute"
	case climbs(u.Path) || climbs(u.EscapedPath()):
		return "its path goes up"
	}
	if _, err := netip.ParseAddr(u.Hostname()); err != nil && !isName(strings.ToLower(u.Hostname())) {
		return "its host is no name"
	}
	return ""
}

// climbs reports whether some server could take a segment of path for "." or
// "..": one that unescapes once more than it should, too, and one that takes a
// backslash for a slash.
func climbs(path string) bool {
	path = escaped.Replace(strings.ToLower(path))
	for seg := range strings.FieldsFuncSeq(path, func(r rune) bool { return r == '/' || r == '\\' }) {
		if seg, _, _ = strings.Cut(seg, ";"); seg == "." || seg == ".." { // a parameter, for some
			return true
		}
	}
	return false
}

// escaped are the escapes that change where a path leads, by one level and by two.
var escaped = strings.NewReplacer(
	"%2e", ".", "%252e", ".", "%2f", "/", "%252f", "/", "%5c", "/", "%255c", "/", "%3b", ";", "%253b", ";")
