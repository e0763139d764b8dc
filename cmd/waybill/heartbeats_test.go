package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/waybill-run/waybill/internal/suite"
)

// slowService is an HTTP service whose operation charge takes long. It answers 202 while the work goes on, and then as
// the service behind it. It recognizes work by its idempotency key. The worker of the first attempt of each tenth order is
// dead: its call is never answered.
type slowService struct {
	behind http.Handler
	takes  time.Duration
	closed chan struct{}

	mu     sync.Mutex
	began  map[string]time.Time // by key
	asked  map[string]int       // by key
	hanged int
}

func (s *slowService) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key, request := r.Header.Get("Idempotency-Key"), r.Header.Get("X-Waybill-Request")
	if !strings.HasSuffix(r.URL.Path, "/charge") {
		s.behind.ServeHTTP(w, r)
		return
	}
	order, _, _ := strings.Cut(request, "/")
	if strings.HasSuffix(order, "0") && strings.HasSuffix(request, "/do/1") {
		s.mu.Lock()
		s.hanged++
		s.mu.Unlock()
		_, _ = io.Copy(io.Discard, r.Body) // else the server doesn't notice when the caller disconnects
		select {
		case <-r.Context().Done():
		case <-s.closed:
		}
		return
	}
	s.mu.Lock()
	s.asked[key]++
	if s.began[key].IsZero() {
		s.began[key] = time.Now()
	}
	worked := time.Since(s.began[key])
	s.mu.Unlock()
	if worked >= s.takes {
		s.behind.ServeHTTP(w, r)
		return
	}
	w.Header().Set("Retry-After", "1")
	w.WriteHeader(http.StatusAccepted)
	fmt.Fprintf(w, `{"percent":%d}`, 100*worked/s.takes)
}

func newSlowService(t *testing.T, behind http.Handler, takes time.Duration) (*slowService, string) {
	s := &slowService{behind: behind, takes: takes, closed: make(chan struct{}), began: map[string]time.Time{}, asked: map[string]int{}}
	server := httptest.NewServer(s)
	t.Cleanup(func() {
		close(s.closed)
		server.Close()
	})
	return s, server.URL
}

// TestHeartbeatsSurviveKills kills a scheduler, a supervisor and an agent with kill -9 on Apache Kafka while the calls of
// an HTTP service go on for 15 s. Another instance of the agent asks the service again, with the same key. Workers that
// are dead are found after a heartbeat, although their attempts have two minutes. verify checks the silences.
func TestHeartbeatsSurviveKills(t *testing.T) {
	suite.NeedAll(t, "processes that are started, stopped and killed")
	t.Parallel()
	const tasks = 40
	c := newCluster(t)
	s, url := newSlowService(t, c.services, 15*time.Second)
	c.apply(strings.ReplaceAll(clusterWorkflow, `operation: charge,`, `operation: charge, complete_within: 2m, heartbeat: 8s,`))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c.follow()
	c.startShop(url, 2)
	ids := c.submitNumbered(ctx, tasks)
	c.await("progress of half of the tasks", suite.Patience, func() bool { return c.reports >= tasks/2 })
	c.killFirst("agent", "scheduler", "supervisor")
	c.awaitProcessed(tasks)
	s.mu.Lock()
	hanged := s.hanged
	for key, n := range s.asked {
		if n < 3 {
			t.Errorf("%s was asked for %d times", key, n)
		}
	}
	s.mu.Unlock()
	c.mu.Lock()
	t.Logf("%d reports, %d silences; %d calls were never answered", c.reports, c.silences, hanged)
	if hanged < tasks/10 || c.silences < tasks/10 {
		t.Errorf("%d attempts fell silent, of the %d whose worker is dead", c.silences, hanged)
	}
	c.mu.Unlock()
	c.verified(ids)
}

// TestHeartbeatsSurviveUpKilled kills `up` with kill -9, with its embedded broker, and the agent, while an HTTP service
// works. Both start again, and the agent asks for the work that it had begun.
func TestHeartbeatsSurviveUpKilled(t *testing.T) {
	suite.NeedAll(t, "processes that are started, stopped and killed")
	t.Parallel()
	const definition = `workflow: long
version: 1
complete_within: 2h
steps:
  charge: {agent: slow, operation: charge, complete_within: 2m, heartbeat: 6s, retry: {max_attempts: 1000, backoff: 200ms}}
`
	done := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, `{"charge":%s}`, strconv.Quote(r.Header.Get("Idempotency-Key")))
	})
	_, url := newSlowService(t, done, 10*time.Second)
	var agent *process
	startAgent := func(u *upSystem) {
		agent = startProcess(t, u.env(), "agent", "http", "--agent", "slow", "--url", url+"/slow/{operation}", "--session-timeout", shortSession)
	}
	killAgent := func(*upSystem) { agent.kill() }
	progressed := func(u *upSystem) {
		if out := u.waybill(t, exitOK, "timeline", "long-0"); !strings.Contains(out, "step.progressed") {
			t.Errorf("no progress in the timeline:\n%s", out)
		}
	}
	(&upKill{definition: definition, orders: numberedOrders("long", 20),
		ready: startAgent, killing: killAgent, restarted: startAgent, ended: progressed}).run(t)
}
