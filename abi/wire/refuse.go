package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/jobrunner/runner/abi"
)

// Codes of the Failure in a Refusal of this package.
const (
	CodeLimitExceeded  = "X_LIMIT_EXCEEDED"
	CodeRequestInvalid = "X_REQUEST_INVALID"
)

func violation(fn, format string, args ...any) error {
	return &abi.Violation{Func: fn, Detail: fmt.Sprintf(format, args...)}
}

// limit refuses something that is too large or too many. A guest that does not
// handle it fails for good, since a retry sends the same.
func limit(fix, format string, args ...any) error {
	return &abi.Refusal{Code: abi.CodeLimit, Failure: abi.Failure{
		Kind: abi.FailTerminal, Code: CodeLimitExceeded, Message: fmt.Sprintf(format, args...), Fix: fix,
	}}
}

func invalid(fix, format string, args ...any) error {
	return &abi.Refusal{Code: abi.CodeInvalid, Failure: abi.Failure{
		Kind: abi.FailTerminal, Code: CodeRequestInvalid, Message: fmt.Sprintf(format, args...), Fix: fix,
	}}
}

// JSON checks a JSON argument of at most max bytes. What is too large is a
// Refusal with CodeLimit; what is not strict JSON (see CheckJSON) a Violation
// of fn. what names the argument in the messages, as in "the output".
func JSON(fn, what string, b []byte, max int) error { return envelope(fn, what, b, max, 0) }

// envelope is JSON of a text whose values lie so many levels deep.
func envelope(fn, what string, b []byte, max, around int) error {
	err := checkJSON(b, max, around)
	if err == nil {
		return nil
	}
	var je *JSONError
	if errors.As(err, &je) && je.Problem == JSONTooLarge {
		return limit("store the data elsewhere and pass a reference to it",
			"%s has %d bytes, more than the %d allowed", what, len(b), max)
	}
	return violation(fn, "%s is not strict JSON: %v", what, err)
}

var errNotObject = errors.New("it is not an object")

// object decodes b into v, but takes only an object: encoding/json would let
// null pass and leave v as it is. With strict, unknown fields are an error.
func object(b []byte, v any, strict bool) error {
	if trimmed := bytes.TrimLeft(b, " \t\r\n"); len(trimmed) == 0 || trimmed[0] != '{' {
		return errNotObject
	}
	if !strict {
		return json.Unmarshal(b, v)
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	return dec.Decode(v)
}

// badShape turns an error of encoding/json about a text that is valid JSON into
// a Refusal that names what does not fit.
func badShape(what string, err error) error {
	msg := strings.TrimPrefix(err.Error(), "json: ")
	return invalid("compare it with the field names and types of the ABI", "%s: %s", what, msg)
}
