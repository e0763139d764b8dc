package console

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/projections"
	"github.com/waybill-run/waybill/scheduler"
	"github.com/waybill-run/waybill/workflow"
)

// family runs tasks with children: the records of each decision are the next inputs, and the events are those of a recording.
type family struct {
	*recording
	t     *testing.T
	env   scheduler.Env
	queue []events.Record
	agent func(operation string, value json.RawMessage) (events.Outcome, string)
	cause int64
}

func newFamily(t *testing.T, definitions ...string) *family {
	t.Helper()
	f := &family{t: t, recording: &recording{cluster: "c", partitions: recordedPartitions, records: map[int32][]events.Record{}, other: map[string][]events.Record{},
		tasks: map[string]*events.Task{}, within: defaultTimeouts, unsettled: map[int32]int{}, definitions: map[string]*workflow.Definition{}}}
	compiled := &scheduler.CompiledDefinitions{Rejected: func(key string, err error) { t.Fatalf("%s: %v", key, err) }}
	for _, text := range definitions {
		d := definitionOf(t, text)
		f.definitions[d.Key()] = d
		compiled.Apply(&events.Record{Key: []byte(d.Key()), Value: d.Stored()})
	}
	f.now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	f.env = scheduler.Env{Namespace: events.DefaultNamespace, Source: "test", Epoch: 1, Definitions: compiled, DefinitionsRead: true, Requests: map[string]int32{"stock": 1},
		Token: func(task string, ref events.RequestRef) string { return fmt.Sprintf("token%d%s", len(task), ref.Step) }}
	f.agent = func(_ string, value json.RawMessage) (events.Outcome, string) { return events.Completed, string(value) }
	for p := range f.partitions {
		e := &events.Event{At: f.now, Cause: events.Cause{Inbox: events.Tasks}, Seq: 1, Epoch: 1, Fact: &events.PartitionClaimed{Owner: "test"}}
		f.write(e.Record(f.env.Namespace, "test", p, e.Seal(nil)), p)
	}
	return f
}

func (f *family) write(r events.Record, p int32) {
	r.Partition, r.Offset, r.Time = p, int64(len(f.records[p])), f.now
	f.records[p] = append(f.records[p], r)
	if len(r.Key) > 0 {
		f.fold(f.t, &r)
	}
}

// decide decides a record of an inbox, a second after the one before.
func (f *family) decide(r events.Record) {
	f.t.Helper()
	f.now = f.now.Add(time.Second)
	f.cause++
	inbox, _ := events.ParseInbox(strings.TrimPrefix(r.Topic, string(f.env.Namespace)))
	p := events.Partition(r.Key, f.partitions)
	r.Partition, r.Offset, r.Time = p, f.cause, f.now
	id, in, err := events.DecodeInput(inbox, &r)
	if err != nil {
		f.t.Fatalf("%s: %v", r.Value, err)
	}
	f.env.Now, f.env.Partition = f.now, p
	for _, r := range scheduler.Decide(f.tasks[id].Clone(), in, events.Cause{Inbox: inbox, Offset: f.cause}, &f.env).Records {
		if r.Topic == f.env.Namespace.Events() {
			f.write(r, p)
		} else {
			f.queue = append(f.queue, r)
		}
	}
}

// run decides until no record is left. Agents that answer nothing leave their attempts running.
func (f *family) run() {
	f.t.Helper()
	for len(f.queue) > 0 {
		r := f.queue[0]
		f.queue = f.queue[1:]
		switch topic := r.Topic; {
		case topic == f.env.Namespace.Inbox(events.Tasks), topic == f.env.Namespace.Inbox(events.Replies):
			f.decide(r)
		case strings.HasPrefix(topic, f.env.Namespace.Requests("")):
			request, _ := r.Header(events.HeaderRequest)
			operation, _ := r.Header(events.HeaderOperation)
			task, ref, token, err := events.ParseRequest(request)
			if err != nil {
				f.t.Fatal(err)
			}
			if outcome, body := f.agent(operation, r.Value); outcome != "" {
				x := &events.Reply{Task: task, Ref: ref, Token: token, Outcome: outcome, Effect: events.EffectNone, Body: json.RawMessage(body)}
				f.decide(x.Record(f.env.Namespace, "test"))
			}
		}
	}
}

func (f *family) submit(id, workflow, input string) *events.Task {
	f.t.Helper()
	x := &events.Submission{ID: id, Workflow: workflow, Input: json.RawMessage(input)}
	f.decide(x.Record(f.env.Namespace, "test"))
	f.run()
	return f.tasks[id]
}

// TestListHidesItems checks that the default list of tasks and its counts have no tasks of items, and that the filter by
// their parent has them.
func TestListHidesItems(t *testing.T) {
	f := newFamily(t, pickEach)
	f.submit("p-1", "pick", `{"items":["a","b","c"]}`)
	s := f.console(t, nil)
	if ids := f.listed(s, ""); ids != "p-1" {
		t.Errorf("the list has %s", ids)
	}
	if ids := f.listed(s, "parent:p-1"); ids != "p-1/pick/0 p-1/pick/1 p-1/pick/2" {
		t.Errorf("the children are %s", ids)
	}
	if ids := f.listed(s, "id:p-1"); ids != "p-1" {
		t.Errorf("by ids the list has %s", ids)
	}
}

// TestFilterByParent checks the term parent of a filter.
func TestFilterByParent(t *testing.T) {
	f := projections.Filter{}
	if err := addTerm(&f, "parent", "order-7", time.Now()); err != nil || f.Parent != "order-7" {
		t.Errorf("%+v, %v", f, err)
	}
	if err := addTerm(&f, "parent", "", time.Now()); err == nil {
		t.Error("no id is taken")
	}
}
