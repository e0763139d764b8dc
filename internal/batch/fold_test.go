package batch

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
)

var records = Records{Namespace: events.DefaultNamespace, Source: "test"}

// log is records of the topic of batches.
type log struct {
	t  *testing.T
	at time.Time
	rs []events.Record
}

func (l *log) add(r events.Record, err error) {
	l.t.Helper()
	if err != nil {
		l.t.Fatal(err)
	}
	r.Time, r.Offset = l.at, int64(len(l.rs))
	l.rs = append(l.rs, r)
}

func (l *log) order(o Order, targets []Target) {
	l.t.Helper()
	pieces, order, err := records.Ordered(o, targets)
	for i := range pieces {
		l.add(pieces[i], err)
	}
	l.add(order, err)
}

func (l *log) fold() *Fold {
	f := NewFold()
	for i := range l.rs {
		f.Apply(&l.rs[i])
	}
	return f
}

// The records as they are stored. A change needs a new version of their type.
func TestRecords(t *testing.T) {
	l := &log{t: t}
	l.order(Order{ID: "b-1", Draft: "d-1", Command: events.Resubmit, By: "olga", Why: "the bank is back", Filter: "state:held", Rate: 200, Canary: 1, CanaryWithin: 60000}, held(1))
	l.add(records.Reported("b-1", Report{Results: []ReportedResult{{Number: 0, Status: Passed, State: events.StateProcessed}}}))
	l.add(records.StopRequested("b-1", StopRequest{By: "olga", Why: "enough"}))
	l.add(records.Ended("b-1", End{Why: "it recurs", TimedOut: true}))
	want := []string{
		`waybill.batch.targets.v1 {"draft":"d-1","targets":[{"task":"o-0","workflow":"order","version":1,"state":"error","step":"charge","code":"tries_exhausted"}]}`,
		`waybill.batch.selected.v1 {"id":"b-1","draft":"d-1","command":"resubmit","by":"olga","why":"the bank is back","filter":"state:held","rate":200,"canary":1,"canary_within_ms":60000,"tasks":1}`,
		`waybill.batch.reported.v1 {"results":[{"n":0,"status":"passed","state":"processed"}]}`,
		`waybill.batch.stop_requested.v1 {"by":"olga","why":"enough"}`,
		`waybill.batch.ended.v1 {"why":"it recurs","timed_out":true}`,
	}
	for i := range l.rs {
		kind, _ := l.rs[i].Header(events.HeaderType)
		if got := kind + " " + string(l.rs[i].Value); got != want[i] || string(l.rs[i].Key) != "b-1" || l.rs[i].Topic != "waybill.batches" {
			t.Errorf("%s\nwant %s", got, want[i])
		}
	}
}

func TestFold(t *testing.T) {
	l := &log{t: t, at: begin}
	l.order(Order{ID: "b-1", Draft: "d-1", Command: events.Resubmit, Why: "x"}, held(2500))
	l.order(Order{ID: "b-1", Draft: "d-2", Command: events.Cancel, Why: "y"}, held(3)) // the first one counts
	l.add(records.Reported("b-1", Report{Results: []ReportedResult{{0, Passed, events.StateProcessed, ""}, {1, Unanswered, "", "no answer"}, {2, Accepted, events.StateProcessing, ""}, {9999, Passed, "", ""}}, Trouble: "no answer"}))
	l.add(records.Reported("b-1", Report{Results: []ReportedResult{{0, Unanswered, "", "of another process"}, {1, Refused, events.StateProcessed, "its state"}}}))
	l.add(records.Reported("b-2", Report{Results: []ReportedResult{{0, Passed, "", ""}}}))
	l.add(events.Record{Topic: "waybill.batches", Key: []byte("b-1"), Value: []byte("{}")}, nil)
	f := l.fold()
	k := f.Find("b-1")
	if k == nil || k.Command != events.Resubmit || len(k.Targets) != 2500 || f.Find("b-2") != nil || f.Unreadable != 1 || len(f.All()) != 1 || len(f.Active()) != 1 {
		t.Fatalf("%+v", f)
	}
	if k.Results[0].Status != Passed || k.Results[1].Status != Refused || k.Results[1].Why != "its state" || k.Counts[Waiting] != 2497 || k.Counts[Unanswered] != 0 || k.Trouble != "" {
		t.Errorf("%+v, %v", k.Results[:3], k.Counts)
	}
	if list, next := k.Page(0, Waiting, 10); len(list) != 10 || next != 13 || list[0].Task != "o-3" {
		t.Errorf("%+v, %d", list, next)
	}
	l.add(records.Ended("b-1", End{}))
	l.add(records.Ended("b-1", End{Why: "of another process"}))
	if k = l.fold().Find("b-1"); k.Ended == nil || k.Ended.Why != "" || !k.EndedAt.Equal(begin) || len(l.fold().Active()) != 0 {
		t.Errorf("%+v", k.Ended)
	}
}

// Targets without their order, or an order without all of its targets, are no batch.
func TestFoldLeavesOutDrafts(t *testing.T) {
	l := &log{t: t, at: begin}
	l.order(Order{ID: "b-1", Draft: "d-1", Command: events.Resubmit, Why: "x"}, held(2500))
	l.rs = slices.Delete(l.rs, 1, 2)
	l.order(Order{ID: "b-2", Draft: "d-2", Command: events.Resubmit, Why: "x"}, held(3))
	l.rs = l.rs[:len(l.rs)-1]
	l.at = begin.Add(time.Hour)
	l.order(Order{ID: "b-3", Draft: "d-3", Command: events.Resubmit, Why: "x"}, held(3))
	if f := l.fold(); len(f.All()) != 1 || f.Find("b-3") == nil || len(f.drafts) != 0 {
		t.Errorf("%d batches, %d drafts", len(f.All()), len(f.drafts))
	}
}

// What is kept is bounded: the oldest batches that have ended lose their results, and are forgotten later.
func TestFoldForgets(t *testing.T) {
	f, targets := NewFold(), held(KeptTasksMax/4)
	add := func(id string, targets []Target, ended bool) {
		f.addTargets(begin, &targetsPiece{id, targets})
		f.addOrder(begin, id, &Order{ID: id, Draft: id, Command: events.Resubmit, Why: "x", Tasks: len(targets)})
		if r, err := records.Ended(id, End{}); err != nil {
			t.Fatal(err)
		} else if ended {
			f.Apply(&r)
		}
	}
	add("open", targets[:10], false)
	for i := range 5 {
		add(fmt.Sprint("large-", i), targets[:TasksMax], true)
	}
	if first, last := f.Find("large-0"), f.Find("large-4"); !first.Dropped || first.Counts[Waiting] != TasksMax || last.Dropped || f.tasks > KeptTasksMax {
		t.Errorf("%d tasks are kept", f.tasks)
	}
	for i := range KeptMax {
		add(fmt.Sprint("small-", i), targets[:1], true)
	}
	if len(f.All()) != KeptMax || f.Find("open") == nil || f.Find("large-4") != nil {
		t.Errorf("%d batches are kept", len(f.All()))
	}
}

// A record stays far below what a broker takes, whatever the ids.
func TestRecordsAreBounded(t *testing.T) {
	targets := held(5000)
	for i := range targets {
		targets[i].Task = strings.Repeat("x", events.MaxTaskIDBytes-5) + fmt.Sprintf("%05d", i)
	}
	pieces, order, err := records.Ordered(Order{ID: "b-1"}, targets)
	if err != nil || len(pieces) < 5 || len(order.Value) > 1000 {
		t.Fatalf("%d pieces, %v", len(pieces), err)
	}
	for i := range pieces {
		if len(pieces[i].Value) > 2*pieceBytesMax {
			t.Errorf("a record has %d bytes", len(pieces[i].Value))
		}
	}
	r, err := records.Reported("b-1", Report{Results: []ReportedResult{{0, Refused, "", strings.Repeat("ä", 10_000)}}})
	if err != nil || len(r.Value) > 2*whyMaxBytes {
		t.Errorf("%d bytes, %v", len(r.Value), err)
	}
}
