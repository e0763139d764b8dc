//go:build synctests

package sim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/workflow"
)

// The longest waits in the simulated workflows' policies. Together with the session timeout they bound the time that
// the system may take to settle (P14).
const (
	attemptMost  = 4 * time.Second
	backoffMost  = 2 * time.Second
	coolDownMost = 5 * time.Second
	taskMost     = 40 * time.Second
	waitMost     = 3 * time.Second
	dedupeLeast  = 5 * time.Second
)

// agents are the agents of a simulation. Each has a topic and processes.
var agents = []string{"ants", "bees"}

// definitions generates the workflows of a seed.
func definitions(rnd, more, lists *rand.Rand) []*workflow.Definition {
	var ds []*workflow.Definition
	for i := range flows {
		d, err := definition(rnd, more, lists, i)
		if err != nil {
			panic(err) // the generator is wrong, not the seed
		}
		ds = append(ds, d)
	}
	return ds
}

// definition generates a workflow. more is a second generator, for the expressions that refer to other steps. It keeps
// the draws of rnd stable. lists is a third, for items.
func definition(rnd, more, lists *rand.Rand, number int) (*workflow.Definition, error) {
	ms := func(least, most time.Duration) time.Duration {
		return (least + time.Duration(rnd.Int64N(int64(most-least)))).Truncate(time.Millisecond)
	}
	b := workflow.New(flowName(number), 1).CompleteWithin(ms(10*time.Second, taskMost)).AttemptWithin(ms(500*time.Millisecond, attemptMost))
	b.OnError([]string{events.OnErrorUndo, events.OnErrorHold}[rnd.IntN(2)])
	if number%2 == 1 { // the ids of these are forgotten, and repeated submissions then start new tasks
		b.DedupeFor(time.Duration(number) * dedupeLeast)
	}
	r := workflow.Retry{MaxAttempts: 1 + rnd.IntN(4), Backoff: workflow.Duration(ms(50*time.Millisecond, backoffMost)), Factor: 1, Max: workflow.Duration(backoffMost)}
	if rnd.IntN(3) == 0 {
		r.CoolDown = workflow.Duration(ms(time.Second, coolDownMost))
	}
	b.Retry(r)
	for i := range 1 + rnd.IntN(5) {
		s := workflow.Step{ID: fmt.Sprintf("s%d", i), Agent: agents[rnd.IntN(len(agents))], Operation: fmt.Sprintf("do%d", i),
			Input: map[string]any{"n": i}}
		for j := range i {
			if rnd.IntN(2) == 0 {
				s.Needs = append(s.Needs, fmt.Sprintf("s%d", j))
			}
		}
		if rnd.IntN(6) == 0 {
			s.When = "${ input.n % 2 == 0 }"
		}
		if rnd.IntN(4) > 0 {
			s.Undo = &workflow.Undo{Operation: fmt.Sprintf("undo%d", i)}
		}
		relate(more, &s)
		if more.IntN(5) == 0 {
			s.Repeat = &workflow.Repeat{Until: fmt.Sprintf("${ output.call >= %d }", 1+more.IntN(3)), Every: workflow.Duration(1+more.IntN(int(time.Second/time.Millisecond))) * workflow.Duration(time.Millisecond), Max: 1 + more.IntN(3)}
		}
		if i > 0 && more.IntN(5) == 0 { // a long call
			s.CompleteWithin, s.Heartbeat = workflow.Within(attemptMost), workflow.Within(time.Duration(1000+more.IntN(1500))*time.Millisecond)
		}
		if i > 0 && more.IntN(5) == 0 { // a wait
			s = workflow.Step{ID: s.ID, Needs: s.Needs, When: s.When, Wait: fmt.Sprintf("%dms", 1+more.IntN(int(waitMost/time.Millisecond)))}
		}
		if i > 0 && more.IntN(4) == 0 {
			s = signalStep(more, &s)
		}
		if i > 0 && number < flows-1 && more.IntN(4) == 0 {
			s = childStep(more, &s, number)
		}
		drawFailures(more, &s)
		itemsOf(lists, &s)
		b.Step(s)
	}
	return b.Build()
}

// relate lets expressions read the outputs of earlier steps. A few of them fail.
func relate(more *rand.Rand, s *workflow.Step) {
	if n := len(s.Needs); n > 0 && more.IntN(2) == 0 {
		of := "steps." + s.Needs[more.IntN(n)]
		s.Input = map[string]any{"of": "${ " + of + ".output }"}
		if s.When == "" && more.IntN(4) == 0 {
			s.When = "${ " + of + ".state == 'completed' }"
		}
	}
	if s.Undo != nil && more.IntN(2) == 0 {
		s.Undo.Input = map[string]any{"state": "${ steps." + s.ID + ".state }", "of": "${ steps." + s.ID + ".output }"}
	}
	if more.IntN(30) == 0 {
		s.Input = "${ input.n / (input.n % 3) }"
	}
}

// load submits tasks, sends commands, and sends invalid records.
type load struct {
	w    *simulation
	rnd  *rand.Rand
	more *rand.Rand // for later additions, so that the draws of existing seeds stay the same
	ds   []*workflow.Definition
	// migrations draws migrations, so that the draws of existing seeds stay the same.
	migrations *rand.Rand
	lists      *rand.Rand // draws items and commands to them
	producer   *kafka.Producer

	mu         sync.Mutex
	n          int
	ids        []string
	acked      map[string]time.Time
	unreadable int
	controls   int

	waiting []waitingTask
	sent    []events.Signal // signals that may be sent again
	signals int
}

// run continues until ctx ends.
func (l *load) run(ctx context.Context) {
	for ctx.Err() == nil {
		wait := time.Duration(l.rnd.Int64N(int64(2 * l.w.every)))
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		switch n := l.rnd.IntN(20); {
		case n < 14:
			l.submit(ctx)
		case n < 16:
			l.command(ctx)
		case n < 18:
			l.pester(ctx)
		default:
			l.garbage(ctx)
		}
		l.addition(ctx)
		l.migrate(ctx)
	}
}

func (l *load) submit(ctx context.Context) {
	d := l.ds[l.rnd.IntN(len(l.ds))]
	l.mu.Lock()
	id := fmt.Sprintf("task-%d", l.n)
	again := l.n > 0 && l.rnd.IntN(15) == 0
	if again {
		id = fmt.Sprintf("task-%d", l.rnd.IntN(l.n)) // a repeated submission, mostly with another body
	} else {
		l.n++
		l.ids = append(l.ids, id)
	}
	l.mu.Unlock()
	s := events.Submission{ID: id, Workflow: d.Name, Version: 1, Input: json.RawMessage(fmt.Sprintf(`{"n":%d}`, l.rnd.IntN(10))), Priority: l.more.IntN(5) - 2}
	if l.rnd.IntN(10) == 0 {
		s.CompleteBy = events.Millis(time.Now().Add(time.Duration(l.rnd.Int64N(int64(20 * time.Second)))))
	}
	l.producer.SendAsync(ctx, s.Record(l.w.ns, "sim"), func(_ events.Record, err error) {
		if err != nil || again {
			return
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.acked[id] = time.Now()
	})
	if !again {
		l.submitted(ctx, id, d)
	}
}

// someTask returns the id of a submitted task, mostly a recent one.
func (l *load) someTask() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.ids) == 0 {
		return "nobody"
	}
	return l.ids[max(0, len(l.ids)-1-int(l.rnd.ExpFloat64()*8))]
}

func (l *load) command(ctx context.Context) {
	l.mu.Lock()
	l.controls++
	n := l.controls
	l.mu.Unlock()
	x := events.Control{Task: relative(l.lists, l.someTask()), Command: []events.Command{events.Cancel, events.Resubmit, events.UndoTask, events.Release}[l.rnd.IntN(4)],
		By: events.By{Who: "sim", Why: "because", RequestID: fmt.Sprintf("request-%d", n-l.rnd.IntN(2))}}
	if x.Command == events.Release {
		x.Step, x.As = fmt.Sprintf("s%d", l.rnd.IntN(3)), events.StepCompleted
		if l.more.IntN(3) == 0 {
			x.As = events.StepUndone
		}
	}
	x.Keep = x.Command == events.Cancel && l.rnd.IntN(3) == 0
	x.Processed = x.Command == events.UndoTask && l.rnd.IntN(3) > 0
	l.send(ctx, x.Record(l.w.ns, "sim"))
}

// liar is the ce_source of replies that no agent sent. No guarantee covers them.
const liar = "sim/liar"

// pester sends earlier replies again, unchanged or for an attempt that was never requested.
func (l *load) pester(ctx context.Context) {
	r, ok := l.w.services.anyReply(l.rnd)
	if !ok {
		return
	}
	r.Partition, r.Headers = -1, withSource(r.Headers, liar)
	if l.rnd.IntN(2) == 0 {
		id, _ := r.Header(events.HeaderRequest)
		task, ref, token, err := events.ParseRequest(id)
		if err != nil {
			return
		}
		ref.Attempt += 1000
		p := events.Reply{Task: task, Ref: ref, Token: token, Outcome: events.Completed, Body: json.RawMessage(`{"lie":true}`)}
		r = p.Record(l.w.ns, liar)
	}
	l.send(ctx, r)
}

// withSource returns the headers with another ce_source.
func withSource(hs []events.Header, source string) []events.Header {
	hs = slices.Clone(hs)
	for i := range hs {
		if hs[i].Key == events.HeaderSource {
			hs[i].Value = []byte(source)
		}
	}
	return hs
}

// garbage writes a record that no inbox accepts.
func (l *load) garbage(ctx context.Context) {
	inbox := events.Inbox(l.rnd.IntN(4))
	r := events.Record{Topic: l.w.ns.Inbox(inbox), Partition: int32(l.rnd.IntN(int(partitions))), Key: []byte(l.someTask())}
	switch l.rnd.IntN(5) {
	case 0:
		r.Value = nil
	case 1:
		r.Value = []byte("{")
	case 2:
		r.Value = []byte(`{"id":"x","workflow":"nobody"}`)
	case 3:
		r.Value = make([]byte, 600<<10) // larger than every bound
	case 4:
		r.Key, r.Value = nil, []byte(`{"id":"`+string(r.Key)+`-x","workflow":"nope"}`)
		r.Headers = events.CloudHeaders("waybill.nothing.known.v9", "sim", "x")
	}
	l.mu.Lock()
	l.unreadable++
	l.mu.Unlock()
	l.send(ctx, r)
}

func (l *load) send(ctx context.Context, r events.Record) {
	l.producer.SendAsync(ctx, r, func(_ events.Record, err error) {
		if err != nil && !errors.Is(err, context.Canceled) {
			l.w.note("load", "not sent: %v", err)
		}
	})
}
