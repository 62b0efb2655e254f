// Package otlptest is a collector of traces for tests: it takes what a program
// sends over OTLP in HTTP, as a real one would.
package otlptest

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	spans "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// Collector keeps the spans that it is sent. It is safe for concurrent use, and
// stops with the test.
type Collector struct {
	URL string

	server *httptest.Server

	mu       sync.Mutex
	spans    []Span
	services map[string]bool
}

// Span is one of them, with its ids as a traceparent has them.
type Span struct {
	*spans.Span
	ID, Parent, Trace string
}

// Start starts a collector.
func Start(tb testing.TB) *Collector {
	c := &Collector{services: map[string]bool{}}
	c.server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if err := c.take(r); err != nil {
			tb.Errorf("%s: %v", r.URL, err)
		}
	}))
	tb.Cleanup(c.server.Close)
	c.URL = c.server.URL
	return c
}

// Stop stops it before the test ends: what is sent from now on comes nowhere.
func (c *Collector) Stop() { c.server.Close() }

func (c *Collector) take(r *http.Request) error {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	if r.URL.Path != "/v1/traces" {
		return fmt.Errorf("no traces go there")
	}
	var req collector.ExportTraceServiceRequest
	if err := proto.Unmarshal(body, &req); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, rs := range req.ResourceSpans {
		for _, a := range rs.Resource.Attributes {
			if a.Key == "service.name" {
				c.services[a.Value.GetStringValue()] = true
			}
		}
		for _, ss := range rs.ScopeSpans {
			for _, s := range ss.Spans {
				c.spans = append(c.spans, Span{
					Span: s, ID: fmt.Sprintf("%x", s.SpanId), Parent: fmt.Sprintf("%x", s.ParentSpanId), Trace: fmt.Sprintf("%x", s.TraceId),
				})
			}
		}
	}
	return nil
}

// All are the spans that have come.
func (c *Collector) All() []Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]Span(nil), c.spans...)
}

// Named are those of that name.
func (c *Collector) Named(name string) (out []Span) {
	for _, s := range c.All() {
		if s.Name == name {
			out = append(out, s)
		}
	}
	return out
}

// Service reports whether a service of that name has sent something.
func (c *Collector) Service(name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.services[name]
}

// Attr is an attribute of the span as a text, "" for one that it has not.
func (s Span) Attr(key string) string {
	for _, a := range s.Attributes {
		if a.Key != key {
			continue
		}
		if text := a.Value.GetStringValue(); text != "" {
			return text
		}
		return fmt.Sprint(a.Value.GetIntValue())
	}
	return ""
}
