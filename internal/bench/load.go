package bench

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/waybill-run/waybill/workflow"
)

// Load is the tasks of a run, and how they arrive.
type Load struct {
	Tasks  int `json:"tasks"`  // measured tasks
	Warmup int `json:"warmup"` // tasks before them that aren't measured

	Steps   int  `json:"steps"`
	FanOut  bool `json:"fan_out"` // one step, then all but one in parallel, then one; otherwise one after the other
	Payload int  `json:"payload"` // approximate bytes of a task's input

	Inflight int     `json:"inflight"` // maximum tasks in flight; 0: unbounded (with a rate)
	Rate     float64 `json:"rate"`     // tasks per second; 0: as fast as they end

	Partitions int32 `json:"partitions"`
	Workers    int   `json:"workers"`

	// TimeoutShare is the share of tasks with a step whose first attempt isn't answered. UndoShare is the share of
	// tasks whose last step is rejected, so that the task is undone.
	TimeoutShare  float64       `json:"timeout_share"`
	UndoShare     float64       `json:"undo_share"`
	AttemptWithin time.Duration `json:"-"` // complete_within of an attempt
}

// The bounds of a load.
const (
	maxTasks   = 50_000_000
	maxSteps   = workflow.MaxSteps
	minPayload = 64
	maxPayload = 100_000
	maxRate    = 1_000_000.0
)

// DefaultLoad returns the defaults.
func DefaultLoad() Load {
	return Load{Tasks: 50_000, Warmup: 5_000, Steps: 3, Payload: 300, Inflight: 2_000, Partitions: 12, Workers: 2, AttemptWithin: 10 * time.Second}
}

// Check returns all faults of a load.
func (l *Load) Check() error {
	var faults []error
	fault := func(bad bool, format string, args ...any) {
		if bad {
			faults = append(faults, fmt.Errorf(format, args...))
		}
	}
	fault(l.Tasks < 1 || l.Tasks > maxTasks, "tasks %d: must be 1 to %d", l.Tasks, maxTasks)
	fault(l.Warmup < 0 || l.Warmup > maxTasks, "warmup %d: must be 0 to %d", l.Warmup, maxTasks)
	fault(l.Steps < 1 || l.Steps > maxSteps, "steps %d: must be 1 to %d", l.Steps, maxSteps)
	fault(l.FanOut && l.Steps < 3, "fan-out: %d steps: must be at least 3, because the first and the last run alone", l.Steps)
	fault(l.Payload < minPayload || l.Payload > maxPayload, "payload %d: must be %d to %d bytes", l.Payload, minPayload, maxPayload)
	fault(l.Inflight < 0 || l.Inflight == 0 && l.Rate == 0, "inflight %d: must be at least 1, or 0 with a rate", l.Inflight)
	fault(!(l.Rate >= 0 && l.Rate <= maxRate), "rate %v: must be 0 to %v tasks a second", l.Rate, maxRate)
	fault(l.Partitions < 1, "partitions %d: must be at least 1", l.Partitions)
	fault(l.Workers < 1, "workers %d: must be at least 1", l.Workers)
	fault(l.UndoShare > 0 && l.Steps > undoStepsMost, "undo-share: %d steps: must be at most %d; the steps of longer tasks have no undo", l.Steps, undoStepsMost)
	fault(!(l.TimeoutShare >= 0 && l.UndoShare >= 0 && l.TimeoutShare+l.UndoShare <= 1),
		"shares: %v time out and %v are undone: each must be 0 to 1, and their sum at most 1", l.TimeoutShare, l.UndoShare)
	fault(l.AttemptWithin < 100*time.Millisecond, "attempt-within %v: must be at least 100ms", l.AttemptWithin)
	return errors.Join(faults...)
}

// all returns the number of tasks of a run.
func (l *Load) all() int { return l.Warmup + l.Tasks }

// kind says whether a task times out or is undone.
type kind uint8

const (
	plain kind = iota
	timesOut
	isUndone
)

// kindOf distributes the shares over the tasks, deterministically.
func (l *Load) kindOf(n int) kind {
	const golden = 2654435769 // 2^32 by the golden ratio: neighbours differ most
	at := float64(uint32(n)*golden) / (1 << 32)
	switch {
	case at < l.UndoShare:
		return isUndone
	case at < l.UndoShare+l.TimeoutShare:
		return timesOut
	}
	return plain
}

// The workflow of the load.
const (
	workflowName = "bench"
	stepPrefix   = "step-"
	taskWithin   = 24 * time.Hour
	maxAttempts  = 5

	undoStepsMost = 500
	backoff       = 200 * time.Millisecond
)

// agents are the agents of the steps, in turn.
var agents = []string{"bench-a", "bench-b", "bench-c"}

// Definition returns the workflow of the load. Each step gets the task's id and the submission's input, and can be
// undone.
func (l *Load) Definition() (*workflow.Definition, error) {
	b := workflow.New(workflowName, 1).CompleteWithin(taskWithin).AttemptWithin(l.AttemptWithin).
		Retry(workflow.Retry{MaxAttempts: maxAttempts, Backoff: workflow.Duration(backoff), Factor: 2})
	for i := range l.Steps {
		b.Step(workflow.Step{ID: stepID(i), Agent: agents[i%len(agents)], Operation: "work", Needs: l.needs(i),
			Input: map[string]any{"task": "${ task.id }", "total": "${ input.total }", "details": "${ input.details }"},
			Undo:  l.undo()})
	}
	return b.Output(map[string]any{"result": "${ steps['" + stepID(l.Steps-1) + "'].output.result }"}).Build()
}

// undo returns the undo of each step. A plan of hundreds of steps has no space for undos.
func (l *Load) undo() *workflow.Undo {
	if l.Steps > undoStepsMost {
		return nil
	}
	return &workflow.Undo{Operation: "undo"}
}

func stepID(i int) string { return stepPrefix + strconv.Itoa(i+1) }

// stepOf is the inverse of stepID.
func stepOf(id string) (int, bool) {
	digits, ok := strings.CutPrefix(id, stepPrefix)
	i, err := strconv.Atoi(digits)
	return i - 1, ok && err == nil && i > 0
}

func (l *Load) needs(i int) []string {
	switch {
	case i == 0:
		return nil
	case !l.FanOut:
		return []string{stepID(i - 1)}
	case i < l.Steps-1:
		return []string{stepID(0)}
	}
	first := max(1, l.Steps-1-workflow.MaxNeeds) // the task's end waits for the others, too
	all := make([]string, 0, l.Steps-1-first)
	for k := first; k < l.Steps-1; k++ {
		all = append(all, stepID(k))
	}
	return all
}
