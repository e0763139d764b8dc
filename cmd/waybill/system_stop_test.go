package main

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafkatest"
	"github.com/waybill-run/waybill/internal/suite"
)

// askProbe requests a readiness probe. The status is 0 if nothing listens.
func askProbe(t *testing.T, url string) (status int, text string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), suite.Patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(body)
}

// awaitProbe polls until the probe has the wanted status.
func awaitProbe(t *testing.T, url string, want int) {
	t.Helper()
	for deadline := time.Now().Add(suite.Patience); ; {
		status, text := askProbe(t, url)
		if status == want {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: %d %s, want %d", url, status, text, want)
		}
		time.Sleep(50 * time.Millisecond) // poll, as a platform does
	}
}

// TestStoppingProcessIsNotReady: a stopping console isn't ready, so load balancers stop sending to it, but it still
// serves requests. An agent isn't ready as long as its handler runs.
func TestStoppingProcessIsNotReady(t *testing.T) {
	suite.NeedAll(t, "processes that are stopped")
	broker := kafkatest.Embedded(t)
	addr := "--brokers=" + strings.Join(broker.Addrs, ",")
	if _, said, code := endsWith(t, exitOK, nil, "topics", "create", "--partitions", "2", "--agent", "mailer", addr); code != 0 {
		t.Fatal(said)
	}
	t.Run("console", func(t *testing.T) {
		p := startProcess(t, nil, "console", addr, "--listen", "127.0.0.1:0", "--data-dir", t.TempDir())
		url := "http://" + strings.TrimPrefix(strings.Fields(p.await(t, "console  "))[1], "http://")
		awaitProbe(t, url+"/readyz", http.StatusOK)
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
		awaitProbe(t, url+"/readyz", http.StatusServiceUnavailable)
		if status, text := askProbe(t, url+"/api/v1/tasks"); status != http.StatusOK {
			t.Errorf("a request while it drains: %d %s", status, text)
		}
		awaitProbe(t, url+"/readyz", http.StatusServiceUnavailable)
		awaitProbe(t, url+"/readyz", http.StatusServiceUnavailable) // after the third failed probe it exits
		p.stop(t)
	})
	t.Run("agent", func(t *testing.T) {
		called, release := make(chan struct{}), make(chan struct{})
		var once sync.Once
		service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			once.Do(func() { close(called) })
			<-release
		}))
		defer service.Close()
		p := startProcess(t, nil, "agent", "http", addr, "--agent", "mailer", "--url", service.URL+"/{operation}", "--metrics-listen", "127.0.0.1:0")
		url := strings.TrimSuffix(p.metricsURL(t), "/metrics")
		awaitProbe(t, url+"/readyz", http.StatusOK)
		request := events.Request{Task: "o-1", Ref: events.RequestRef{Step: "s", Kind: events.Do, Attempt: 1}, Token: "t", Operation: "send", CompleteBy: time.Now().Add(time.Hour), IdempotencyKey: "k", Value: []byte("{}")}
		broker.Produce(t, request.Record(events.DefaultNamespace, "test", "mailer", 0))
		<-called
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
		awaitProbe(t, url+"/readyz", http.StatusServiceUnavailable)
		if status, text := askProbe(t, url+"/healthz"); status != http.StatusOK {
			t.Errorf("it lives until its end: %d %s", status, text)
		}
		close(release)
		p.stop(t)
	})
}
