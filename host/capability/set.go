package capability

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/jobrunner/runner/abi"
)

// Config configures an Outside. The zero value is a sound default.
type Config struct {
	// Secrets looks a granted secret up. Nil has none. Its errors must not
	// contain the value.
	Secrets func(ctx context.Context, name string) (string, error)
	// MaxResponse bounds the body of an HTTP response, in bytes, after it was
	// decompressed. Default 1 MiB.
	MaxResponse int64
	// Timeout bounds one HTTP request from connecting to the last byte of the
	// answer, and is what a request without its own gets. Default 30 s.
	Timeout time.Duration
	// Resolver resolves names for HTTP requests; nil is the system's.
	Resolver *net.Resolver
}

// Outside makes the connections of every guest of a host.
type Outside struct {
	cfg       Config
	transport *http.Transport
}

// NewOutside is ready for Grant; Close it at last.
func NewOutside(c Config) *Outside {
	if c.MaxResponse <= 0 {
		c.MaxResponse = 1 << 20
	}
	if c.Timeout <= 0 {
		c.Timeout = 30 * time.Second
	}
	return newOutside(c, dialer{
		resolver: c.Resolver,
		tls:      &tls.Config{NextProtos: []string{"h2", "http/1.1"}},
		timeout:  connectTimeout,
	})
}

func newOutside(c Config, d dialer) *Outside {
	return &Outside{cfg: c, transport: &http.Transport{
		Proxy:                  nil, // see the package's comment
		DialContext:            d.DialContext,
		DialTLSContext:         d.DialTLSContext,
		ForceAttemptHTTP2:      true,
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingAfter},
		MaxIdleConns:           100,
		IdleConnTimeout:        90 * time.Second,
		MaxResponseHeaderBytes: 64 << 10,
	}}
}

// pingAfter is after how long of silence a connection that requests share is
// asked whether it still works, and how long it may take to say so. One that
// died without a word would swallow every request to its host.
const pingAfter = 15 * time.Second

// Close closes idle connections.
func (o *Outside) Close() { o.transport.CloseIdleConnections() }

// Set is what one module may touch. It is safe for concurrent use and never
// changes.
type Set struct {
	out      *Outside
	patterns []pattern
	secrets  []string
	environ  []string
}

// Grant checks grants and makes them a Set. A grant that means nothing is an
// *abi.Error with CodeGrantInvalid.
func (o *Outside) Grant(g Grants) (*Set, error) {
	if err := g.check(); err != nil {
		return nil, err
	}
	s := &Set{out: o, secrets: slices.Clone(g.Secrets), environ: g.environ()}
	for _, text := range g.HTTP {
		p, err := parsePattern(text)
		if err != nil {
			return nil, err
		}
		s.patterns = append(s.patterns, p)
	}
	return s, nil
}

// Features are the bits of what was granted.
func (s *Set) Features() abi.Features {
	var f abi.Features
	if len(s.patterns) > 0 {
		f |= abi.FeatureHTTP
	}
	if len(s.secrets) > 0 {
		f |= abi.FeatureSecret
	}
	return f
}

// Environ are the granted variables as "name=value", sorted by name.
func (s *Set) Environ() []string { return s.environ }

// CodeSecretMissing: a granted secret has no value.
const CodeSecretMissing = "X_SECRET_MISSING"

// Secret is the value of a granted secret. What was not granted is a Refusal
// with abi.CodeDenied, what has no value one with abi.CodeFailed.
func (s *Set) Secret(ctx context.Context, name string) (string, error) {
	if !slices.Contains(s.secrets, name) {
		return "", denied(fmt.Sprintf("the module is not granted the secret %s", strconv.Quote(name)), "add it to the module's secrets in the manifest")
	}
	if s.out.cfg.Secrets == nil {
		return "", missing(name)
	}
	v, err := s.out.cfg.Secrets(ctx, name)
	switch {
	case ctx.Err() != nil:
		return "", context.Cause(ctx)
	case err != nil, v == "":
		return "", missing(name)
	}
	return v, nil
}

func missing(name string) error {
	return &abi.Refusal{Code: abi.CodeFailed, Failure: abi.Failure{
		Code: CodeSecretMissing, Message: fmt.Sprintf("the secret %s has no value on this runner", strconv.Quote(name)), Fix: "set it where the runner reads its secrets",
	}}
}

// CodeDenied: a guest asked for what it was not granted.
const CodeDenied = "X_DENIED"

func denied(message, fix string) error {
	return &abi.Refusal{Code: abi.CodeDenied, Failure: abi.Failure{Kind: abi.FailTerminal, Code: CodeDenied, Message: message, Fix: fix}}
}
