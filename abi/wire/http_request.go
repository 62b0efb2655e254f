package wire

import (
	"encoding/base64"
	"strings"

	"github.com/jobrunner/runner/abi"
)

// Bounds of an HTTPRequest.
const (
	maxHTTPBody = 8 << 20 // bytes, decoded
	maxURL      = 8 << 10 // bytes
	maxHeaders  = 100
	maxHeader   = 8 << 10 // bytes of a name or of a value
	// maxHTTPArg leaves room for a body in base64 and for escapes.
	maxHTTPArg = 2 * maxHTTPBody
)

// HTTPRequest is a checked abi.HTTPRequest: its body decoded.
type HTTPRequest struct {
	abi.HTTPRequest
	Content []byte // of Body or Body64
}

// DecodeHTTPRequest is the argument of http_fetch. The method is GET where none
// is given; the URL is absolute, http or https, without user information (which
// would end up in logs); header names and values are such that none can smuggle
// another, and no name is there twice in two spellings. What breaks this is a Refusal with CodeInvalid, a body larger than
// maxHTTPBody one with CodeLimit. Which URLs are allowed is not asked here.
func DecodeHTTPRequest(b []byte) (HTTPRequest, error) {
	var r HTTPRequest
	if err := JSON(abi.FuncHTTPFetch, "the request", b, maxHTTPArg); err != nil {
		return r, err
	}
	if err := object(b, &r.HTTPRequest, true); err != nil {
		return r, badShape("the request", err)
	}
	if r.Method == "" {
		r.Method = "GET"
	}
	if !token(r.Method) || len(r.Method) > 32 {
		return r, invalid("use GET, POST, …", "the method is no HTTP token")
	}
	if err := checkURL(r.URL); err != nil {
		return r, err
	}
	if err := checkHeaders(r.Headers); err != nil {
		return r, err
	}
	switch {
	case r.Body != "" && r.Body64 != "":
		return r, invalid("pass one of the two", "both body and body64 are given")
	case r.Body64 != "":
		var err error
		if r.Content, err = base64.StdEncoding.DecodeString(r.Body64); err != nil {
			return r, invalid("use standard base64 with padding", "body64 is not base64")
		}
	case r.Body != "":
		r.Content = []byte(r.Body)
	}
	if len(r.Content) > maxHTTPBody {
		return r, limit("send it in parts", "a body of %d bytes, more than the %d allowed", len(r.Content), maxHTTPBody)
	}
	if r.TimeoutMS < 0 {
		return r, invalid("leave timeout_ms out for the host's default", "timeout_ms is %d", r.TimeoutMS)
	}
	if _, err := Duration(r.TimeoutMS); err != nil {
		return r, err
	}
	return r, nil
}

func checkHeaders(headers map[string]string) error {
	if len(headers) > maxHeaders {
		return limit("send the data in the body", "%d headers, more than the %d allowed", len(headers), maxHeaders)
	}
	seen := make(map[string]bool, len(headers))
	for name, value := range headers {
		if !token(name) || len(name) > maxHeader {
			return invalid("use letters, digits and hyphens", "a header's name is no HTTP token")
		}
		if seen[strings.ToLower(name)] {
			return invalid("join the values with a comma", "the header %q is there twice", clip(strings.ToLower(name), 64))
		}
		seen[strings.ToLower(name)] = true
		if len(value) > maxHeader {
			return limit("send the data in the body", "the value of header %q has %d bytes, more than the %d allowed", clip(name, 64), len(value), maxHeader)
		}
		if strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
			return invalid("send it in the body, or encode it", "the value of header %q has a line break or another control character", clip(name, 64))
		}
	}
	return nil
}

// checkURL looks at a URL's outline. Whoever dials parses it: package net/url is
// not used here, since it brings net/netip into every guest, and with it a
// goroutine that would end up in the guest's image.
//
// The text of a URL may hold secrets, so no message repeats it.
func checkURL(s string) error {
	const fix = "use an absolute URL such as https://api.example.com/v1/things"
	if len(s) > maxURL {
		return limit("send the data in the body", "a URL of %d bytes, more than the %d allowed", len(s), maxURL)
	}
	for i := range len(s) {
		if s[i] <= ' ' || s[i] == 0x7f || s[i] == '\\' {
			return invalid("escape it with %", "the URL has a space, a backslash or a control character at byte %d", i)
		}
	}
	scheme, rest, ok := strings.Cut(s, "://")
	if !ok || !strings.EqualFold(scheme, "http") && !strings.EqualFold(scheme, "https") {
		return invalid(fix, "the URL's scheme is neither http nor https")
	}
	authority := rest
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		authority = rest[:i]
	}
	switch {
	case strings.Contains(authority, "@"):
		return invalid("send an Authorization header", "the URL has a user name or password in it")
	case authority == "" || authority[0] == ':':
		return invalid(fix, "the URL has no host")
	}
	return nil
}

// token reports whether s is a token of RFC 9110.
func token(s string) bool {
	for i := range len(s) {
		ch := s[i]
		if ch-'0' > 9 && (ch|0x20)-'a' > 25 && !strings.ContainsRune("!#$%&'*+-.^_`|~", rune(ch)) {
			return false
		}
	}
	return s != ""
}
