package replay_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/replay"
	"github.com/waybill-run/waybill/workflow"
)

// An open task is run on under both definitions, one that has ended is run again.
func TestOutlook(t *testing.T) {
	old := program(t, fmt.Sprintf(order, 1, 1, ""))
	open := recordOf(t, old)
	open.reply(1, "reserve", 1, events.Completed, `{"shelf":7}`)
	ended := failed(t)
	loop := `
workflow: order
version: 2
on_error: hold
complete_within: 10m
defaults: {complete_within: 10s, retry: {max_attempts: 1}}
steps:
  reserve: {agent: stock, operation: reserve}
  charge: {agent: bank, operation: charge, needs: [reserve], input: {shelf: "${ steps.reserve.output.row }"}}
`
	for _, tt := range []struct {
		name    string
		task    *history
		program *workflow.Program
		assume  replay.Assume
		want    string
	}{
		{"open, more attempts, all goes well", open, program(t, fmt.Sprintf(order, 2, 5, "")), replay.AssumeCompleted, "processing: processed, then processed"},
		{"open, more attempts, all fails", open, program(t, fmt.Sprintf(order, 2, 2, "")), replay.AssumeFailed, "processing: error, then error, changed at waybill.step.waiting.v1 charge"},
		{"open, a step less", open, program(t, loop), replay.AssumeCompleted, "processing: processed, then processed, changed at waybill.step.started.v1 ship"},
		{"ended, more attempts", ended, program(t, fmt.Sprintf(order, 2, 5, "")), replay.AssumeCompleted, "undone: undone, then processed, changed at waybill.step.errored.v1 charge"},
		{"ended, as it was", ended, old, replay.AssumeCompleted, "undone: undone, then undone"},
		{"ended, an expression that fails", ended, program(t, loop), replay.AssumeCompleted, "undone: undone, then error, changed at waybill.step.started.v1 charge"},
	} {
		p := &replay.Plan{Program: tt.program, Assume: tt.assume, Old: func(name string, version int) (*workflow.Program, error) {
			if name != "order" || version != 1 {
				return nil, errors.New("another definition was asked for")
			}
			return old, nil
		}}
		o, err := p.Look(tt.task.records)
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		got := fmt.Sprintf("%s: %s, then %s", o.Now, o.Otherwise, o.Then)
		if o.Changed {
			got += fmt.Sprintf(", changed at %s %s", o.First.Type, o.First.Step)
		}
		if got != tt.want {
			t.Errorf("%s: %s\nwant %s", tt.name, got, tt.want)
		}
	}
}

// A choice holds what is open, or the last few that ended, and says what it can't read.
func TestChoice(t *testing.T) {
	records := recorded(t)
	ended, open := map[string]bool{}, 0
	var last string
	for id, of := range byTask(records) {
		s := replay.NewStepper(replay.Until{}, false)
		for i := range of {
			if _, err := s.Add(&of[i]); err != nil {
				t.Fatal(err)
			}
		}
		if task := s.Task(); task.Workflow == "order" && task.Open() {
			open++
		} else if task.Workflow == "order" {
			ended[id] = true
		}
	}
	choose := func(finished int, skip string) (ids []string, broken int) {
		c := replay.NewChoice("order", finished)
		for i := range records {
			if e, err := events.DecodeEvent(&records[i]); err == nil && e.Task == skip && e.Seq == 2 {
				continue
			}
			c.Add(&records[i])
		}
		broken, err := c.Each(func(of []events.Record) error {
			ids = append(ids, string(of[0].Key))
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return ids, broken
	}
	if ids, broken := choose(0, ""); len(ids) != open || broken != 0 {
		t.Errorf("%d open tasks and %d broken, want %d", len(ids), broken, open)
	}
	ids, _ := choose(3, "")
	if len(ids) != 3 || !ended[ids[0]] || !ended[ids[2]] {
		t.Fatalf("the last three that ended: %v", ids)
	}
	last = ids[2]
	if ids, broken := choose(3, last); broken != 1 || len(ids) != 3 || ids[2] == last {
		t.Errorf("with a gap in %s: %v, %d broken", last, ids, broken)
	}
}
