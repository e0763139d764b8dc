package console

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/consoleapi"
	"github.com/waybill-run/waybill/internal/replay"
	"github.com/waybill-run/waybill/internal/verify"
)

// task returns a task. If its history isn't readable to the end, it is returned as of the last readable event,
// with the unreadable one.
func (c *call) task(in *taskRequest) (*consoleapi.Task, error) {
	h, task, unreadable, err := c.foldTask(in)
	if err != nil {
		return nil, err
	}
	v := &consoleapi.Task{TaskView: task.View(h.owner, h.partition, h.next), ErrorGroup: h.group}
	if !holdsBelow(&v.TaskView) {
		if v.Prediction, err = c.predict(h.row, needsOfPlan(task.Plan)); err != nil {
			return nil, err
		}
	}
	if unreadable != nil {
		v.Unreadable = unreadableOf(unreadable.record, unreadable.why)
	}
	return v, nil
}

type timelineRequest struct {
	taskRequest
	After eventSeq `query:"after" jsonschema:"The number of an event: only later ones are listed. Absent: all."`
}

func (c *call) timeline(in *timelineRequest) (*consoleapi.Timeline, error) {
	h, err := c.readPart(&in.taskRequest, historyPart{after: uint64(in.After), until: math.MaxUint64})
	if err != nil {
		return nil, err
	}
	v := &consoleapi.Timeline{Task: h.id, Lines: make([]events.Line, 0, len(h.records)), Unreadable: []consoleapi.Unreadable{}, AsOf: h.reflectedOffset()}
	for i := range h.records {
		r := &h.records[i]
		if line, err := h.line(r); err == nil {
			v.Lines = append(v.Lines, line)
		} else {
			v.Unreadable = append(v.Unreadable, *unreadableOf(r, err))
		}
	}
	return v, nil
}

type taskStateRequest struct {
	taskRequest
	Seq eventSeq `query:"seq" jsonschema:"The number of the event. Absent: the last one."`
}

// eventSeq is the seq of an event; 0: none was asked for.
type eventSeq uint64

func (s *eventSeq) UnmarshalText(text []byte) error {
	n, err := strconv.ParseUint(string(text), 10, 63)
	if err != nil || n == 0 {
		return fmt.Errorf("must be the seq of an event, from 1")
	}
	*s = eventSeq(n)
	return nil
}

// taskState returns a task as of an event.
func (c *call) taskState(in *taskStateRequest) (*consoleapi.TaskAtEvent, error) {
	until := uint64(in.Seq)
	if until == 0 {
		until = math.MaxUint64
	}
	h, err := c.historyFrom(&in.taskRequest, until)
	if err != nil {
		return nil, err
	}
	last := len(h.records) - 1
	if last < 0 || in.Seq > 0 && h.seqOf(last) != uint64(in.Seq) {
		return nil, notFound("task %q has no event %d; its last is %d", consoleapi.Printable(h.id), in.Seq, h.lastSeq)
	}
	for i := range last {
		_ = h.advance(i) // the step has it
	}
	c.checkpoints.keep(h.id, h.kept)
	s := h.before
	step := h.step(s, last)
	v := &consoleapi.TaskAtEvent{Task: h.id, Seq: step.Seq, LastSeq: max(h.lastSeq, step.Seq), Event: step.Line, Changes: make([]consoleapi.Change, len(step.Changes)),
		Fault: step.Fault, AsOf: h.reflectedOffset()}
	if view := s.View(); view != nil {
		v.State = &consoleapi.Task{TaskView: *view}
	}
	for i, change := range step.Changes {
		v.Changes[i] = consoleapi.Change(change)
	}
	return v, nil
}

// advance folds a record. Its error says why it can't be folded. Every checkpointEvents events the fold is kept.
func (h *history) advance(i int) error {
	r, s := &h.records[i], h.before
	s.Skip(r, h.lost[r.Offset])
	if s.Err() != nil {
		return s.Err()
	}
	if at := h.folded + i + 1; at%checkpointEvents == 0 && at <= len(h.places) && h.places[at-1].Offset == r.Offset {
		h.kept = append(h.kept, checkpoint{at, h.places[at-1], s.Clone()})
	}
	return nil
}

// seqOf returns the seq of a record, by its headers. A record without one has the next after its predecessor.
func (h *history) seqOf(i int) uint64 {
	if _, seq, err := events.EventName(&h.records[i]); err == nil {
		return seq
	}
	if i > 0 {
		return h.seqOf(i-1) + 1
	}
	if h.folded > 0 {
		return h.places[h.folded-1].Seq + 1
	}
	return 1
}

// step adds a record to a stepper.
func (h *history) step(s *replay.Stepper, i int) *replay.Step {
	r := &h.records[i]
	var step *replay.Step
	if why := h.lost[r.Offset]; why != nil {
		step = s.Lost(r.Partition, r.Offset, why)
	} else {
		step, _ = s.Add(r) // the step has the error
	}
	step.Seq = h.seqOf(i)
	return step
}

// chain checks the history of a task.
func (c *call) chain(in *taskRequest) (*consoleapi.Chain, error) {
	h, err := c.history(in)
	if err != nil {
		return nil, err
	}
	one := verify.CheckTask(c.cfg.Namespace, c.cfg.Partitions, h.records, h.lost, c.cfg.Now())
	v := &consoleapi.Chain{Task: h.id, Events: one.Events, Unbroken: len(one.Faults) == 0, Sealed: one.Sealed, LastHash: one.Hash, Faults: []consoleapi.ChainFault{},
		Unchecked: verify.NotOfOneTask, AsOf: h.reflectedOffset()}
	for _, f := range one.Faults {
		fault := consoleapi.ChainFault{Promise: f.Promise, What: consoleapi.Printable(f.What)}
		for i := range h.records {
			if f.Topic != "" && h.records[i].Offset == f.Offset {
				fault.Seq, fault.Offset = h.seqOf(i), strconv.FormatInt(f.Offset, 10)
			}
		}
		v.Faults = append(v.Faults, fault)
	}
	return v, nil
}

// commands lists which commands to a task are allowed.
func (c *call) commands(in *taskRequest) (*consoleapi.CommandList, error) {
	h, task, unreadable, err := c.foldTask(in)
	if err != nil {
		return nil, err
	}
	v := &consoleapi.CommandList{Task: h.id, State: task.State, Commands: []consoleapi.CommandChoice{}, AsOf: h.reflectedOffset()}
	for _, check := range replay.Commands(task, c.otherVersions(task), c.cfg.Now()) {
		if unreadable != nil { // the scheduler stops such a task
			check.Why = "an event of the task can't be read, so no scheduler of this build changes it: " + unreadable.String()
		}
		v.Commands = append(v.Commands, c.choice(&check))
	}
	return v, nil
}

// otherVersionsMax bounds the versions that a task is compared with. The newest ones count.
const otherVersionsMax = 10

// otherVersions returns the other versions of a task's workflow that this build can use, the newest first.
func (c *call) otherVersions(task *events.Task) (list []replay.Version) {
	if !task.Open() {
		return nil
	}
	for _, w := range slices.Backward(c.cfg.Cluster.Workflows()) {
		if w.Name != task.Workflow || w.Version == task.Version || len(list) == otherVersionsMax {
			continue
		}
		if d, deleted := c.cfg.Cluster.Definition(w.Name, w.Version); d != nil && !deleted {
			list = append(list, replay.VersionOf(d))
		}
	}
	return list
}

// choice adds to what a task's state says of a command what the caller's role says.
func (c *call) choice(check *replay.CommandCheck) consoleapi.CommandChoice {
	role := commandRole
	v := consoleapi.CommandChoice{Command: "signal", Name: check.Signal}
	if x := check.Control; x != nil {
		v = consoleapi.CommandChoice{Command: string(x.Command), Keep: x.Keep, Processed: x.Processed, Step: x.Step, As: x.As, Version: x.Version}
		if x.Processed {
			role = UndoProcessed
		}
	} else {
		role = signalRole
	}
	v.Role = role.String()
	switch {
	case check.Why != "":
		v.RefusedBy, v.Why = "state", consoleapi.Printable(check.Why)
	case c.readOnly() != "":
		v.RefusedBy, v.Why = "read_only", c.readOnly()
	case c.who.role < role:
		v.RefusedBy, v.Why = "role", lacksRole(c.who, role)
	default:
		v.Allowed = true
	}
	return v
}
