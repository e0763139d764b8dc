package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka/kafkaadmin"
	"github.com/waybill-run/waybill/internal/suite"
)

// readAll reads a topic with a client of its own.
func (c *cluster) readAll(topic string) []events.Record {
	c.t.Helper()
	admin, err := kafkaadmin.Open(c.cfg)
	if err != nil {
		c.t.Fatal(err)
	}
	defer admin.Close()
	var all []events.Record
	if err := admin.ReadCompacted(c.t.Context(), topic, func(r events.Record) error {
		all = append(all, r)
		return nil
	}); err != nil {
		c.t.Fatal(err)
	}
	return all
}

// stopped waits until the kernel reports every thread of a process as stopped. A thread that still runs could answer in
// time.
func stopped(t *testing.T, pid int) {
	t.Helper()
	for deadline := time.Now().Add(suite.Patience); ; {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
		if err != nil || len(threads) == 0 {
			t.Fatalf("process %d has %d threads, %v", pid, len(threads), err)
		}
		running := ""
		for _, file := range threads {
			stat, err := os.ReadFile(file)
			if err != nil {
				continue // the thread has ended
			}
			if _, rest, ok := strings.Cut(string(stat), ") "); !ok || rest[0] != 'T' {
				running = string(stat)
			}
		}
		if running == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("process %d is not stopped: %s", pid, running)
		}
	}
}

// sharedAgents starts the workflow's agent in three processes. The service of the first one is behind front.
func sharedAgents(t *testing.T, front http.Handler, session time.Duration) *cluster {
	c := newCluster(t)
	c.apply(clusterWorkflow)
	c.follow()
	server := httptest.NewServer(front)
	t.Cleanup(server.Close)
	c.scheduler("scheduler-1")
	c.supervisor("supervisor-1")
	c.agent("agent-1", server.URL+"/shop/{operation}", session)
	c.agent("agent-2", c.url+"/shop/{operation}", session)
	c.agent("agent-3", c.url+"/shop/{operation}", session)
	c.owners(c.cfg.Namespace.AgentGroup("shop"), 3, time.Minute)
	c.owners(c.cfg.Namespace.SchedulerGroup(), 2, time.Minute)
	return c
}

// TestStoppedAgentStaysSilent stops an agent with SIGSTOP while it handles requests, and continues it when all tasks
// have ended. Its late replies are never sent. Other instances have retried the steps with the same idempotency keys.
func TestStoppedAgentStaysSilent(t *testing.T) {
	suite.NeedAll(t, "processes that are started, stopped and killed")
	t.Parallel() // it mostly waits
	const tasks, most = 60, 4
	var c *cluster
	var mu sync.Mutex
	held := map[string]string{} // request without its token -> idempotency key
	full, release := make(chan struct{}), make(chan struct{})
	front := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		hold := len(held) < most
		if hold {
			held[r.Header.Get("X-Waybill-Request")] = r.Header.Get("Idempotency-Key")
			if len(held) == most {
				close(full)
			}
		}
		mu.Unlock()
		if hold {
			<-release
		}
		c.services.ServeHTTP(w, r)
	})
	// The session outlasts the attempts. Otherwise another instance would take over the requests themselves before
	// their complete-by, which is correct, but not what this test is about.
	c = sharedAgents(t, front, 10*time.Second)
	ids := make([]string, tasks)
	for i := range ids {
		ids[i] = fmt.Sprintf("order-%02d", i+1)
	}
	if err := c.submit(t.Context(), ids, 100); err != nil {
		t.Fatal(err)
	}
	select {
	case <-full:
	case <-time.After(suite.Patience):
		t.Fatal("the first agent was never asked")
	}
	agent := c.procs["agent-1"].Process
	if err := agent.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	stopped(t, agent.Pid)
	close(release) // the service answers into the socket of the stopped process
	c.await("every task ended while the agent was stopped", 2*time.Minute, func() bool { return len(c.ended) == tasks })
	if err := agent.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	// Once it is a member again, it has handled the requests that it held.
	c.owners(c.cfg.Namespace.AgentGroup("shop"), 3, time.Minute)
	for id, s := range c.ended {
		if s != events.StateProcessed {
			t.Errorf("task %s ended %s", id, s)
		}
	}
	c.silent(held)
	c.verified(ids)
}

// silent checks in the raw replies that nothing was written for the attempts that the stopped agent held, and that each
// of their steps was retried with the same idempotency key.
func (c *cluster) silent(held map[string]string) {
	c.t.Helper()
	for _, r := range c.readAll(c.cfg.Namespace.Inbox(events.Replies)) {
		request, _ := r.Header(events.HeaderRequest)
		task, ref, _, err := events.ParseRequest(request)
		if err != nil {
			c.t.Fatal(err)
		}
		id := events.RequestID(task, ref)
		if _, ok := held[id]; ok {
			source, _ := r.Header(events.HeaderSource)
			outcome, _ := r.Header(events.HeaderOutcome)
			c.t.Errorf("a reply (%s) was sent for %s by %s at %s, whose agent was stopped past its time", outcome, id, source, r.Time.Format(events.TimeLayout))
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, key := range held {
		task, ref, err := events.ParseRequestID(id)
		if err != nil {
			c.t.Fatal(err)
		}
		state := c.log.Task(task)
		i, _ := state.Plan.Step(ref.Step)
		if s := state.Steps[i]; s.Attempt <= ref.Attempt || s.Key != key {
			c.t.Errorf("step %s of %s ended with attempt %d under key %s; the stopped one was %d under %s", ref.Step, task, s.Attempt, s.Key, ref.Attempt, key)
		}
	}
	c.t.Logf("%d attempts were in the stopped agent's hands", len(held))
}

// TestSickInstance: one of three instances answers only 500. Every task ends as it would without that instance.
func TestSickInstance(t *testing.T) {
	suite.NeedAll(t, "processes that are started, stopped and killed")
	t.Parallel() // it mostly waits
	const tasks = 100
	var asked sync.Map
	c := sharedAgents(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Store(r.Header.Get("X-Waybill-Request"), true)
		http.Error(w, "out of order", http.StatusInternalServerError)
	}), 3*time.Second)
	ids := make([]string, tasks)
	for i := range ids {
		ids[i] = fmt.Sprintf("order-%03d", i+1)
	}
	if err := c.submit(t.Context(), ids, 100); err != nil {
		t.Fatal(err)
	}
	c.await("every task ended", 3*time.Minute, func() bool { return len(c.ended) == tasks })
	for id, s := range c.ended {
		if s != events.StateProcessed {
			t.Errorf("task %s ended %s", id, s)
		}
	}
	n := 0
	asked.Range(func(any, any) bool { n++; return true })
	if n == 0 {
		t.Error("the sick instance was never asked")
	}
	t.Logf("the sick instance was asked for %d attempts", n)
	c.verified(ids)
}
