package console

import (
	"reflect"
	"slices"
	"sync"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/replay"
	"github.com/waybill-run/waybill/projections"
)

// The bounds of the folds that are kept, so that a state of a task with many events isn't folded from its first one.
const (
	checkpointEvents   = 200 // events between two kept folds of a task
	checkpointTasksMax = 16
	checkpointBytesMax = 32 << 20 // of all kept folds, estimated
)

// checkpoints are folds of the tasks whose states were asked for last. It is safe for concurrent use.
type checkpoints struct {
	mu    sync.Mutex
	tasks []*checkpointedTask // the one asked for last is the last
	bytes int
}

// checkpointedTask is the kept folds of a task, in the order of its events.
type checkpointedTask struct {
	id    string
	folds []checkpoint
	bytes int
}

// checkpoint is the fold of a task's first events.
type checkpoint struct {
	events int               // number of folded events
	last   projections.Place // of the last of them
	state  *replay.Stepper
}

// find returns the fold of the first n events of a task. n is as large as possible, and at most most; 0: nothing is kept.
// A fold counts only if its last event is where the index has it: a recreated log has other events.
func (c *checkpoints) find(id string, places []projections.Place, most int) (s *replay.Stepper, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.task(id)
	if t == nil {
		return nil, 0
	}
	for _, at := range slices.Backward(t.folds) {
		if at.events <= most && at.events <= len(places) && places[at.events-1] == at.last {
			return at.state.Clone(), at.events
		}
	}
	return nil, 0
}

// task returns a task, and makes it the last one; nil: nothing is kept of it.
func (c *checkpoints) task(id string) *checkpointedTask {
	i := slices.IndexFunc(c.tasks, func(t *checkpointedTask) bool { return t.id == id })
	if i < 0 {
		return nil
	}
	t := c.tasks[i]
	c.tasks = append(slices.Delete(c.tasks, i, i+1), t)
	return t
}

// keep keeps folds of a task, which belong to the receiver from then on.
func (c *checkpoints) keep(id string, folds []checkpoint) {
	if len(folds) == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.task(id)
	if t == nil {
		t = &checkpointedTask{id: id}
		c.tasks = append(c.tasks, t)
	}
	for _, more := range folds {
		i, there := slices.BinarySearchFunc(t.folds, more, func(a, b checkpoint) int { return a.events - b.events })
		if there {
			t.folds[i] = more // perhaps of another log
		} else {
			t.folds = slices.Insert(t.folds, i, more)
		}
	}
	c.bytes -= t.bytes
	t.bytes = 0
	var before *events.Task
	for i := range t.folds {
		task := t.folds[i].state.Task()
		t.bytes += ownBytes(before, task)
		before = task
	}
	c.bytes += t.bytes
	for len(c.tasks) > checkpointTasksMax || c.bytes > checkpointBytesMax {
		c.drop(c.tasks[0].id)
	}
}

// drop drops what is kept of a task.
func (c *checkpoints) drop(id string) {
	c.tasks = slices.DeleteFunc(c.tasks, func(t *checkpointedTask) bool {
		if t.id == id {
			c.bytes -= t.bytes
		}
		return t.id == id
	})
}

// forget drops what is kept of a task.
func (c *checkpoints) forget(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drop(id)
}

// ownBytes estimates the memory of a state that it doesn't share with an earlier one: mostly steps that have changed.
func ownBytes(before, t *events.Task) int {
	shared := before != nil && len(before.Steps) == len(t.Steps)
	n := int(taskBytes) + len(t.Output) + len(t.Steps)*int(pointerBytes)
	if !shared {
		n += len(t.Input) + len(t.Steps)*int(planStepBytes)
	}
	for i, s := range t.Steps {
		if shared && before.Steps[i] == s {
			continue
		}
		n += int(stepBytes) + len(s.Output)
		for _, r := range []*events.Run{&s.Run, s.Undo, s.Check} {
			if r != nil {
				n += int(runBytes) + len(r.Input) + len(r.Interim().Progress)
			}
		}
	}
	return n
}

var (
	taskBytes     = reflect.TypeFor[events.Task]().Size()
	pointerBytes  = reflect.TypeFor[*events.Step]().Size()
	planStepBytes = reflect.TypeFor[events.PlanStep]().Size()
	stepBytes     = reflect.TypeFor[events.Step]().Size()
	runBytes      = reflect.TypeFor[events.Run]().Size()
)
