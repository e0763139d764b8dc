package workflowtest

import (
	"encoding/json"
	"fmt"

	"github.com/waybill-run/waybill/events"
)

// childAgent stands for the agent in the names of replies of children: workflow.NAME, and workflow.NAME/undo for
// withdrawals.
const childAgent = "workflow"

// child plans the scripted end of a child. A case runs one task: a child is what its replies say. Without a reply, a
// withdrawal completes.
//
// of is false if the record isn't about a child of a step of this kind: then it is one of a task of an item.
func (s *simulation) child(r *events.Record) (of bool, err error) {
	if r.Topic != events.Namespace(events.DefaultNamespace).Inbox(events.Tasks) {
		return false, nil
	}
	_, in, err := events.DecodeInput(events.Tasks, r)
	if err != nil {
		return false, err
	}
	switch in := in.(type) {
	case *events.Submission:
		p := in.Parent
		if !s.runsChild(p.Step) {
			return false, nil
		}
		run := childRun(p.Ref(), p.Item)
		what := childAgent + "." + in.Workflow + " " + in.ID
		if text := compact(in.Input); text != "{}" && text != "null" {
			what += " " + text
		}
		s.timeline.request(p.Ref(), what)
		s.inputs[run] = in.Input
		reply, line := s.replyTo(run, childAgent+"."+in.Workflow, p.Attempt)
		if reply == nil {
			s.fail(s.faultAt(line, fmt.Sprintf("attempt %d of %s (workflow %s) has no reply", p.Attempt, run, in.Workflow),
				"add the end of the child under replies: "+run+": completed, {completed: OUTPUT}, {rejected: CODE} or silence"))
			return true, nil
		}
		s.planChild(&events.Reply{Task: p.Task, Ref: p.Ref(), Token: p.Token, Item: p.Item}, reply)
	case *events.Withdrawal:
		if !s.runsChild(in.Ref.Step) {
			return false, nil
		}
		operation := s.file.Definition.Steps[s.file.Definition.Index(in.Ref.Step)].Workflow + "/" + string(events.Undo)
		s.timeline.request(in.Ref, childAgent+"."+operation+" "+in.Task)
		reply, _ := s.replyTo(childRun(in.Ref, in.Item), childAgent+"."+operation, in.Ref.Attempt)
		if reply == nil {
			reply = &Reply{Outcome: events.Completed, Body: json.RawMessage("null")}
		}
		s.planChild(in.Reply(events.Completed), reply)
	case *events.Control, *events.Recovery, *events.Reply, *events.Signal: // not in this inbox
	}
	return true, nil
}

// runsChild reports whether a step of the definition is of kind workflow.
func (s *simulation) runsChild(step string) bool {
	i := s.file.Definition.Index(step)
	return i >= 0 && s.file.Definition.Steps[i].StepKind() == events.WorkflowStep
}

// childRun is the name of a child's run in replies and inputs: that of an item has its index.
func childRun(ref events.RequestRef, item *int) string {
	if item != nil {
		ref.Step = fmt.Sprintf("%s[%d]", ref.Step, *item)
	}
	return runName(ref)
}

func (s *simulation) planChild(answer *events.Reply, reply *Reply) {
	switch {
	case reply.Silence:
		return
	case reply.Outcome == events.Failed:
		s.fail(s.faultAt(reply.Line, "a child task doesn't fail: it completes, or ends without a result", "write {rejected: CODE}"))
		return
	}
	answer.Outcome, answer.Effect, answer.Body = reply.Outcome, events.EffectNone, reply.Body
	s.planned = append(s.planned, &input{at: s.now.Add(reply.After), inbox: events.Replies, record: answer.Record(events.DefaultNamespace, source),
		what: fmt.Sprintf("end of the child of attempt %d of %s", answer.Ref.Attempt, runName(answer.Ref))})
}
