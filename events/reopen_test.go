package events

import (
	"encoding/json"
	"time"
)

func init() {
	described["waybill.task.undoing.v1/processed"] = fieldSchema{typ: "object",
		text: "The whole state of a processed task that is undone, as of the event before: what Waybill stores of a task. Absent if the task had not ended."}
	described["processed"] = fieldSchema{typ: "boolean", text: "The command may undo a processed task."}
}

func refundSample() sample {
	e := sampleEvent(&TaskUndoing{By: sampleBy, Ending: StateUndone, Error: sampleError, Processed: processedSample().Encode()}, 5)
	return sample{name: e.Fact.Type() + ".processed", record: e.Record(sampleNS, "scheduler-0", 3, e.Value()), want: e, event: e, inbox: Inboxes,
		decode: func(r *Record) (any, error) { return DecodeEvent(r) }}
}

// processedSample is a processed task with two steps; one was skipped.
func processedSample() *Task {
	attempts := Attempts{CompleteWithin: 10 * time.Second, MaxAttempts: 2}
	t := &Task{ID: "order-7", Workflow: "order", Version: 3, State: StateProcessed, CompleteBy: instantOf(1800), Priority: 5, Labels: map[string]string{"region": "eu"},
		SubmittedAt: instantOf(0), UpdatedAt: instantOf(4), Digest: "q1w2e3r4t5y6u7i8o9p0aQ", Input: json.RawMessage(`{"total":12.50}`), Output: json.RawMessage(`null`),
		Plan: NewPlan(OnErrorUndo, time.Hour, []PlanStep{
			{ID: "reserve", Agent: "inventory", Operation: "reserve", Attempts: attempts, Undo: &PlanUndo{Agent: "inventory", Operation: "release", Attempts: attempts}},
			{ID: "charge", Needs: []int{0}, Agent: "payments", Operation: "charge", Attempts: attempts}}), Seq: 4, StatusSeq: 4, Prev: "mZ0xv8tJ3kq2c1b4a5s6dw"}
	t.Steps = newSteps(len(t.Plan.Steps))
	for _, s := range t.Steps {
		s.State = StepSkipped
	}
	s := t.Steps[0]
	s.State, s.Attempt, s.Key, s.StartedAt, s.EndedAt, s.StartedSeq, s.CompletedSeq = StepCompleted, 1, "acme.order-7/reserve/do/1", instantOf(1), instantOf(2), 2, 3
	s.Input, s.Output = json.RawMessage(`{"items":["book"]}`), json.RawMessage(`{"receipt":"R-9"}`)
	return t
}
