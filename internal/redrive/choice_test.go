package redrive

import (
	"fmt"
	"strings"
	"testing"

	"github.com/waybill-run/waybill/events"
)

const ns = events.Namespace("waybill.")

// letter returns the dead letter of a record of an inbox, at an offset of a partition.
func letter(partition int32, offset int64, r events.Record, reason events.Reason) *events.Record {
	l := events.Deadletter(ns, "scheduler", &r, &events.Unusable{Reason: reason})
	l.Partition, l.Offset = partition, offset
	return &l
}

func submission(id string) events.Record {
	return (&events.Submission{ID: id, Workflow: "w", Input: []byte("{}")}).Record(ns, "test")
}

// decided returns the decisions of a choice as text.
func decided(list []Letter, missing []Position) string {
	var all []string
	for i := range list {
		all = append(all, strings.TrimRight(fmt.Sprintf("%d/%s %s %s", list[i].Partition, list[i].Offset, list[i].Done, list[i].Why), " "))
	}
	for _, at := range missing {
		all = append(all, at.String()+" missing")
	}
	return strings.Join(all, "; ")
}

// TestChoice: which dead letters are selected, and which of those are refused.
func TestChoice(t *testing.T) {
	const workflow, conflict = events.ReasonUnknownWorkflow, events.ReasonIDConflict
	again := func(l *events.Record) events.Record { // as it is written again
		r, err := events.Redrive(ns, "test", l)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	first := letter(1, 4, submission("a"), workflow)
	forged := submission("c")
	forged.Headers = again(first).Headers // claims to be the redrive of 1/4, with other bytes
	cut := letter(0, 9, submission("b"), workflow)
	cut.Value = cut.Value[:5]
	for _, x := range []struct {
		name    string
		letters []*events.Record
		named   []Position
		reasons []string
		want    string
	}{
		{"all", []*events.Record{first, letter(0, 7, submission("b"), conflict)}, nil, nil,
			"0/7 refused the id is another submission's; submit it under another id; 1/4 would_write"},
		{"by reason", []*events.Record{first, letter(0, 7, submission("b"), conflict)}, nil, []string{string(workflow)}, "1/4 would_write"},
		{"by position", []*events.Record{first, letter(0, 7, submission("b"), workflow)}, []Position{{0, 7}, {0, 8}}, nil, "0/7 would_write; 0/8 missing"},
		{"named, with another reason", []*events.Record{first}, []Position{{1, 4}}, []string{string(conflict)}, "1/4 missing"},
		{"cut", []*events.Record{cut}, nil, nil, "0/9 refused 5 of 36 bytes of the original are kept"},
		{"redriven before, and dead-lettered again", []*events.Record{first, letter(0, 8, again(first), workflow)}, nil, nil,
			"0/8 would_write; 1/4 refused it was written again already, and is now dead letter 0/8"},
		{"the later one isn't selected", []*events.Record{first, letter(0, 8, again(first), workflow)}, []Position{{1, 4}}, nil,
			"1/4 refused it was written again already, and is now dead letter 0/8"},
		{"a forged redrive of it", []*events.Record{first, letter(0, 8, forged, workflow)}, []Position{{1, 4}}, nil, "1/4 would_write"},
	} {
		c := NewChoice(ns, "test", x.named, x.reasons)
		for _, l := range x.letters {
			c.Add(l)
		}
		if got := decided(c.Letters()); got != x.want {
			t.Errorf("%s: %q, want %q", x.name, got, x.want)
		}
	}
}

func TestParsePosition(t *testing.T) {
	if at, err := ParsePosition("3/17"); err != nil || at != (Position{3, 17}) {
		t.Errorf("%v, %v", at, err)
	}
	for _, text := range []string{"", "3", "3/", "a/1", "3/17/1", "-1/2"} {
		if at, err := ParsePosition(text); err == nil {
			t.Errorf("%q is %v", text, at)
		}
	}
}
