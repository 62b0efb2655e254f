package call

import (
	"github.com/tetratelabs/wazero/api"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/abi/wire"
)

// http_fetch(p, n) -> length: makes an HTTP request.
//
// (p, n) is an abi.HTTPRequest as JSON; the last result is the
// abi.HTTPResponse:
//
//	{"method":"GET","url":"https://api.example.com/v1/things"}
//	{"status":200,"headers":{"Content-Type":"application/json"},"body":"[]"}
//
// Answers abi.CodeInsideStepOnly outside a step, since no attempt would get the
// same response again; abi.CodeDenied, abi.CodeLimit, abi.CodeInvalid,
// abi.CodeTimeout and abi.CodeFailed with the reason as last result.
func httpFetch(s *State, mem api.Memory, stack []uint64) {
	s.attempting(abi.FuncHTTPFetch)
	if !s.inStep {
		stack[0] = codeInsideStepOnly
		return
	}
	// Decoding copies.
	req, err := wire.DecodeHTTPRequest(s.view(mem, abi.FuncHTTPFetch, stack[0], stack[1]))
	if err != nil {
		stack[0] = s.refuse(err)
		return
	}
	s.leave()
	resp, content, err := s.caps.Fetch(s.Context, req.HTTPRequest, req.Content)
	s.enter()
	if err != nil {
		stack[0] = s.refuse(err)
		return
	}
	result, err := wire.AppendHTTPResponse(nil, resp, content)
	if err != nil {
		panic(err) // strings and numbers always encode: a mistake of this host
	}
	stack[0] = s.answer(result)
}
