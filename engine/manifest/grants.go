package manifest

import (
	"fmt"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// Bounds of a module's [allow] table.
const (
	maxGrants   = 100
	maxEnvValue = 4 << 10
)

// allow reads what a module may touch.
func (t *table) allow() Allow {
	var a Allow
	for _, pattern := range t.texts("http", "https://api.example.com/*") {
		if problem := httpPatternProblem(pattern.text); problem != "" {
			shown := quote(pattern.text)
			if strings.Contains(pattern.text, "@") {
				shown = "a URL" // with a password, perhaps
			}
			t.c.add(pattern.at, CodeValue, pattern.path, pattern.path+" is "+shown+", which "+problem,
				`write scheme, host and path, as in "https://api.example.com/*" or "https://*.example.com/v1/charges"`)
			continue
		}
		a.HTTP = append(a.HTTP, pattern.text)
	}
	for _, name := range t.texts("secrets", "STRIPE_KEY") {
		if !envName(name.text) {
			t.c.add(name.at, CodeName, name.path, name.path+" is "+quote(name.text)+", which is not the name of a secret", envNameFix)
			continue
		}
		a.Secrets = append(a.Secrets, name.text)
	}
	if env := t.table("env", `{ REGION = "eu" }`); env != nil && t.few("env", len(env.n.keys)) {
		a.Env = make(map[string]string, len(env.n.keys))
		for _, name := range env.n.keys {
			if !envName(name) {
				t.c.add(env.n.keyAt[name], CodeName, env.name(name), env.name(name)+" is not the name of an environment variable", envNameFix)
				continue
			}
			value, ok := env.text(name, "eu")
			switch {
			case !ok:
			case len(value) > maxEnvValue:
				env.bad(name, CodeValue, fmt.Sprintf("is %d bytes long; at most %d are allowed", len(value), maxEnvValue), "pass it as the job's input")
			case strings.ContainsRune(value, 0):
				env.bad(name, CodeValue, "holds a NUL character, which no environment can", "")
			default:
				a.Env[name] = value
			}
		}
	}
	t.close()
	return a
}

const envNameFix = "a name has A-Z a-z 0-9 _ and does not start with a digit"

func envName(s string) bool {
	return len(s) >= 1 && len(s) <= maxName && (s[0] < '0' || s[0] > '9') &&
		strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == ""
}

// httpPatternProblem says what is wrong with a pattern of URLs. A pattern is
// scheme://host[:port]/path. The host may begin with "*." for any name below
// it; the path may end in * for any text after it. A * anywhere else would
// match what its author did not mean: https://*/ is every host there is, and
// https://api.example.com* is api.example.com.evil.net too.
func httpPatternProblem(s string) string {
	if len(s) > 1000 {
		return "is too long"
	}
	scheme, rest, ok := strings.Cut(s, "://")
	switch {
	case !ok || scheme != "https" && scheme != "http":
		return "does not start with https:// or http://"
	case strings.ContainsAny(rest, "?#"):
		return "has a query or a fragment"
	}
	authority, path, ok := strings.Cut(rest, "/")
	switch {
	case !ok:
		return "has no path"
	case strings.Contains(authority, "@"):
		return "has a user"
	case strings.Contains(strings.TrimSuffix(path, "*"), "*"):
		return "has a * before its end"
	case strings.ContainsFunc(path, func(r rune) bool { return r <= ' ' || r > '~' || r == '\\' || r == '%' }):
		return "has a path with a blank, a % or a letter outside ASCII"
	}
	for segment := range strings.SplitSeq(path, "/") {
		segment, _, _ = strings.Cut(segment, ";") // for some servers the start of a parameter
		if segment == "." || segment == ".." {
			return "has a path with . or .."
		}
	}
	host := authority
	if i := strings.LastIndexByte(authority, ':'); i >= 0 && !strings.HasSuffix(authority, "]") {
		port, err := strconv.ParseUint(authority[i+1:], 10, 16)
		if err != nil || port == 0 || authority[i+1] == '0' || authority[i+1] == '+' {
			return "has a port that is not a number from 1 to 65535"
		}
		host = authority[:i]
	}
	if strings.HasPrefix(host, "[") {
		ip, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(host, "["), "]"))
		if err != nil || !ip.Is6() || ip.Zone() != "" || !strings.HasSuffix(host, "]") {
			return "has a host that is not an IPv6 address"
		}
		return ""
	}
	name, wild := strings.CutPrefix(host, "*.")
	if _, err := netip.ParseAddr(name); wild && (err == nil || !strings.Contains(name, ".")) {
		return "allows more hosts than one domain has"
	}
	if !hostName(name) {
		return "has a host that is no name in lower case"
	}
	if u, err := url.Parse(scheme + "://" + name + "/" + path); err != nil || u.Hostname() != name {
		return "is not a URL"
	}
	return ""
}

// hostName reports whether s is a DNS name in lower case, or an IPv4 address.
// A name whose last label starts with a digit is neither: resolvers read some
// of them as addresses.
func hostName(s string) bool {
	if ip, err := netip.ParseAddr(s); err == nil {
		return ip.Is4()
	}
	if last := s[strings.LastIndexByte(s, '.')+1:]; last == "" || last[0] >= '0' && last[0] <= '9' || len(s) > 253 {
		return false
	}
	for label := range strings.SplitSeq(s, ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' ||
			strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
			return false
		}
	}
	return true
}
