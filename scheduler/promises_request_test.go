package scheduler

import (
	"bytes"
	"encoding/json"

	"github.com/waybill-run/waybill/events"
)

// checkRequest finds and checks the one request of a started attempt.
func (w *scenario) checkRequest(d *Decision, f *events.AttemptStarted, e *events.Event) {
	ref := events.RequestRef{Step: f.Step, Kind: f.Kind, Attempt: f.Attempt}
	id := events.RequestID("t", ref)
	var found []*events.Record
	for i := range d.Records {
		if got, ok := d.Records[i].Header(events.HeaderRequest); ok && got == id+"/"+testToken("t", ref) {
			found = append(found, &d.Records[i])
		}
	}
	if len(found) != 1 {
		w.failf("attempt %s has %d requests", id, len(found))
	}
	r := found[0]
	q, err := events.DecodeRequest(r)
	if err != nil {
		w.failf("%v", err)
	}
	agent, operation := w.fold.Plan.Agent(w.index(f.Step), f.Kind)
	topic := events.Namespace(events.DefaultNamespace).Requests(agent)
	if f.TokenHash != events.TokenHash("t", ref, q.Token) {
		w.failf("attempt %s has the token hash %q, its request the token %q", id, f.TokenHash, q.Token)
	}
	if q.IdempotencyKey != f.Key || !q.CompleteBy.Equal(f.EndsBy(e)) || q.Operation != operation || r.Topic != topic || f.Agent != agent || !json.Valid(q.Value) {
		w.failf("attempt %s is asked for by %+v, to %s", id, q, r.Topic)
	}
	n, last := w.requests[agent], w.run(events.Slot{Step: f.Step, Kind: f.Kind})
	if r.Partition < 0 || r.Partition >= n {
		w.failf("attempt %s goes to partition %d of %d", id, r.Partition, n)
	}
	if n > 1 && n == last.of && f.Attempt == last.last+1 && r.Partition == last.partition {
		w.failf("attempt %s goes to the same partition as the one before: %d of %d", id, r.Partition, n)
	}
	last.last, last.partition, last.of = f.Attempt, r.Partition, n
	w.sent = append(w.sent, q)
	w.checkValue(q)
}

// checkValue checks that all requests with one key have the same value, and that an undo names the step to undo.
func (w *scenario) checkValue(q *events.Request) {
	for _, before := range w.sent {
		if q.Ref.Kind != events.Check && before.IdempotencyKey == q.IdempotencyKey && !bytes.Equal(before.Value, q.Value) {
			w.failf("key %s asked for %s, now for %s", q.IdempotencyKey, before.Value, q.Value)
		}
	}
	switch q.Ref.Kind {
	case events.Do:
		return
	case events.Check:
		w.checkCheckValue(q)
		return
	}
	var v struct {
		Of     json.RawMessage `json:"of"`
		UndoOf struct {
			Key     string `json:"idempotency_key"`
			Outcome string
		} `json:"undo_of"`
	}
	if err := json.Unmarshal(q.Value, &v); err != nil {
		w.failf("%v", err)
	}
	outcome := "unknown"
	if w.effects[q.Ref.Step].completed {
		outcome = "completed"
	}
	of, _ := w.definition.Steps[w.index(q.Ref.Step)].Undo.Input.(map[string]any) // may be nil
	if key := w.run(events.Slot{Step: q.Ref.Step, Kind: events.Do}).key; v.UndoOf.Key != key || v.UndoOf.Outcome != outcome {
		w.failf("the undo of step %q, which is %s under the key %s, is asked for by %s", q.Ref.Step, outcome, key, q.Value)
	}
	// A retry has the input of the first attempt, which may be of another version.
	if _, added := of["of"]; q.Ref.Attempt == 1 && added != (v.Of != nil) {
		w.failf("the undo of step %q has undo.input: %v; it is asked for by %s", q.Ref.Step, added, q.Value)
	}
}
