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

// shop is the simulated services, in this process, as a URL: what the HTTP
// agents of a system call.
type shop struct {
	*demo.World
	url, ledger string
	closing     func() error
}

// openShop opens the services. before, which may be nil, sees each call first:
// if it answers, the services don't hear of it.
func openShop(t *testing.T, before func(http.ResponseWriter, *http.Request) (answered bool)) *shop {
	t.Helper()
	s := &shop{ledger: filepath.Join(t.TempDir(), "ledger.jsonl")}
	var err error
	if s.World, err = demo.NewWorld(s.ledger); err != nil {
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

// refundsAreDown answers the undo of a charge of tok_stuck_undo: not now. The
// services themselves say so only some times, as the demo wants it.
func refundsAreDown(w http.ResponseWriter, r *http.Request, body []byte) (answered bool) {
	if !strings.HasSuffix(r.URL.Path, "/refund") || !bytes.Contains(body, []byte(demo.CardStuckUndo)) {
		return false
	}
	http.Error(w, `{"code":"refund_unavailable","message":"refunds are down"}`, http.StatusServiceUnavailable)
	return true
}

// end ends the services, effects that are still to come included.
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
	for _, name := range demo.Services {
		// The services fail where a card asks for it, not because they are
		// down: a circuit would punish the other orders.
		started = append(started, startProcess(t, s.env(), "agent", "http", "--agent", name, "--url", shop.url+"/"+name+"/{operation}",
			"--session-timeout", shortSession, "--breaker-failures", "4000000000", "--concurrency", "128"))
	}
	for _, p := range started {
		p.await(t, "msg=started")
	}
	return started
}

// shortSession is after how long the partitions of a killed process go to
// others in these tests.
const shortSession = "3s"

// onBroker prepares a namespace of a broker that creates nothing by itself: its
// topics and workflows.
func onBroker(t *testing.T, b *kafkatest.Broker, workflowFiles ...string) *system {
	t.Helper()
	s := &system{broker: b, ns: b.Namespace(t), partitions: 6}
	create := []string{"topics", "create", "--partitions", strconv.Itoa(int(s.partitions)), "--agent-partitions", "3"}
	for _, name := range demo.Services {
		create = append(create, "--agent", name)
	}
	s.waybill(t, exitOK, create...)
	s.waybill(t, exitOK, append([]string{"workflow", "apply"}, workflowFiles...)...)
	return s
}
