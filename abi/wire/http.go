package wire

import (
	"encoding/base64"
	"encoding/json"
	"unicode/utf8"

	"github.com/jobrunner/runner/abi"
)

// AppendHTTPResponse appends the answer with that body as JSON: as text where
// it is UTF-8, as base64 otherwise. Body and Body64 of r are not used.
func AppendHTTPResponse(dst []byte, r abi.HTTPResponse, body []byte) ([]byte, error) {
	r.Body, r.Body64 = "", ""
	if utf8.Valid(body) {
		r.Body = string(body)
	} else {
		r.Body64 = base64.StdEncoding.EncodeToString(body)
	}
	b, err := json.Marshal(r)
	return append(dst, b...), err
}

// ReadHTTPResponse reads what AppendHTTPResponse wrote, and the body's bytes.
func ReadHTTPResponse(b []byte) (abi.HTTPResponse, []byte, error) {
	var r abi.HTTPResponse
	if err := object(b, &r, false); err != nil {
		return r, nil, err
	}
	if r.Body64 == "" {
		return r, []byte(r.Body), nil
	}
	body, err := base64.StdEncoding.DecodeString(r.Body64)
	return r, body, err
}
