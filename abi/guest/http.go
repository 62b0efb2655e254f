package guest

import (
	"encoding/base64"
	"encoding/json"
	"time"
	"unicode/utf8"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/abi/wire"
)

// Request is an HTTP request that the host makes for a handler.
type Request struct {
	Method  string // GET if empty
	URL     string // absolute
	Header  map[string]string
	Body    []byte
	Timeout time.Duration // the host's default if 0
}

// Response is the answer to a Request, whatever its status. Header has one
// value for each name, several joined by ", ".
type Response struct {
	Status int
	Header map[string]string
	Body   []byte
}

// JSON decodes the body.
func (r Response) JSON(into any) error { return json.Unmarshal(r.Body, into) }

// HTTP makes a request. It is legal inside a step only (ErrInsideStepOnly), and
// to where the manifest allows (ErrDenied). Getting no answer is ErrFailed or
// ErrTimeout; returned from the step's body, these are tried again. For
// net/http, see package guesthttp.
func (c *Ctx) HTTP(r Request) (Response, error) {
	req := abi.HTTPRequest{Method: r.Method, URL: r.URL, Headers: r.Header, TimeoutMS: wire.Millis(r.Timeout)}
	if req.Method == "" {
		req.Method = "GET"
	}
	if utf8.Valid(r.Body) {
		req.Body = string(r.Body)
	} else {
		req.Body64 = base64.StdEncoding.EncodeToString(r.Body)
	}
	b, err := encode("the request", req)
	if err != nil {
		return Response{}, err
	}
	n := c.h.HTTPFetch(b)
	if n < 0 {
		return Response{}, c.refused(abi.FuncHTTPFetch, n)
	}
	res, body, err := wire.ReadHTTPResponse(c.result(n))
	if err != nil {
		return Response{}, err
	}
	return Response{Status: res.Status, Header: res.Headers, Body: body}, nil
}
