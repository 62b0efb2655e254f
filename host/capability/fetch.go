package capability

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/jobrunner/runner/abi"
)

// Codes of the Failure of a refused or failed request.
const (
	CodeHTTPInvalid  = "X_HTTP_INVALID"
	CodeHTTPFailed   = "X_HTTP_FAILED"
	CodeHTTPTimeout  = "X_HTTP_TIMEOUT"
	CodeHTTPTooLarge = "X_HTTP_TOO_LARGE"
)

// hostHeaders are headers that belong to the connection, which is the host's.
var hostHeaders = map[string]bool{
	"Connection": true, "Content-Length": true, "Host": true, "Keep-Alive": true, "Proxy-Authorization": true,
	"Proxy-Connection": true, "Te": true, "Trailer": true, "Transfer-Encoding": true, "Upgrade": true,
}

// hostMethods are methods whose answer is not about a resource: a tunnel, and an
// echo of what proxies added.
var hostMethods = map[string]bool{"CONNECT": true, "TRACE": true, "TRACK": true}

// Fetch makes the request r with that body if the patterns allow it, and answers
// the response and its body; the bodies in r and in the response are not used.
// r is well-formed (package wire checks what a guest sends). Refusals:
// abi.CodeDenied, abi.CodeInvalid, abi.CodeLimit (a response that is too large),
// abi.CodeTimeout and abi.CodeFailed; their texts name the host, but neither the
// URL, which may hold a secret, nor an address of the runner's own network other
// than one that the name led to. When ctx ends, its cause.
func (s *Set) Fetch(ctx context.Context, r abi.HTTPRequest, content []byte) (abi.HTTPResponse, []byte, error) {
	u, err := url.Parse(r.URL)
	if err != nil {
		return abi.HTTPResponse{}, nil, invalid("the URL cannot be parsed", "use an absolute URL such as https://api.example.com/v1/things")
	}
	if err := s.permit(u); err != nil {
		return abi.HTTPResponse{}, nil, err
	}
	if hostMethods[strings.ToUpper(r.Method)] {
		return abi.HTTPResponse{}, nil, invalid("the method "+r.Method+" asks for a tunnel or an echo", "use another method")
	}
	timeout := s.out.cfg.Timeout
	if own := time.Duration(r.TimeoutMS) * time.Millisecond; own > 0 {
		timeout = min(timeout, own)
	}
	reqCtx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(forRequest(reqCtx), r.Method, u.String(), bytes.NewReader(content))
	if err != nil {
		return abi.HTTPResponse{}, nil, invalid("the request cannot be made", "check its method and URL")
	}
	for name, value := range r.Headers {
		if hostHeaders[http.CanonicalHeaderKey(name)] {
			return abi.HTTPResponse{}, nil, invalid("the header "+http.CanonicalHeaderKey(name)+" is the host's to set", "leave it out")
		}
		req.Header.Set(name, value)
	}
	client := http.Client{Transport: s.out.transport, CheckRedirect: s.redirect}
	resp, err := client.Do(req)
	if err != nil {
		return abi.HTTPResponse{}, nil, s.failed(ctx, u, timeout, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusSwitchingProtocols {
		// The body is the connection itself, which no context ends.
		return abi.HTTPResponse{}, nil, refused(abi.CodeFailed, CodeHTTPFailed,
			fmt.Sprintf("%s goes over to another protocol, which nobody asked for", u.Hostname()), "")
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, s.out.cfg.MaxResponse+1))
	if err != nil {
		return abi.HTTPResponse{}, nil, s.failed(ctx, u, timeout, err)
	}
	if int64(len(body)) > s.out.cfg.MaxResponse {
		return abi.HTTPResponse{}, nil, refused(abi.CodeLimit, CodeHTTPTooLarge,
			fmt.Sprintf("the response of %s has more than the %d bytes allowed", u.Hostname(), s.out.cfg.MaxResponse), "ask for less at a time, by a page or a range")
	}
	out := abi.HTTPResponse{Status: resp.StatusCode}
	if len(resp.Header) > 0 {
		out.Headers = make(map[string]string, len(resp.Header))
		for name, values := range resp.Header {
			out.Headers[name] = strings.ToValidUTF8(strings.Join(values, ", "), "\ufffd")
		}
	}
	return out, body, nil
}

// permit is why u may not be asked.
func (s *Set) permit(u *url.URL) error {
	if why := checkTarget(u); why != "" {
		return denied("the URL is refused: "+why, "use a plain absolute URL")
	}
	for _, p := range s.patterns {
		if p.allows(u) {
			return nil
		}
	}
	return denied(fmt.Sprintf("the module is not granted this URL of %s://%s", u.Scheme, u.Host), "add a pattern that covers it to the module's http in the manifest")
}

// failed is what a request came to that got no response.
func (s *Set) failed(ctx context.Context, u *url.URL, timeout time.Duration, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var private *privateAddressError
	if errors.As(err, &private) {
		return denied(private.Error(), "grant the address itself if it is meant")
	}
	var timed net.Error
	if errors.Is(err, context.DeadlineExceeded) || errors.As(err, &timed) && timed.Timeout() {
		return refused(abi.CodeTimeout, CodeHTTPTimeout, fmt.Sprintf("%s did not answer within %s", u.Hostname(), timeout), "")
	}
	return refused(abi.CodeFailed, CodeHTTPFailed, fmt.Sprintf("request to %s: %s", u.Hostname(), reason(err)), "")
}

// reason is err without the URL, the runner's own address and the address of
// its name server.
func reason(err error) string {
	var name *net.DNSError
	var op *net.OpError
	var ue *url.Error
	switch {
	case errors.As(err, &name):
		return "its name cannot be looked up: " + name.Err
	case errors.As(err, &op):
		return op.Op + ": " + op.Err.Error()
	case errors.As(err, &ue):
		return ue.Err.Error()
	}
	return err.Error()
}

func invalid(message, fix string) error {
	return refused(abi.CodeInvalid, CodeHTTPInvalid, message, fix)
}

func refused(code abi.Code, failure, message, fix string) error {
	return &abi.Refusal{Code: code, Failure: abi.Failure{Code: failure, Message: message, Fix: fix}}
}
