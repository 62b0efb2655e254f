// Package guesthttp is a http.RoundTripper over a handler's Ctx, for code that
// wants a *http.Client. It is apart from package guest because net/http adds
// several megabytes to a module; Ctx.HTTP does without.
package guesthttp

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/jobrunner/runner/abi/guest"
)

// Client is a client over Transport. Redirects are followed, each as a request
// that must be granted by itself.
func Client(ctx *guest.Ctx) *http.Client { return &http.Client{Transport: Transport{Ctx: ctx}} }

// Transport makes requests through the host. They are legal inside a step only,
// and to where the manifest allows; the errors are those of Ctx.HTTP. Bodies
// are held in memory as a whole. It is for the handler's goroutine.
type Transport struct {
	Ctx *guest.Ctx
	// Timeout of a request whose context has no deadline; the host's if 0.
	Timeout time.Duration
}

// RoundTrip implements http.RoundTripper.
func (t Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	req := guest.Request{Method: r.Method, URL: r.URL.String(), Header: map[string]string{}, Timeout: t.Timeout}
	if d, ok := r.Context().Deadline(); ok {
		if req.Timeout = time.Until(d); req.Timeout <= 0 {
			return nil, errors.Join(r.Context().Err(), guest.ErrTimeout)
		}
	}
	for name, values := range r.Header {
		req.Header[name] = strings.Join(values, ", ")
	}
	if r.Body != nil {
		b, err := io.ReadAll(r.Body)
		_ = r.Body.Close() // it has been read
		if err != nil {
			return nil, err
		}
		req.Body = b
	}
	res, err := t.Ctx.HTTP(req)
	if err != nil {
		return nil, err
	}
	header := http.Header{}
	for name, value := range res.Header {
		header.Set(name, value)
	}
	return &http.Response{
		Status: strconv.Itoa(res.Status) + " " + http.StatusText(res.Status), StatusCode: res.Status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: header, Body: io.NopCloser(bytes.NewReader(res.Body)), ContentLength: int64(len(res.Body)), Request: r,
	}, nil
}
