package main

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/waybill-run/waybill/internal/demo"
	"github.com/waybill-run/waybill/internal/kafkatest"
)

// shop runs the simulated services in this process. The HTTP agents of a system call them at url.
type shop struct {
	*demo.Services
	url, ledger string
	closing     func() error
}

// openShop opens the services. before, which may be nil, handles each call first; if it answers, the services don't get
// the call.
func openShop(t *testing.T, before func(http.ResponseWriter, *http.Request) (answered bool)) *shop {
	t.Helper()
	s := &shop{ledger: filepath.Join(t.TempDir(), "ledger.jsonl")}
	var err error
	if s.Services, err = demo.OpenServices(s.ledger); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if before == nil || !before(w, r) {
			s.ServeHTTP(w, r)
		}
	}))
	s.url = server.URL
	s.closing = sync.OnceValue(func() error {
		server.Close()
		return s.Close()
	})
	t.Cleanup(func() { s.end(t) })
	return s
}

// refundsAreDown fails the undo of a charge with tok_stuck_undo. The services fail it only a few times, for the demo.
func refundsAreDown(w http.ResponseWriter, r *http.Request, body []byte) (answered bool) {
	if !strings.HasSuffix(r.URL.Path, "/refund") || !bytes.Contains(body, []byte(demo.CardStuckUndo)) {
		return false
	}
	http.Error(w, `{"code":"refund_unavailable","message":"refunds are down"}`, http.StatusServiceUnavailable)
	return true
}

// end closes the services, after effects that are still pending.
func (s *shop) end(t *testing.T) {
	t.Helper()
	if err := s.closing(); err != nil {
		t.Errorf("the services: %v", err)
	}
}

// agents starts an agent process for each service.
func (s *system) agents(t *testing.T, shop *shop) []*process {
	t.Helper()
	var started []*process
	for _, name := range demo.ServiceNames {
		// The services fail only where a card asks for it. A circuit breaker would delay the other orders, so it is
		// disabled.
		started = append(started, startProcess(t, s.env(), "agent", "http", "--agent", name, "--url", shop.url+"/"+name+"/{operation}",
			"--session-timeout", shortSession, "--breaker-failures", "4000000000", "--concurrency", "128"))
	}
	for _, p := range started {
		p.await(t, "msg=started")
	}
	return started
}

// shortSession is the session timeout: after it, partitions of a killed process are reassigned.
const shortSession = "3s"

// onBroker creates a namespace with its topics and workflows, on a broker that creates no topics by itself.
func onBroker(t *testing.T, b *kafkatest.Broker, workflowFiles ...string) *system {
	t.Helper()
	s := &system{broker: b, ns: b.Namespace(t), partitions: 6}
	create := []string{"topics", "create", "--partitions", strconv.Itoa(int(s.partitions)), "--agent-partitions", "3"}
	for _, name := range demo.ServiceNames {
		create = append(create, "--agent", name)
	}
	s.waybill(t, exitOK, create...)
	s.waybill(t, exitOK, append([]string{"workflow", "apply"}, workflowFiles...)...)
	return s
}
