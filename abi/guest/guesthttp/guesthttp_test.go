package guesthttp_test

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/jobrunner/runner/abi/guest"
	"github.com/jobrunner/runner/abi/guest/guesthttp"
	"github.com/jobrunner/runner/abi/guest/guesttest"
)

func TestClientGoesThroughTheHost(t *testing.T) {
	guest.Job("http", func(c *guest.Ctx, _ int) (string, error) {
		return guest.Step(c, "call", func() (string, error) {
			res, err := guesthttp.Client(c).Post("https://api.example.com/v1", "text/plain", strings.NewReader("ping"))
			if err != nil {
				return "", err
			}
			defer res.Body.Close()
			b, err := io.ReadAll(res.Body)
			return res.Header.Get("X-Answer") + string(b), err
		})
	})
	var urls []string
	r := guesttest.Run(t, "http", 1, guesttest.Options{HTTP: func(r guest.Request) (guest.Response, error) {
		urls = append(urls, r.Method+" "+r.URL+" "+r.Header["Content-Type"]+" "+string(r.Body))
		return guest.Response{Status: 200, Header: map[string]string{"X-Answer": "yes "}, Body: []byte("pong")}, nil
	}})
	if string(r.Output) != `"yes pong"` || len(urls) != 1 || urls[0] != "POST https://api.example.com/v1 text/plain ping" {
		t.Errorf("%s, %v, %q", r.Output, r.Err, urls)
	}
}

func TestRefusalsComeThrough(t *testing.T) {
	guest.Job("denied", func(c *guest.Ctx, _ int) (bool, error) {
		return guest.Step(c, "call", func() (bool, error) {
			_, err := guesthttp.Client(c).Get("https://api.example.com/")
			return errors.Is(err, guest.ErrDenied), nil
		})
	})
	if r := guesttest.Run(t, "denied", 1, guesttest.Options{}); string(r.Output) != "true" {
		t.Errorf("%s, %v", r.Output, r.Err)
	}
}
