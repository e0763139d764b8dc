package scheduler

import (
	"fmt"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/workflow"
)

// fanOut returns a benchmark of a workflow with n parallel steps between a first and a last step.
func fanOut(b *testing.B, n int) *bench {
	b.Helper()
	w := workflow.New("fan", 1).CompleteWithin(time.Hour).AttemptWithin(10 * time.Second)
	input := map[string]any{"task": "${ task.id }", "total": "${ input.total }"}
	w.Step(workflow.Step{ID: "first", Agent: "inventory", Operation: "work", Input: input})
	var middle []string
	for i := range n {
		middle = append(middle, fmt.Sprint("step-", i))
		w.Step(workflow.Step{ID: middle[i], Agent: "payments", Operation: "work", Input: input, Needs: []string{"first"}})
	}
	w.Step(workflow.Step{ID: "last", Agent: "shipping", Operation: "work", Input: input, Needs: middle[max(0, n-workflow.MaxNeeds):]})
	d, err := w.Output(map[string]any{"at": "${ steps['last'].output.at }"}).Build()
	if err != nil {
		b.Fatal(err)
	}
	x := newBench(b)
	c := &CompiledDefinitions{Rejected: func(key string, err error) { b.Fatalf("%s: %v", key, err) }}
	c.Apply(&events.Record{Key: []byte(d.Key()), Value: d.Stored()})
	x.env.Definitions = c
	return x
}

// BenchmarkFanOut runs a whole task with parallel steps whose replies share transactions. A transaction copies the task
// once.
func BenchmarkFanOut(b *testing.B) {
	for _, n := range []int{10, 100, 1000} {
		for _, together := range []int{1, 50} {
			b.Run(fmt.Sprintf("steps=%d/together=%d", n, together), func(b *testing.B) {
				x := fanOut(b, n)
				s := submission(1)
				s.Workflow, s.ReplyTo = "fan", ""
				b.ReportAllocs()
				for b.Loop() {
					t, replies := x.decide(b, nil, s).Task, 0
					reply := func(step string) {
						if replies%together == 0 {
							t = t.Clone()
						}
						replies++
						ref := events.RequestRef{Step: step, Kind: events.Do, Attempt: 1}
						t = x.decide(b, t, &events.Reply{Task: t.ID, Ref: ref, Token: testToken(t.ID, ref), Outcome: events.Completed, Body: done}).Task
					}
					reply("first")
					for i := range n {
						reply(fmt.Sprint("step-", i))
					}
					reply("last")
					if t.State != events.StateProcessed {
						b.Fatalf("the task is %s", t.State)
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*(n+2)), "ns/step")
			})
		}
	}
}
