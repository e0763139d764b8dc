package replay_test

import (
	"errors"
	"fmt"
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
