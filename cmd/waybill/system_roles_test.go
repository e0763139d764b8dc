package main

import (
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/waybill-run/waybill/internal/demo"
	"github.com/waybill-run/waybill/internal/kafkatest"
)

// shop is the simulated services, in this process, as a URL: what the HTTP
// agents of a system call.
type shop struct {
	*demo.World
	url, ledger string
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
	t.Cleanup(func() {
		server.Close()
		if err := s.Close(); err != nil {
			t.Errorf("the services: %v", err)
		}
	})
	return s
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
// topics and a workflow.
func onBroker(t *testing.T, b *kafkatest.Broker, workflowFile string) *system {
	t.Helper()
	s := &system{broker: b, ns: b.Namespace(t), partitions: 6}
	create := []string{"topics", "create", "--partitions", strconv.Itoa(int(s.partitions)), "--agent-partitions", "3"}
	for _, name := range demo.Services {
		create = append(create, "--agent", name)
	}
	s.waybill(t, exitOK, create...)
	s.waybill(t, exitOK, "workflow", "apply", workflowFile)
	return s
}
