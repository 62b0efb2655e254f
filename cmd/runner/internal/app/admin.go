package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/jobrunner/runner/abi"
)

// CodeListen says that the admin address could not be taken.
const CodeListen = "X_LISTEN_FAILED"

// readyTimeout bounds one readiness check, in case the store hangs.
const readyTimeout = 2 * time.Second

// maxConns is how many connections the admin server has at a time. More wait to be
// accepted: whoever opens them without end must not take the files that runs need.
const maxConns = 128

// admin serves /healthz, /readyz and /metrics. It carries no data of runs, and
// still belongs on an address that only operators reach.
type admin struct {
	server   *http.Server
	listener net.Listener
	done     chan struct{}
}

// adminParams are what an admin server shows.
type adminParams struct {
	Addr   string
	Gather prometheus.Gatherer
	Ready  func(ctx context.Context) []string // reasons why not; none is ready
	Logger *slog.Logger
}

// startAdmin listens and serves until close. Errors: X_LISTEN_FAILED.
func startAdmin(p adminParams) (*admin, error) {
	l, err := net.Listen("tcp", p.Addr)
	if err != nil {
		return nil, &abi.Error{
			Code:    CodeListen,
			Message: fmt.Sprintf("cannot listen on %s: %v", p.Addr, err),
			Fix:     "give --listen another address, or port 0 for any free one",
			Err:     err,
		}
	}
	a := &admin{
		listener: l,
		done:     make(chan struct{}),
		server: &http.Server{
			Handler:           adminHandler(p),
			ReadHeaderTimeout: 5 * time.Second,
			ReadTimeout:       10 * time.Second,
			WriteTimeout:      30 * time.Second,
			IdleTimeout:       time.Minute,
			MaxHeaderBytes:    16 << 10,
			ErrorLog:          slog.NewLogLogger(p.Logger.Handler(), slog.LevelDebug),
		},
	}
	go func() {
		defer close(a.done)
		if err := a.server.Serve(bounded(l, maxConns)); !errors.Is(err, http.ErrServerClosed) {
			p.Logger.Error("admin.stopped", "error", err)
		}
	}()
	return a, nil
}

func (a *admin) addr() string { return a.listener.Addr().String() }

func (a *admin) close() {
	_ = a.server.Close()
	<-a.done
}

func adminHandler(p adminParams) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, map[string]any{"status": "alive"})
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), readyTimeout)
		defer cancel()
		if reasons := p.Ready(ctx); len(reasons) > 0 {
			answer(w, http.StatusServiceUnavailable, map[string]any{"status": "not ready", "reasons": reasons})
			return
		}
		answer(w, http.StatusOK, map[string]any{"status": "ready"})
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(p.Gather, promhttp.HandlerOpts{
		ErrorLog:      metricsLog{p.Logger},
		ErrorHandling: promhttp.ContinueOnError, // what cannot be had is for the log, not for whoever asks
	}))
	return mux
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}
