package instance

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/waybill-run/waybill/internal/suite"
)

// If the metrics listener breaks, the metrics are served again at the same address. Nothing panics.
func TestMetricsListenerThatBreaksIsReplaced(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		NewMetrics().serveUntilDone(ctx, l, slog.New(slog.NewTextHandler(&log, nil)))
	}()
	scrape := func() bool {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+l.Addr().String()+"/metrics", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		return err == nil && strings.Contains(string(body), "go_goroutines")
	}
	until := func(what string) {
		t.Helper()
		deadline := time.After(suite.Patience)
		for tick := time.NewTicker(20 * time.Millisecond); !scrape(); {
			select {
			case <-tick.C:
			case <-deadline:
				t.Fatal(what)
			}
		}
	}
	until("the metrics are not served")
	if err := l.Close(); err != nil { // as the operating system might
		t.Fatal(err)
	}
	until("the metrics are not served again")
	cancel()
	<-ended
	if !strings.Contains(log.String(), "opened again") {
		t.Errorf("nothing was said of it: %q", log.String())
	}
}
