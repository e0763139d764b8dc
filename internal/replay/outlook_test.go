package replay_test

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/replay"
	"github.com/waybill-run/waybill/workflow"
)

// An open task is continued under both definitions. An ended task is run again.
func TestOutlook(t *testing.T) {
	old := program(t, fmt.Sprintf(order, 1, 1, ""))
	open := recordOf(t, old)
	open.reply(1, "reserve", 1, events.Completed, `{"shelf":7}`)
	ended := failed(t)
	late := recordOf(t, program(t, fmt.Sprintf(order, 1, 3, "")))
	late.reply(1, "reserve", 1, events.Completed, `{"shelf":7}`)
	late.reply(2, "charge", 1, events.Failed, `{"code":"declined"}`)
	late.recover(8) // the backoff of 1 s was over when a supervisor sent the recovery
	late.reply(9, "charge", 2, events.Completed, `{}`)
	late.reply(9, "ship", 1, events.Completed, `{}`)
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
		{"open, more attempts, all fails", open, program(t, fmt.Sprintf(order, 2, 2, "")), replay.AssumeFailed, "processing: error, then error, changed at waybill.step.started.v1 charge (then)"},
		{"open, a step less", open, program(t, loop), replay.AssumeCompleted, "processing: processed, then processed, changed at waybill.step.started.v1 ship (otherwise)"},
		{"ended, more attempts", ended, program(t, fmt.Sprintf(order, 2, 5, "")), replay.AssumeCompleted, "undone: undone, then processed, changed at waybill.step.errored.v1 charge (otherwise)"},
		{"ended, as it was, without a wait", late, program(t, fmt.Sprintf(order, 1, 3, "")), replay.AssumeCompleted, "processed: processed, then processed"},
		{"ended, as it was", ended, old, replay.AssumeCompleted, "undone: undone, then undone"},
		{"ended, an expression that fails", ended, program(t, loop), replay.AssumeCompleted, "undone: undone, then error, changed at waybill.step.started.v1 charge (otherwise)"},
	} {
		p := &replay.Plan{Program: tt.program, Assume: tt.assume, Old: func(name string, version int) (*workflow.Program, error) {
			if name != "order" || version != 1 {
				return nil, errors.New("another definition was asked for")
			}
			return old, nil
		}}
		o, err := p.Evaluate(tt.task.records)
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		got := fmt.Sprintf("%s: %s, then %s", o.Now, o.Otherwise, o.Then)
		if o.Changed {
			got += fmt.Sprintf(", changed at %s %s (%s)", o.First.Type, o.First.Step, o.FirstIn)
		}
		if got != tt.want {
			t.Errorf("%s: %s\nwant %s", tt.name, got, tt.want)
		}
	}
}

// A choice has the open tasks, or the last few that ended. It names the tasks that can't be read.
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
	choose := func(finished int, skip string, dropped ...string) (ids []string, broken int) {
		c := replay.NewChoice("order", finished)
		for i := range records {
			if e, err := events.DecodeEvent(&records[i]); err == nil && e.Task == skip && e.Seq == 2 {
				continue
			}
			c.Add(&records[i])
		}
		for _, id := range dropped {
			c.Drop(id)
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
	if ids, broken := choose(3, last, last); broken != 0 || len(ids) != 3 {
		t.Errorf("and %s dropped: %v, %d broken", last, ids, broken)
	}
	if others, broken := choose(3, "", last); broken != 0 || !slices.Equal(others, ids[:2]) {
		t.Errorf("without %s: %v, %d broken, want %v", last, others, broken, ids[:2])
	}
}

// The last ended tasks are those with the latest timestamps, in any order of reading the partitions.
func TestChoiceOfTheLast(t *testing.T) {
	records := recorded(t)
	var ended []*events.Task
	for _, of := range byTask(records) {
		if task := folded(t, of); task.Workflow == "order" && !task.Open() {
			ended = append(ended, task)
		}
	}
	slices.SortFunc(ended, byEnd)
	for seed := range uint64(20) {
		order := mixed(records, rand.New(rand.NewPCG(seed, 0)))
		for _, n := range []int{1, 3, len(ended) - 1, len(ended), len(ended) + 1} {
			var want []string
			for _, task := range ended[max(0, len(ended)-n):] {
				want = append(want, task.ID)
			}
			if got, broken := chosenOf(t, n, order); !slices.Equal(got, want) || broken != 0 {
				t.Fatalf("seed %d, the last %d that ended: %v, %d broken\nwant %v", seed, n, got, broken, want)
			}
		}
	}
}

// A task with an event after its end can't be folded. It keeps its place among the last ones and is skipped, whenever
// that event is read.
func TestChoiceOfBrokenEnd(t *testing.T) {
	tasks := byTask(recorded(t))
	var ended []*events.Task
	for _, of := range tasks {
		if task := folded(t, of); task.Workflow == "order" && !task.Open() {
			ended = append(ended, task)
		}
	}
	slices.SortFunc(ended, byEnd)
	before, last := ended[len(ended)-2].ID, ended[len(ended)-1].ID
	for _, tt := range []struct {
		broken           string
		last, passedOver int
		want             []string
	}{{last, 1, 1, nil}, {last, 2, 1, []string{before}}, {before, 1, 0, []string{last}}, {before, 2, 1, []string{last}}} {
		of := tasks[tt.broken]
		broken := append(slices.Clone(of), of[len(of)-1])
		sound := tasks[before]
		if tt.broken == before {
			sound = tasks[last]
		}
		for _, records := range [][]events.Record{slices.Concat(broken, sound), slices.Concat(sound, broken)} {
			if got, n := chosenOf(t, tt.last, records); !slices.Equal(got, tt.want) || n != tt.passedOver {
				t.Errorf("%s is broken, the last %d, %s read first: %v, %d passed over; want %v, %d", tt.broken, tt.last, records[0].Key, got, n, tt.want, tt.passedOver)
			}
		}
	}
}

// byEnd compares tasks by their end.
func byEnd(a, b *events.Task) int {
	return cmp.Or(a.UpdatedAt.Compare(b.UpdatedAt), cmp.Compare(a.ID, b.ID))
}

// chosenOf returns the result of a choice after the records.
func chosenOf(t *testing.T, finished int, records []events.Record) (ids []string, broken int) {
	t.Helper()
	c := replay.NewChoice("order", finished)
	for i := range records {
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

// folded returns a task folded from its records.
func folded(t *testing.T, records []events.Record) *events.Task {
	t.Helper()
	s := replay.NewStepper(replay.Until{}, false)
	for i := range records {
		if step, err := s.Add(&records[i]); err != nil || step.Fault != "" {
			t.Fatalf("%s: %v %+v", records[i].Key, err, step)
		}
	}
	return s.Task()
}

// mixed interleaves the records of several partitions at random. The order within each is kept.
func mixed(records []events.Record, r *rand.Rand) []events.Record {
	var order []events.Record
	rest := map[int32][]events.Record{}
	var partitions []int32
	for _, record := range records {
		if rest[record.Partition] == nil {
			partitions = append(partitions, record.Partition)
		}
		rest[record.Partition] = append(rest[record.Partition], record)
	}
	for len(partitions) > 0 {
		i := r.IntN(len(partitions))
		p := partitions[i]
		n := min(1+r.IntN(50), len(rest[p]))
		order = append(order, rest[p][:n]...)
		if rest[p] = rest[p][n:]; len(rest[p]) == 0 {
			partitions = slices.Delete(partitions, i, i+1)
		}
	}
	return order
}
