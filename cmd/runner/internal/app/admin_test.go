package app

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/jobrunner/runner/abi"
)

func TestAdminTellsAliveFromReady(t *testing.T) {
	var reasons []string
	reg := prometheus.NewRegistry()
	reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "a_gauge"}, func() float64 { return 7 }))
	a, err := startAdmin(adminParams{
		Addr: "127.0.0.1:0", Gather: reg, Logger: slog.New(slog.DiscardHandler),
		Ready: func(context.Context) []string { return reasons },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer a.close()
	get := func(path string) (int, string) {
		t.Helper()
		resp, err := http.Get("http://" + a.addr() + path)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(b)
	}
	expect := func(path string, status int, text string) {
		t.Helper()
		if s, b := get(path); s != status || !strings.Contains(b, text) {
			t.Errorf("%s: %d %s; want %d with %q", path, s, b, status, text)
		}
	}
	expect("/healthz", 200, "alive")
	expect("/readyz", 200, `"ready"`)
	expect("/metrics", 200, "a_gauge 7")
	reasons = []string{"draining"}
	expect("/healthz", 200, "alive")
	expect("/readyz", 503, "draining")
	expect("/", 404, "")
}

func TestAdminSaysWhichAddressIsTaken(t *testing.T) {
	p := adminParams{Addr: "127.0.0.1:0", Gather: prometheus.NewRegistry(), Logger: slog.New(slog.DiscardHandler)}
	a, err := startAdmin(p)
	if err != nil {
		t.Fatal(err)
	}
	defer a.close()
	p.Addr = a.addr()
	_, err = startAdmin(p)
	if abi.CodeOf(err) != CodeListen || !strings.Contains(err.Error(), a.addr()) {
		t.Errorf("second listener: %v", err)
	}
}
