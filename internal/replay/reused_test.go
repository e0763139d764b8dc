package replay_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/replay"
)

// forgetting is order with ids that are forgotten after a minute.
const forgetting = "dedupe_for: 1m" + order

// reused returns the history of an id that was forgotten and used again: its first task was undone, and a second one is
// running. first is the number of events of the first task.
func reused(t *testing.T) (h *history, first int) {
	t.Helper()
	h = recordOf(t, program(t, fmt.Sprintf(forgetting, 1, 1, "")))
	h.decline()
	if h.task.State != events.StateUndone {
		t.Fatalf("the first task is %s", h.task.State)
	}
	first = len(h.records)
	h.task = nil
	h.input(100, &events.Submission{ID: "o-1", Workflow: "order", Input: []byte(`{"total":9}`)})
	h.reply(101, "reserve", 1, events.Completed, `{"shelf":8}`)
	return h, first
}

// The system at an instant has the task that had an id then, though an earlier task had the id.
func TestInstantOfAReusedID(t *testing.T) {
	h, first := reused(t)
	for after, want := range map[time.Duration]events.TaskState{50 * time.Second: events.StateUndone, time.Hour: events.StateProcessing} {
		in := replay.NewInstant(noon.Add(after))
		for i := range h.records {
			in.Add(&h.records[i])
		}
		v := in.View(func(*events.Task) bool { return true })
		open := 0
		if want == events.StateProcessing {
			open = 1
		}
		if v.Broken != 0 || len(v.States) != 1 || v.States[want] != 1 || len(v.Tasks) != 1 || v.Tasks[0].State != want || v.Partitions[0].Open != open {
			t.Errorf("after %s: %+v", after, v)
		}
	}
	lost := replay.Loss{Offset: h.offset, Err: errors.New("changed")}
	s := replay.NewSurvey([]replay.Loss{lost})
	for i := range h.records {
		s.Add(&h.records[i])
	}
	var seen *events.Task
	left := s.LeftOut(func(_ string, task *events.Task) bool { seen = task; return true })
	if len(left) != 1 || seen.State != events.StateProcessing || string(seen.Input) != `{"total":9}` {
		t.Errorf("left out %+v of %d events of the first task: %+v", left, first, seen)
	}
}

// process completes the steps after the reservation.
func (h *history) process() {
	h.t.Helper()
	h.reply(102, "charge", 1, events.Completed, `{}`)
	h.reply(103, "ship", 1, events.Completed, `{}`)
}

// A plan evaluates only the last task with an id, and only if it belongs to the workflow.
func TestChoiceOfAReusedID(t *testing.T) {
	h, first := reused(t)
	chosen := func(finished int) (records []events.Record) {
		t.Helper()
		c := replay.NewChoice("order", finished)
		for i := range h.records {
			c.Add(&h.records[i])
		}
		broken, err := c.Each(func(of []events.Record) error {
			records = append(records, of...)
			return nil
		})
		if err != nil || broken != 0 {
			t.Fatalf("%d broken, %v", broken, err)
		}
		return records
	}
	same := func(a, b events.Record) bool { return a.Offset == b.Offset }
	if got := chosen(0); !slices.EqualFunc(got, h.records[first:], same) {
		t.Errorf("open: %d records, want the last %d", len(got), len(h.records)-first)
	}
	if got := chosen(3); len(got) != 0 {
		t.Errorf("ended: %d records of an open task", len(got))
	}
	h.process()
	if got := chosen(3); !slices.EqualFunc(got, h.records[first:], same) {
		t.Errorf("ended: %d records, want the last %d", len(got), len(h.records)-first)
	}
	h.task, h.env.Definitions = nil, one{program(t, "workflow: other\nversion: 1\ncomplete_within: 1m\ndefaults: {complete_within: 10s}\nsteps: {pack: {agent: parcels, operation: pack}}\n")}
	h.input(200, &events.Submission{ID: "o-1", Workflow: "other"})
	if got := append(chosen(0), chosen(3)...); len(got) != 0 {
		t.Errorf("%d records of a task of another workflow", len(got))
	}
}

// A fork is of the last task with the id. No answer of an earlier task is used.
func TestForkOfAReusedID(t *testing.T) {
	h, first := reused(t)
	h.process()
	same := program(t, fmt.Sprintf(forgetting, 1, 1, ""))
	for at := uint64(0); at <= h.task.Seq; at++ {
		f := replay.Fork{Program: same, At: at, Assume: replay.AssumeSilent}
		want, err := f.Run(h.records[first:])
		if err != nil {
			t.Fatal(err)
		}
		got := fork(t, h, f)
		if got.State != events.StateProcessed || got.At != want.At || len(got.Recorded) != len(want.Recorded) || recordedTiming(got) != recordedTiming(want) {
			t.Errorf("from event %d on: %s, %d recorded, %s; want %d recorded, %s", at, got.State, len(got.Recorded), recordedTiming(got), len(want.Recorded), recordedTiming(want))
		}
	}
}
