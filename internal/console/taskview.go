package console

import (
	"fmt"
	"math"
	"strconv"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/consoleapi"
	"github.com/waybill-run/waybill/internal/replay"
	"github.com/waybill-run/waybill/internal/verify"
)

// The roles that commands and signals need.
const (
	commandRole = Operator
	signalRole  = Signaller
)

// whoAmI returns who sends the request.
func (c *call) whoAmI(*noParameters) (*consoleapi.WhoAmI, error) {
	v := &consoleapi.WhoAmI{Name: c.who.name, By: "token", Role: c.who.role.String(), ReadOnly: c.readOnly(), File: c.cfg.File}
	if c.cfg.Tokens == nil {
		v.By = "local"
	}
	for role := Viewer; role <= c.who.role; role++ {
		v.Roles = append(v.Roles, role.String())
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
		return fmt.Errorf("the seq of an event, from 1")
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
	h, err := c.historyUntil(&in.taskRequest, until)
	if err != nil {
		return nil, err
	}
	last := len(h.records) - 1
	if last < 0 || in.Seq > 0 && h.seqOf(last) != uint64(in.Seq) {
		return nil, notFound("task %q has no event %d; its last is %d", consoleapi.Printable(h.id), in.Seq, h.lastSeq)
	}
	s := replay.NewStepper(replay.Until{}, false)
	for i := range last {
		s.Skip(&h.records[i], h.lost[h.records[i].Offset])
	}
	step := h.step(s, last)
	v := &consoleapi.TaskAtEvent{Task: h.id, Seq: step.Seq, LastSeq: max(h.lastSeq, step.Seq), Event: step.Line, Changes: make([]consoleapi.Change, len(step.Changes)),
		Fault: step.Fault, AsOf: h.asOf()}
	if view := s.View(); view != nil {
		v.State = &consoleapi.Task{TaskView: *view}
	}
	for i, change := range step.Changes {
		v.Changes[i] = consoleapi.Change(change)
	}
	return v, nil
}

// seqOf returns the seq of a record, by its headers. A record without one has the next after its predecessor.
func (h *history) seqOf(i int) uint64 {
	if _, seq, err := events.EventName(&h.records[i]); err == nil {
		return seq
	}
	if i == 0 {
		return 1
	}
	return h.seqOf(i-1) + 1
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
		Unchecked: verify.NotOfOneTask, AsOf: h.asOf()}
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
	h, err := c.history(in)
	if err != nil {
		return nil, err
	}
	task, unreadable, err := h.fold()
	if err != nil {
		return nil, err
	}
	v := &consoleapi.CommandList{Task: h.id, State: task.State, Commands: []consoleapi.CommandChoice{}, AsOf: h.asOf()}
	for _, check := range replay.Commands(task) {
		if unreadable != nil { // the scheduler stops such a task
			check.Why = "an event of the task can't be read, so no scheduler of this build changes it: " + unreadable.String()
		}
		v.Commands = append(v.Commands, c.choice(&check))
	}
	return v, nil
}

// choice adds to what a task's state says of a command what the caller's role says.
func (c *call) choice(check *replay.CommandCheck) consoleapi.CommandChoice {
	role := commandRole
	v := consoleapi.CommandChoice{Command: "signal", Name: check.Signal}
	if x := check.Control; x != nil {
		v = consoleapi.CommandChoice{Command: string(x.Command), Keep: x.Keep, Processed: x.Processed, Step: x.Step, As: x.As}
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
