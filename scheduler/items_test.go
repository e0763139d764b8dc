package scheduler

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/verify"
	"github.com/waybill-run/waybill/workflow"
)

// family runs a task with its children: the records of each decision are the next inputs. It checks after each decision
// that the state equals the fold of the events as they were written, and that its stored form can be read.
type family struct {
	t       testing.TB
	env     Env
	tasks   map[string]*events.Task
	folds   map[string]*events.Fold
	queue   []events.Record
	agent   func(task, operation string, value json.RawMessage) (events.Outcome, string)
	asked   []string       // "task operation" of each request, in order
	dead    []string       // of records that can't be used
	facts   map[string]int // by type
	offset  int64
	offline bool // requests aren't answered
	inbox   []events.Record
	log     []events.Record
	written int // bytes of all records
	verify  *verify.Checker
	events  int64
	unsaved bool // the checks of each decision are left out
}

func newFamily(t testing.TB, definitions ...string) *family {
	t.Helper()
	c := &CompiledDefinitions{Rejected: func(key string, err error) { t.Fatalf("%s: %v", key, err) }}
	for _, text := range definitions {
		d, err := workflow.ParseYAML("test.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		c.Apply(&events.Record{Key: []byte(d.Key()), Value: d.Stored()})
	}
	f := &family{t: t, verify: verify.New(verify.Options{Partitions: 1, Inputs: true, Keep: true, Whole: true}), tasks: map[string]*events.Task{}, folds: map[string]*events.Fold{}, facts: map[string]int{},
		env: Env{Token: testToken, Now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Namespace: events.DefaultNamespace, Source: "test", Epoch: 1,
			Definitions: c, DefinitionsRead: true, Requests: map[string]int32{"stock": 1}},
		agent: func(_, operation string, value json.RawMessage) (events.Outcome, string) {
			return events.Completed, string(value)
		}}
	claim := &events.Event{At: f.env.Now, Cause: events.Cause{Inbox: events.Tasks}, Seq: 1, Epoch: 1, Fact: &events.PartitionClaimed{Owner: "test"}}
	f.offset = 1
	f.write(claim.Record(f.env.Namespace, "test", 0, claim.Seal(nil)))
	return f
}

// write writes an event to the log.
func (f *family) write(r events.Record) events.Record {
	r.Offset, r.Time = f.events, f.env.Now
	f.events++
	f.verify.Event(&r)
	f.log = append(f.log, r)
	return r
}

// input writes an input to its inbox.
func (f *family) input(in events.Input) Decision {
	f.t.Helper()
	var r events.Record
	switch in := in.(type) {
	case *events.Submission:
		r = in.Record(f.env.Namespace, "test")
	case *events.Reply:
		r = in.Record(f.env.Namespace, "test")
	case *events.Recovery:
		r = in.Record(f.env.Namespace, "test", 0)
	case *events.Control:
		r = in.Record(f.env.Namespace, "test")
	case *events.Signal, *events.Withdrawal:
		f.t.Fatalf("%T", in)
	}
	return f.decide(r)
}

// decide decides a record of an inbox, and queues what follows.
func (f *family) decide(r events.Record) Decision {
	f.t.Helper()
	inbox, _ := events.ParseInbox(strings.TrimPrefix(r.Topic, string(f.env.Namespace)))
	r.Partition, r.Offset, r.Time = 0, f.offset, f.env.Now
	f.offset++
	id, in, err := events.DecodeInput(inbox, &r)
	if err != nil {
		unusable, ok := errors.AsType[*events.Unusable](err)
		answer := events.RefusalOf(&r, unusable)
		if !ok || answer == nil {
			f.t.Fatalf("%s: %v", r.Value, err)
		}
		f.verify.Input(&r)
		f.dead = append(f.dead, string(unusable.Reason)+": "+unusable.Detail)
		f.queue = append(f.queue, answer.Record(f.env.Namespace, "test"))
		return Decision{}
	}
	if !f.unsaved {
		f.verify.Input(&r)
		f.inbox = append(f.inbox, r)
	}
	d := Decide(f.tasks[id].Clone(), in, events.Cause{Inbox: inbox, Offset: r.Offset}, &f.env)
	if d.Unusable != nil {
		f.dead = append(f.dead, string(d.Unusable.Reason)+": "+d.Unusable.Detail)
	}
	if d.Task != nil {
		f.tasks[d.Task.ID] = d.Task
	}
	for _, r := range d.Records {
		f.written += len(r.Key) + len(r.Value)
		for _, h := range r.Headers {
			f.written += len(h.Key) + len(h.Value)
		}
		if r.Topic == f.env.Namespace.Events() {
			f.fold(r)
			continue
		}
		f.queue = append(f.queue, r)
	}
	if d.Task != nil && len(d.Events) > 0 && !f.unsaved {
		f.check(d.Task)
	}
	return d
}

// verified checks that package verify finds no fault in what was written.
func (f *family) verified() {
	f.t.Helper()
	if r := f.verify.Finish(f.env.Now); len(r.Faults) > 0 {
		f.t.Errorf("verify finds faults: %v", r.Faults)
	}
}

func (f *family) fold(r events.Record) {
	if f.unsaved {
		return
	}
	r = f.write(r)
	fold := f.folds[string(r.Key)]
	if fold == nil {
		fold = &events.Fold{}
		f.folds[string(r.Key)] = fold
	}
	e, err := fold.Add(&r)
	if err != nil {
		f.t.Fatalf("%s: %v", r.Value, err)
	}
	f.facts[e.Fact.Type()]++
}

func (f *family) check(t *events.Task) {
	stored := string(t.Encode())
	if got := string(f.folds[t.ID].Task.Encode()); got != stored {
		f.t.Fatalf("the fold of what was written is\n%s\nand the state is\n%s", got, stored)
	}
	read, err := events.DecodeTask([]byte(stored))
	if err != nil {
		f.t.Fatalf("%v: %s", err, stored)
	}
	if got := string(read.Encode()); got != stored {
		f.t.Fatalf("read and stored again, it is\n%s\nwant\n%s", got, stored)
	}
	f.tasks[t.ID] = read // derived values are computed again
}

// run handles records until none is left.
func (f *family) run() {
	f.t.Helper()
	for len(f.queue) > 0 {
		r := f.queue[0]
		f.queue = f.queue[1:]
		switch topic := r.Topic; {
		case topic == f.env.Namespace.Inbox(events.Tasks), topic == f.env.Namespace.Inbox(events.Replies):
			f.decide(r)
		case strings.HasPrefix(topic, f.env.Namespace.Requests("")) && !f.offline:
			f.answer(&r)
		}
	}
}

func (f *family) answer(r *events.Record) {
	request, _ := r.Header(events.HeaderRequest)
	operation, _ := r.Header(events.HeaderOperation)
	task, ref, token, err := events.ParseRequest(request)
	if err != nil {
		f.t.Fatal(err)
	}
	f.asked = append(f.asked, task+" "+operation)
	outcome, body := f.agent(task, operation, r.Value)
	if outcome == "" { // it doesn't answer
		return
	}
	f.input(&events.Reply{Task: task, Ref: ref, Token: token, Outcome: outcome, Effect: events.EffectNone, Body: json.RawMessage(body)})
}

func (f *family) submit(id, workflow, input string) *events.Task {
	f.t.Helper()
	f.input(&events.Submission{ID: id, Workflow: workflow, Input: json.RawMessage(input)})
	f.run()
	return f.tasks[id]
}

func (f *family) command(id string, c events.Command, change ...func(*events.Control)) *events.Task {
	f.t.Helper()
	x := &events.Control{Task: id, Command: c, By: events.By{RequestID: fmt.Sprint(f.offset)}}
	for _, ch := range change {
		ch(x)
	}
	f.input(x)
	f.run()
	return f.tasks[id]
}

const pickEach = `
workflow: pick
version: 1
complete_within: 1h
on_error: undo
defaults: {complete_within: 10s}
steps:
  pick:
    for_each: "${ input.items }"
    max_parallel: 2
    on_item_error: fail
    agent: stock
    operation: pick
    input: {sku: "${ item }", n: "${ index }"}
    undo: {operation: put_back, input: {sku: "${ item }", was: "${ output }"}}
  ship: {needs: [pick], agent: stock, operation: ship}
output: "${ steps.pick.output }"
`

func refuse(operation, with string) func(string, string, json.RawMessage) (events.Outcome, string) {
	return func(_, op string, value json.RawMessage) (events.Outcome, string) {
		if op == operation && strings.Contains(string(value), with) {
			return events.Rejected, `{"code":"gone","message":"none left"}`
		}
		return events.Completed, string(value)
	}
}

func TestItemsComplete(t *testing.T) {
	f := newFamily(t, pickEach)
	task := f.submit("o", "pick", `{"items":["a","b","c","d","e"]}`)
	const want = `[{"n":0,"sku":"a"},{"n":1,"sku":"b"},{"n":2,"sku":"c"},{"n":3,"sku":"d"},{"n":4,"sku":"e"}]`
	if task.State != events.StateProcessed || string(task.Output) != want {
		t.Errorf("%s with %s", task.State, task.Output)
	}
	if item := f.tasks["o/pick/3"]; item.State != events.StateProcessed || *item.Parent.Item != 3 || string(item.Input) != `{"index":3,"input":{"n":3,"sku":"d"},"item":"d"}` || item.Plan.OnError != events.OnErrorUndo {
		t.Errorf("item 3: %s", item.Encode())
	}
	if n := f.facts["waybill.item.ended.v1"]; n != 5 || f.facts["waybill.items.completed.v1"] != 1 {
		t.Errorf("events: %v", f.facts)
	}
	f.asked = nil
	if task = f.command("o", events.UndoTask, func(x *events.Control) { x.Processed = true }); task.State != events.StateUndone {
		t.Errorf("undone: it is %s: %v", task.State, task.Error)
	}
	if want := []string{"o/pick/4 put_back", "o/pick/3 put_back", "o/pick/2 put_back", "o/pick/1 put_back", "o/pick/0 put_back"}; !slices.Equal(f.asked, want) {
		t.Errorf("undone in the order %q", f.asked)
	}
	if len(f.dead) > 0 {
		t.Errorf("dead letters: %q", f.dead)
	}
	f.verified()
}

func TestNoItems(t *testing.T) {
	f := newFamily(t, pickEach)
	if task := f.submit("o", "pick", `{"items":[]}`); task.State != events.StateProcessed || string(task.Output) != `[]` {
		t.Errorf("%s with %s", task.State, task.Output)
	}
	if task := f.submit("p", "pick", `{"items":7}`); task.State != events.StateUndone || task.Error.Code != events.CodeExpressionFailed {
		t.Errorf("%s with %v", task.State, task.Error)
	}
	many := `{"items":[` + strings.Repeat("1,", events.MaxItems) + `1]}`
	if task := f.submit("q", "pick", many); task.State != events.StateUndone || task.Error.Code != events.CodeTooManyItems {
		t.Errorf("%s with %v", task.State, task.Error)
	}
	f.verified()
}

// TestItemFails checks that no item starts after one has failed, and that completed items are undone, the last first.
func TestItemFails(t *testing.T) {
	f := newFamily(t, pickEach)
	f.agent = refuse("pick", `"d"`)
	task := f.submit("o", "pick", `{"items":["a","b","c","d","e","f","g"]}`)
	if task.State != events.StateUndone || task.Error.Code != "gone" || task.Error.Step != "pick" || string(task.Error.Details) != `{"item":3}` {
		t.Errorf("%s with %+v", task.State, task.Error)
	}
	var undone []string
	for _, a := range f.asked {
		if strings.HasSuffix(a, "put_back") && a != "o/pick/4 put_back" { // item 4 runs in parallel with item 3
			undone = append(undone, a)
		}
	}
	if got := strings.Join(undone, ","); got != "o/pick/2 put_back,o/pick/1 put_back,o/pick/0 put_back" {
		t.Errorf("undone: %s", got)
	}
	if f.tasks["o/pick/5"] != nil || f.tasks["o/pick/3"].State != events.StateUndone {
		t.Error("item 5 started, or item 3 isn't undone")
	}
	for id, task := range f.tasks {
		if task.Open() {
			t.Errorf("%s is %s", id, task.State)
		}
	}
	f.verified()
}

// TestOnlyItemFails has an item that fails, and no other one that is to be undone: the undo of the step ends as it begins.
func TestOnlyItemFails(t *testing.T) {
	for _, list := range []string{`["d"]`, `["d","d"]`} {
		f := newFamily(t, pickEach)
		f.agent = refuse("pick", `"d"`)
		task := f.submit("o", "pick", `{"items":`+list+`}`)
		if task.State != events.StateUndone || task.Error.Code != "gone" {
			t.Errorf("%s: %s with %+v", list, task.State, task.Error)
		}
		f.verified()
	}
}

// TestItemsEndInAnyOrder ends the first item last. Each result is in its place.
func TestItemsEndInAnyOrder(t *testing.T) {
	f := newFamily(t, strings.Replace(pickEach, "{complete_within: 10s}", "{complete_within: 10s, retry: {max_attempts: 3, backoff: 1s}}", 1))
	silent := true
	f.agent = func(_, _ string, value json.RawMessage) (events.Outcome, string) {
		if silent && strings.Contains(string(value), `"a"`) {
			return "", ""
		}
		return events.Completed, string(value)
	}
	f.submit("o", "pick", `{"items":["a","b","c"]}`)
	if it := f.tasks["o"].Steps[0].Items; it.Completed != 2 || it.Running != 1 {
		t.Fatalf("%+v", it)
	}
	silent = false
	f.timeOut()
	f.timeOut()
	const want = `[{"n":0,"sku":"a"},{"n":1,"sku":"b"},{"n":2,"sku":"c"}]`
	if task := f.tasks["o"]; task.State != events.StateProcessed || string(task.Output) != want {
		t.Errorf("%s with %s", task.State, task.Output)
	}
	f.verified()
}

// TestItemEndsOnce repeats what the tasks of items say. It counts once.
func TestItemEndsOnce(t *testing.T) {
	f := newFamily(t, pickEach)
	f.agent = func(_, operation string, value json.RawMessage) (events.Outcome, string) {
		if strings.Contains(string(value), `"c"`) || strings.Contains(string(value), `"d"`) {
			return "", ""
		}
		return events.Completed, string(value)
	}
	f.submit("o", "pick", `{"items":["a","b","c","d","e"]}`)
	before := *f.tasks["o"].Steps[0].Items
	if before.Completed != 2 || before.Running != 2 {
		t.Fatalf("%+v", before)
	}
	repeated := 0
	for _, r := range slices.Clone(f.inbox) {
		_, in, err := events.DecodeInput(events.Replies, &r)
		reply, ok := in.(*events.Reply)
		if err != nil || !ok || reply.Task != "o" {
			continue
		}
		repeated++
		if d := f.decide(r); len(d.Events) > 0 || d.Ignored != IgnoredStaleReply {
			t.Errorf("the reply of item %d again: %d events, ignored %q", *reply.Item, len(d.Events), d.Ignored)
		}
	}
	if after := *f.tasks["o"].Steps[0].Items; repeated != 2 || after.Completed != before.Completed || after.Running != before.Running {
		t.Errorf("after %d repeated replies: %+v, before: %+v", repeated, after, before)
	}
	f.verified()
}

func TestItemErrorsCollected(t *testing.T) {
	f := newFamily(t, strings.Replace(pickEach, "on_item_error: fail", "on_item_error: collect", 1))
	f.agent = refuse("pick", `"b"`)
	task := f.submit("o", "pick", `{"items":["a","b","c"]}`)
	const want = `[{"n":0,"sku":"a"},{"error":{"code":"gone","message":"none left"}},{"n":2,"sku":"c"}]`
	if task.State != events.StateProcessed || string(task.Output) != want {
		t.Errorf("%s with %s: %v", task.State, task.Output, task.Error)
	}
	f.verified()
}

// TestItemsAfterAHold resubmits a task whose item failed: only that item runs again.
func TestItemsAfterAHold(t *testing.T) {
	f := newFamily(t, strings.Replace(strings.Replace(pickEach, "on_error: undo", "on_error: hold", 1), "on_item_error: fail", "on_item_error: fail", 1))
	f.agent = refuse("pick", `"b"`)
	task := f.submit("o", "pick", `{"items":["a","b","c"]}`)
	if item := f.tasks["o/pick/1"]; task.State != events.StateProcessing || item.State != events.StateError || task.Steps[0].Items.Held != 1 {
		t.Fatalf("the task is %s, item 1 %s", task.State, item.State)
	}
	// The operator gives the item up: then the task is held, and is resubmitted.
	f.command("o/pick/1", events.UndoTask)
	task = f.tasks["o"]
	if it := task.Steps[0].Items; task.State != events.StateError || it.Failed != 1 || it.Held != 0 || it.Completed != 2 {
		t.Fatalf("the task is %s with %+v", task.State, it)
	}
	f.agent, f.asked = refuse("none", ""), nil
	task = f.command("o", events.Resubmit)
	if task.State != events.StateProcessed || string(task.Output) != `[{"n":0,"sku":"a"},{"n":1,"sku":"b"},{"n":2,"sku":"c"}]` {
		t.Errorf("%s with %s: %v", task.State, task.Output, task.Error)
	}
	if want := []string{"o/pick/1~2 pick", "o ship"}; !slices.Equal(f.asked, want) {
		t.Errorf("after the resubmit: %q", f.asked)
	}
	f.verified()
}

// TestItemsCancelled cancels a task while items run: they are withdrawn, and completed ones are undone or kept.
func TestItemsCancelled(t *testing.T) {
	for _, keep := range []bool{false, true} {
		f := newFamily(t, pickEach)
		f.agent = func(_, operation string, value json.RawMessage) (events.Outcome, string) {
			if f.offline = operation == "pick" && strings.Contains(string(value), `"c"`); f.offline {
				return events.Progress, "1"
			}
			return events.Completed, string(value)
		}
		f.submit("o", "pick", `{"items":["a","b","c","d","e"]}`)
		if it := f.tasks["o"].Steps[0].Items; it.Running != 2 || it.Completed != 2 {
			t.Fatalf("%+v", it)
		}
		f.offline, f.asked = false, nil
		f.agent = refuse("none", "")
		f.command("o", events.Cancel, func(x *events.Control) { x.Keep = keep })
		f.timeOut()
		task := f.tasks["o"]
		if task.State != events.StateCancelled {
			t.Fatalf("keep %v: %s, %+v", keep, task.State, task.Steps[0].Items)
		}
		if undone := slices.Contains(f.asked, "o/pick/0 put_back"); undone == keep {
			t.Errorf("keep %v: %q", keep, f.asked)
		}
		for id, x := range f.tasks {
			if x.Open() {
				t.Errorf("keep %v: %s is %s", keep, id, x.State)
			}
		}
		f.verified()
	}
}

// timeOut lets the attempts expire that still run.
func (f *family) timeOut() {
	f.t.Helper()
	f.env.Now = f.env.Now.Add(time.Minute)
	for id, task := range f.tasks {
		for _, a := range task.Timers().Armed {
			if a.Slot.Step == "" {
				continue
			}
			next := a.Policy.Next(id, a.Slot.Step, a.Slot.Kind, a.Attempt, a.Timer.Due, f.env.Now)
			f.input(a.Recovery(id, next))
		}
	}
	f.run()
}

// TestItemsOfAWorkflow runs a child of another workflow for each item.
func TestItemsOfAWorkflow(t *testing.T) {
	f := newFamily(t, `
workflow: trip
version: 1
complete_within: 1h
defaults: {complete_within: 10s}
steps:
  book: {for_each: "${ input.legs }", workflow: booking, id: "${ task.id }-leg-${ index }", input: {leg: "${ item }"}}
output: "${ steps.book.output }"
`, `
workflow: booking
version: 4
complete_within: 1h
defaults: {complete_within: 10s}
steps:
  reserve: {agent: stock, operation: reserve, input: "${ input }", undo: {operation: release}}
  pay: {needs: [reserve], agent: stock, operation: pay, input: "${ input }"}
output: "${ input.leg }"
`)
	if task := f.submit("t", "trip", `{"legs":["oslo","bergen"]}`); task.State != events.StateProcessed || string(task.Output) != `["oslo","bergen"]` {
		t.Errorf("%s with %s: %v", task.State, task.Output, task.Error)
	}
	f.agent = refuse("pay", "bergen")
	task := f.submit("u", "trip", `{"legs":["oslo","bergen"]}`)
	if task.State != events.StateUndone || f.tasks["u-leg-0"].State != events.StateUndone || f.tasks["u-leg-1"].State != events.StateUndone {
		t.Errorf("%s with %v", task.State, task.Error)
	}
	f.verified()
}

// TestItemOutputsTooLarge bounds the outputs together.
func TestItemOutputsTooLarge(t *testing.T) {
	f := newFamily(t, pickEach)
	big := `"` + strings.Repeat("x", 100<<10) + `"`
	f.agent = func(_, operation string, _ json.RawMessage) (events.Outcome, string) { return events.Completed, big }
	task := f.submit("o", "pick", `{"items":["a","b","c","d"]}`)
	if task.State != events.StateUndone || task.Error.Code != events.CodeTooLarge || string(task.Error.Details) != `{"item":2}` {
		t.Errorf("%s with %v", task.State, task.Error)
	}
	if x := f.tasks["o/pick/2"]; x.State != events.StateUndone {
		t.Errorf("item 2 is %s", x.State)
	}
	f.verified()
}

// TestItemOutputsProjected fails the step when 100 of its items show that the outputs won't fit, not after the last one.
func TestItemOutputsProjected(t *testing.T) {
	f := newFamily(t, pickEach)
	f.agent = func(_, _ string, _ json.RawMessage) (events.Outcome, string) {
		return events.Completed, `"` + strings.Repeat("x", 1000) + `"`
	}
	task := f.submit("o", "pick", `{"items":[`+strings.Repeat(`"a",`, 399)+`"a"]}`)
	if task.State != events.StateUndone || task.Error.Code != events.CodeTooLarge || f.tasks["o/pick/150"] != nil {
		t.Errorf("%s with %v", task.State, task.Error)
	}
	f.verified()
}

// TestItemOutputsSummary has outputs that together exceed every bound of a task. Its output has their numbers.
func TestItemOutputsSummary(t *testing.T) {
	f := newFamily(t, strings.Replace(pickEach, "on_item_error: fail", "on_item_error: collect\n    outputs: summary", 1))
	big := `"` + strings.Repeat("x", 100<<10) + `"`
	f.agent = func(_, _ string, input json.RawMessage) (events.Outcome, string) {
		if strings.Contains(string(input), "bad") {
			return events.Rejected, `{"code":"bad","message":"` + big[1:100] + `"}`
		}
		return events.Completed, big
	}
	task := f.submit("o", "pick", `{"items":["a","b","c","bad","d","e","f","g","h","i"]}`)
	if task.State != events.StateProcessed || string(task.Steps[0].Output) != `{"count":10,"completed":9,"failed":1}` {
		t.Errorf("%s with %v, output %.80s", task.State, task.Error, task.Steps[0].Output)
	}
	if x := f.tasks["o/pick/9"]; x == nil || string(x.Output) != big {
		t.Error("the task of item 9 doesn't have its output")
	}
	f.verified()
}

// TestItemsAreVerifiedWithoutKeptTasks feeds the log to a checker that drops ended tasks, as the tool does.
func TestItemsAreVerifiedWithoutKeptTasks(t *testing.T) {
	f := newFamily(t, pickEach)
	f.verify = verify.New(verify.Options{Partitions: 1, Inputs: true, Whole: true})
	f.verify.Event(&f.log[0])
	f.submit("o", "pick", `{"items":["a","b","c"]}`)
	f.command("o", events.UndoTask, func(x *events.Control) { x.Processed = true })
	f.verified()
}
