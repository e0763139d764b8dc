package scheduler

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/workflow"
)

// TestAgentAddedDuringATransaction creates an agent's topic during a transaction. The second of two replies of a task
// starts a step of that agent. The first reply has already changed the task, so the transaction is repeated. Nothing
// fails, and nothing is written twice.
func TestAgentAddedDuringATransaction(t *testing.T) {
	s := newSite(t, 1)
	step := func(id, agent string, needs ...string) workflow.Step {
		return workflow.Step{ID: id, Agent: agent, Operation: "do", Needs: needs}
	}
	d, err := workflow.New("forked", 1).CompleteWithin(time.Minute).AttemptWithin(10 * time.Second).
		Step(step("a", "inventory")).Step(step("b", "inventory")).Step(step("c", "late", "b")).Build()
	if err != nil {
		t.Fatal(err)
	}
	s.catalog.Apply(&events.Record{Key: []byte(d.Key()), Value: d.JSON()})
	log := s.cluster.join(0)
	w := s.worker(log)
	s.submit("forked", "x")
	s.drain(w)
	s.agents["late"] = 2
	s.complete("inventory")
	s.drain(w)
	started, completed, failed := 0, 0, 0
	for _, what := range s.events("x") {
		switch {
		case what == (&events.AttemptStarted{Kind: events.Do}).Type():
			started++
		case what == (&events.AttemptCompleted{Kind: events.Do}).Type():
			completed++
		case what == (&events.AttemptFailed{Kind: events.Do}).Type():
			failed++
		}
	}
	if started != 3 || completed != 2 || failed != 0 || len(s.cluster.all(ns.Requests("late"))) != 1 {
		t.Errorf("of three steps %d were started, %d completed and %d failed: %v", started, completed, failed, s.events("x"))
	}
	if !slices.ContainsFunc(s.committed, func(c Committed) bool { return c.Inputs == 2 }) {
		t.Errorf("the two replies didn't come in one transaction: %+v", s.committed)
	}
}

// TestRequestTopicsReadByAnotherWorker lets two workers miss an agent at the same time. The first has refreshed the
// topics when the second needs them. The second uses that result, and doesn't treat the agent as missing.
func TestRequestTopicsReadByAnotherWorker(t *testing.T) {
	began := time.Now()
	topics := &requestTopics{fetch: func(context.Context) (map[string]int32, map[string][]int32, error) {
		return map[string]int32{"shop": 3}, nil, nil
	}}
	had, _ := topics.partitions()
	if !topics.refreshMetadata(t.Context(), began, had) {
		t.Error("the first worker hears of nothing new")
	}
	topics.fetch = func(context.Context) (map[string]int32, map[string][]int32, error) {
		t.Error("read once more")
		return nil, nil, nil
	}
	if !topics.refreshMetadata(t.Context(), began, had) {
		t.Error("the second worker hears of nothing new")
	}
	known, _ := topics.partitions()
	if topics.refreshMetadata(t.Context(), began, known) {
		t.Error("there is nothing new any more")
	}
}
