package scheduler

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/workflow"
)

// order is the workflow of the benchmarks: three sequential steps.
const order = `workflow: order
version: 1
complete_within: 30m
defaults:
  complete_within: 10s
  retry: {max_attempts: 5, backoff: 200ms, cool_down: 5m}
steps:
  reserve:
    agent: inventory
    operation: reserve
    input: {order: "${ task.id }", items: "${ input.items }"}
    undo: {operation: release}
  charge:
    needs: [reserve]
    agent: payments
    operation: charge
    when: "${ input.total > 0 }"
    input: {amount: "${ input.total }", card: "${ input.card }"}
    undo: {operation: refund}
  ship:
    needs: [charge]
    agent: shipping
    operation: create
    input: {order: "${ task.id }", address: "${ input.address }"}
output: {tracking: "${ steps.ship.output.tracking }"}
`

// bench calls Decide only.
type bench struct {
	env   Env
	cause events.Cause
}

func newBench(b testing.TB) *bench {
	b.Helper()
	d, err := workflow.ParseYAML("order.yaml", []byte(order))
	if err != nil {
		b.Fatal(err)
	}
	c := &CompiledDefinitions{Rejected: func(key string, err error) { b.Fatalf("%s: %v", key, err) }}
	c.Apply(&events.Record{Key: []byte(d.Key()), Value: d.JSON()})
	return &bench{env: Env{Token: testToken, Now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Namespace: events.DefaultNamespace, Source: "bench", Epoch: 1,
		Definitions: c, DefinitionsRead: true, Arena: &events.Arena{}, Requests: map[string]int32{"inventory": 12, "payments": 12, "shipping": 12}}}
}

func (x *bench) decide(b *testing.B, t *events.Task, in events.Input) Decision {
	x.cause.Offset++
	d := Decide(t, in, x.cause, &x.env)
	x.env.Records = d.Records[:0] // as a worker does
	x.env.Arena.Reset()
	if len(d.Events) == 0 {
		b.Fatalf("%T led to nothing: %+v", in, d)
	}
	return d
}

func submission(n int) *events.Submission {
	return &events.Submission{ID: fmt.Sprint("order-", n), Workflow: "order", ReplyTo: "app.replies",
		Input: json.RawMessage(`{"items":[{"sku":"a-1","count":2},{"sku":"b-7","count":1}],"total":4200,"card":"tok_1","address":{"street":"Main Street 1","city":"Springfield"}}`)}
}

var (
	done    = json.RawMessage(`{"tracking":"1Z-999","at":"2026-01-02"}`)
	reserve = events.RequestRef{Step: "reserve", Kind: events.Do, Attempt: 1}
)

// BenchmarkSubmit decides on a submission: three events, a request, a notification.
func BenchmarkSubmit(b *testing.B) {
	x, s := newBench(b), submission(1)
	b.ReportAllocs()
	for b.Loop() {
		x.decide(b, nil, s)
	}
}

// BenchmarkReply decides on a reply that completes a step and starts the next one. It includes the clone of the task,
// as in a worker.
func BenchmarkReply(b *testing.B) {
	x := newBench(b)
	t := x.decide(b, nil, submission(1)).Task
	r := &events.Reply{Task: t.ID, Ref: reserve, Token: testToken(t.ID, reserve), Outcome: events.Completed, Body: done}
	b.ReportAllocs()
	for b.Loop() {
		x.decide(b, t.Clone(), r)
	}
}

// BenchmarkRecovery decides on a recovery of an attempt that timed out. The attempt expires and its run waits.
func BenchmarkRecovery(b *testing.B) {
	x := newBench(b)
	t := x.decide(b, nil, submission(1)).Task
	x.env.Now = t.Steps[0].Timer.Due
	r := &events.Recovery{Task: t.ID, Timer: t.Steps[0].Timer.Seq, Step: "reserve", Kind: events.Do, Action: events.ActionWait}
	b.ReportAllocs()
	for b.Loop() {
		x.decide(b, t.Clone(), r)
	}
}

// BenchmarkForward forwards a record that is in the wrong partition.
func BenchmarkForward(b *testing.B) {
	r := submission(1).Record(ns, "bench")
	r.Partition, r.Offset = 1, 1742
	home := events.Partition(r.Key, 12)
	if home == r.Partition {
		b.Fatal("the record lies where it belongs")
	}
	b.ReportAllocs()
	for b.Loop() {
		where, u := targetPartition(&r, "order-1", 12)
		if f := forwardedCopy(&r, "order-1", where); u != nil || f.Partition != home {
			b.Fatalf("forwarded to %d, want %d: %v", f.Partition, home, u)
		}
	}
}

// BenchmarkTask runs a task from its submission to its end. It decodes four inputs from their records and decides on
// them. The output is nine events, three requests and two notifications.
func BenchmarkTask(b *testing.B) {
	x := newBench(b)
	inputs := map[events.Inbox][]events.Record{events.Tasks: {submission(1).Record(ns, "bench")}}
	for _, step := range []string{"reserve", "charge", "ship"} {
		ref := events.RequestRef{Step: step, Kind: events.Do, Attempt: 1}
		inputs[events.Replies] = append(inputs[events.Replies], (&events.Reply{Task: "order-1", Ref: ref, Token: testToken("order-1", ref), Outcome: events.Completed, Body: done}).Record(ns, "bench"))
	}
	b.ReportAllocs()
	made := 0
	for b.Loop() {
		var t *events.Task
		for _, inbox := range []events.Inbox{events.Tasks, events.Replies} {
			for i := range inputs[inbox] {
				_, in, err := events.DecodeInput(inbox, &inputs[inbox][i])
				if err != nil {
					b.Fatal(err)
				}
				d := x.decide(b, t.Clone(), in)
				t, made = d.Task, made+len(d.Events)
			}
		}
		if t.State != events.StateProcessed {
			b.Fatalf("the task is %s", t.State)
		}
	}
	b.ReportMetric(float64(made)/b.Elapsed().Seconds(), "events/s")
}
