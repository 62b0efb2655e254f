package capability

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/jobrunner/runner/abi"
)

// raw is a server that leaves each connection to serve, and closes it then. It
// answers its URL.
func raw(t *testing.T, serve func(c net.Conn, r *bufio.Reader)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				serve(c, bufio.NewReader(c))
			}()
		}
	}()
	return "http://" + l.Addr().String()
}

// request reads a request without a body.
func request(r *bufio.Reader) (head string, err error) {
	for {
		line, err := r.ReadString('\n')
		if head += line; err != nil || line == "\r\n" {
			return head, err
		}
	}
}

// endless writes head and then tail until the other side has enough.
func endless(head, tail string) func(net.Conn, *bufio.Reader) {
	return func(c net.Conn, r *bufio.Reader) {
		if _, err := request(r); err != nil {
			return
		}
		for text := head; ; text = tail {
			if _, err := io.WriteString(c, text); err != nil {
				return
			}
		}
	}
}

// silent writes head and then nothing, and leaves the connection open.
func silent(head string) func(net.Conn, *bufio.Reader) {
	return func(c net.Conn, r *bufio.Reader) {
		_, _ = request(r)
		_, _ = io.WriteString(c, head)
		_, _ = io.Copy(io.Discard, r) // until the other side hangs up
	}
}

func gzipped(content []byte) string {
	var b bytes.Buffer
	w, _ := gzip.NewWriterLevel(&b, gzip.BestCompression)
	_, _ = w.Write(content)
	_ = w.Close() // in memory
	return b.String()
}

const chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"

// Whatever a server does, a request ends, with bounded memory and for a reason.
func TestWhatServersDoToHarm(t *testing.T) {
	bomb := gzipped(make([]byte, 64<<20))
	for name, c := range map[string]struct {
		serve   func(net.Conn, *bufio.Reader)
		code    abi.Code
		failure string
		says    string
	}{
		"a status line that never comes":     {silent(""), abi.CodeTimeout, CodeHTTPTimeout, "did not answer within"},
		"headers that never end":             {silent("HTTP/1.1 200 OK\r\nA: b\r\n"), abi.CodeTimeout, CodeHTTPTimeout, "did not answer within"},
		"a body that stops":                  {silent("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nslow"), abi.CodeTimeout, CodeHTTPTimeout, "did not answer within"},
		"a chunk that stops":                 {silent(chunked + "ff\r\nslow"), abi.CodeTimeout, CodeHTTPTimeout, "did not answer within"},
		"another protocol":                   {silent("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n"), abi.CodeFailed, CodeHTTPFailed, "goes over to another protocol"},
		"empty compressed members for ever":  {endless("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n", gzipped(nil)), abi.CodeTimeout, CodeHTTPTimeout, "did not answer within"},
		"an endless body":                    {endless("HTTP/1.1 200 OK\r\n\r\n", strings.Repeat("x", 4096)), abi.CodeLimit, CodeHTTPTooLarge, "more than the 4096 bytes allowed"},
		"endless chunks":                     {endless(chunked, "1\r\nx\r\n"), abi.CodeLimit, CodeHTTPTooLarge, "more than the 4096 bytes allowed"},
		"a body larger than it says":         {endless("HTTP/1.1 200 OK\r\nContent-Length: 9223372036854775807\r\n\r\n", "x"), abi.CodeLimit, CodeHTTPTooLarge, "more than the 4096 bytes allowed"},
		"a decompression bomb":               {endless(fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%s", len(bomb), bomb), "x"), abi.CodeLimit, CodeHTTPTooLarge, "more than the 4096 bytes allowed"},
		"one endless header":                 {endless("HTTP/1.1 200 OK\r\nA: ", strings.Repeat("x", 4096)), abi.CodeFailed, CodeHTTPFailed, "headers exceeded 65536 bytes"},
		"endlessly many headers":             {endless("HTTP/1.1 200 OK\r\n", "A: b\r\n"), abi.CodeFailed, CodeHTTPFailed, "headers exceeded 65536 bytes"},
		"endless early hints":                {endless("", "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"), abi.CodeFailed, CodeHTTPFailed, "headers exceeded 65536 bytes"},
		"endless chunk extensions":           {endless(chunked, "1;"+strings.Repeat("x", 1000)+"\r\nx\r\n"), abi.CodeFailed, CodeHTTPFailed, "too much non-data"},
		"endless trailers":                   {endless(chunked+"0\r\n", "A: b\r\n"), abi.CodeFailed, CodeHTTPFailed, "suspiciously long trailer"},
		"a negative length":                  {silent("HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n"), abi.CodeFailed, CodeHTTPFailed, "Content-Length"},
		"two lengths":                        {silent("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n12"), abi.CodeFailed, CodeHTTPFailed, "Content-Length"},
		"no HTTP":                            {endless("SSH-2.0-OpenSSH_9.9\r\n", "x"), abi.CodeFailed, CodeHTTPFailed, "malformed HTTP"},
		"compressed text that is none":       {silent("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 20\r\n\r\nthis is not gzipped."), abi.CodeFailed, CodeHTTPFailed, "gzip"},
		"a redirect to what cannot be read":  {silent("HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: http://[::1\r\n\r\n"), abi.CodeFailed, CodeHTTPFailed, "Location"},
		"a header that smuggles a line feed": {silent("HTTP/1.1 200 OK\r\nA: b\x00c\r\nContent-Length: 0\r\n\r\n"), abi.CodeFailed, CodeHTTPFailed, "malformed"},
	} {
		t.Run(name, func(t *testing.T) {
			url := raw(t, c.serve)
			s := grant(t, Config{MaxResponse: 4096}, Grants{HTTP: []string{url + "/*"}})
			req := get(url + "/?token=sesame")
			if c.code == abi.CodeTimeout { // others end by themselves
				req.TimeoutMS = 100
			}
			resp, body, err := s.Fetch(t.Context(), req, nil)
			var r *abi.Refusal
			if !errors.As(err, &r) || r.Code != c.code || r.Failure.Code != c.failure || !strings.Contains(r.Failure.Message, c.says) {
				t.Errorf("%+v %.100q, %v", resp, body, err)
			}
			if err != nil && strings.Contains(err.Error(), "sesame") {
				t.Errorf("the refusal repeats the query: %v", err)
			}
		})
	}
}

// What a guest gets as a header is text, one value a name.
func TestHeadersOfAnswersAreText(t *testing.T) {
	url := raw(t, silent("HTTP/1.1 200 OK\r\nX-Bytes: caf\xe9\r\nSet-Cookie: a=1\r\nset-cookie: b=2\r\nContent-Length: 2\r\n\r\nok"))
	s := grant(t, Config{}, Grants{HTTP: []string{url + "/*"}})
	resp, body, err := s.Fetch(t.Context(), get(url+"/"), nil)
	if err != nil || string(body) != "ok" || resp.Headers["X-Bytes"] != "caf\ufffd" || resp.Headers["Set-Cookie"] != "a=1, b=2" {
		t.Errorf("%+v %q, %v", resp, body, err)
	}
}

// A guest's request is one request, whatever its parts hold. What package wire
// lets through besides is refused before anything is sent.
func TestNothingOfARequestBecomesAnother(t *testing.T) {
	heads := make(chan string, 1)
	url := raw(t, func(c net.Conn, r *bufio.Reader) {
		head, _ := request(r)
		rest := make([]byte, r.Buffered())
		_, _ = io.ReadFull(r, rest) // it is buffered
		heads <- head + string(rest)
		_, _ = io.WriteString(c, "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
	})
	s := grant(t, Config{}, Grants{HTTP: []string{url + "/*"}})
	const smuggled = "\r\nX: y\r\n\r\nGET /admin HTTP/1.1\r\n\r\n"
	for name, r := range map[string]abi.HTTPRequest{
		"value":  {Method: "GET", URL: url + "/", Headers: map[string]string{"A": "b" + smuggled}},
		"name":   {Method: "GET", URL: url + "/", Headers: map[string]string{"A: b" + smuggled: "c"}},
		"method": {Method: "GET / HTTP/1.1" + smuggled, URL: url + "/"},
		"URL":    {Method: "GET", URL: url + "/" + smuggled},
		"tunnel": {Method: "connect", URL: url},
		"echo":   {Method: "TRACE", URL: url + "/"},
	} {
		if resp, _, err := s.Fetch(t.Context(), r, nil); err == nil {
			t.Errorf("%s: answered %+v to %q", name, resp, <-heads)
		}
	}
	// Escaped it stays where it was put.
	if _, _, err := s.Fetch(t.Context(), get(url+"/%0d%0aX:%20y?q=%0d%0a"), nil); err != nil {
		t.Fatal(err)
	}
	if head := <-heads; !strings.HasPrefix(head, "GET /%0d%0aX:%20y?q=%0d%0a HTTP/1.1\r\n") || strings.Count(head, "\r\n\r\n") != 1 {
		t.Errorf("sent %q", head)
	}
}
