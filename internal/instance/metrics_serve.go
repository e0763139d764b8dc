package instance

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/waybill-run/waybill/internal/backoff"
)

// Bounds of the wait before a failed listener is opened again. The wait doubles.
const (
	reopenWaitMin = 100 * time.Millisecond
	reopenWaitMax = 30 * time.Second
)

// Serve serves the metrics until ctx ends. It returns once it listens. A listener that fails later is opened again
// at the same address: tasks don't depend on it.
func (m *Metrics) Serve(ctx context.Context, addr string, log *slog.Logger) (net.Addr, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("--metrics-listen %s: %w; give another, port 0 for any", addr, err)
	}
	go m.serveUntilDone(ctx, l, log)
	return l.Addr(), nil
}

// serveUntilDone serves until ctx ends.
func (m *Metrics) serveUntilDone(ctx context.Context, l net.Listener, log *slog.Logger) {
	mux := http.NewServeMux()
	m.health.mount(mux)
	mux.Handle("GET /metrics", promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{}))
	s := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	stop := context.AfterFunc(ctx, func() { _ = s.Close() }) // scrapes in flight may fail: the process ends
	defer stop()
	addr := l.Addr().String()
	for wait := reopenWaitMin; ; wait = min(2*wait, reopenWaitMax) {
		err := s.Serve(l)
		if errors.Is(err, http.ErrServerClosed) {
			return
		}
		log.Error("metrics listener failed; it is opened again", "listen", addr, "error", err, "wait", wait)
		_ = l.Close()
		if l = reopenListener(ctx, addr, wait, log); l == nil {
			return
		}
	}
}

// reopenListener listens at an address after a wait, and retries until it succeeds; nil: ctx has ended.
func reopenListener(ctx context.Context, addr string, wait time.Duration, log *slog.Logger) net.Listener {
	for ; ; wait = min(2*wait, reopenWaitMax) {
		if backoff.Sleep(ctx, wait) != nil {
			return nil
		}
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
		if err == nil {
			return l
		}
		log.Error("metrics listener can't be opened", "listen", addr, "error", err)
	}
}
