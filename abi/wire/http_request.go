package wire

import (
	"encoding/base64"
	"strings"

	"github.com/jobrunner/runner/abi"
)

// Bounds of an HTTPRequest.
const (
	// MaxHTTPBody bounds the body of a request and of a response, in bytes.
	MaxHTTPBody = 8 << 20
	maxURL      = 8 << 10
	maxHeaders  = 100
	maxHeader   = 8 << 10
	// maxHTTPArg leaves room for a body in base64 and for escapes.
	maxHTTPArg = 2 * MaxHTTPBody
)

// HTTPRequest is a checked abi.HTTPRequest: its body decoded.
type HTTPRequest struct {
	abi.HTTPRequest
	Content []byte // of Body or Body64
}

// DecodeHTTPRequest is the argument of http_fetch. The method is GET where none
// is given; the URL is absolute, http or https, without user information (which
// would end up in logs); header names and values are such that none can smuggle
// another. What breaks this is a Refusal with CodeInvalid, a body larger than
// MaxHTTPBody one with CodeLimit. Which URLs are allowed is not asked here.
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
	if len(r.Headers) > maxHeaders {
		return r, limit("", "%d headers, more than the %d allowed", len(r.Headers), maxHeaders)
	}
	for name, value := range r.Headers {
		if !token(name) || len(name) > maxHeader {
			return r, invalid("", "a header's name is no HTTP token")
		}
		if len(value) > maxHeader || strings.ContainsAny(value, "\r\n\x00") {
			return r, invalid("", "the value of header %q is too long or has a line break", clip(name, 64))
		}
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
	if len(r.Content) > MaxHTTPBody {
		return r, limit("send it in parts", "a body of %d bytes, more than the %d allowed", len(r.Content), MaxHTTPBody)
	}
	if r.TimeoutMS < 0 {
		return r, invalid("leave timeout_ms out for the host's default", "timeout_ms is %d", r.TimeoutMS)
	}
	if _, err := Duration(r.TimeoutMS); err != nil {
		return r, err
	}
	return r, nil
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
