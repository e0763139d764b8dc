package scheduler

import (
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"strings"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/workflow"
)

func quoted(s string) string { return strconv.Quote(s) }

func tooLarge(what string, n, most, total int) string {
	if n > most {
		return fmt.Sprintf("%s has %d bytes; at most %d", what, n, most)
	}
	return fmt.Sprintf("with %s of %d bytes the task would hold %d; at most %d", what, n, total, MaxTaskBytes)
}

// handleSubmission creates a task, answers with the status of an existing one, or refuses the submission.
func (d *decider) handleSubmission(s *events.Submission) {
	if u := d.checkReplyTo(s); u != nil {
		d.Unusable = u // no notification: the topic is at fault
		return
	}
	if s.Parent != nil && s.Parent.Depth > events.MaxDepth {
		d.refuseSubmission(s, events.ReasonBadHeader, tooDeep(s.Workflow))
		return
	}
	if d.Task != nil {
		d.submitDuplicate(s)
		return
	}
	if s.StatusQuery {
		d.answerStatusQuery(s)
		return
	}
	p, absent := d.definitionFor(s)
	if p == nil {
		if !d.env.DefinitionsRead {
			d.needDefinitions = true
			return
		}
		d.refuseSubmission(s, events.ReasonUnknownWorkflow, absenceText(s, absent))
		return
	}
	plan := PlanOf(p)
	if n := plan.Bytes(); n > MaxPlanBytes {
		d.refuseSubmission(s, events.ReasonTooLarge, fmt.Sprintf("the plan of workflow %q has %d bytes; at most %d", s.Workflow, n, MaxPlanBytes))
		return
	}
	d.createTask(s, p, plan)
}

// definitionFor returns the definition of a new task. The task of an item runs one step of the version that its parent has.
func (d *decider) definitionFor(s *events.Submission) (p *workflow.Program, absent Absence) {
	if s.ItemOf() == "" {
		return d.env.Definitions.Applied(s.Workflow, s.Version)
	}
	if p, ok := d.env.Definitions.Program(s.Workflow, s.Version); ok {
		return p.ItemOfStep(s.ItemOf()), Unknown
	}
	return nil, Unknown
}

func (d *decider) createTask(s *events.Submission, p *workflow.Program, plan *events.Plan) {
	def := p.Definition()
	input := s.Input
	if len(input) == 0 {
		input = []byte("null")
	}
	d.program = p
	computed, labelError := d.computeLabels(s, p, input)
	d.appendEvent(&events.Event{
		Task: s.ID, Seq: 1, At: d.now, Cause: d.cause, Epoch: d.env.Epoch,
		Fact: &events.TaskReceived{Workflow: def.Name, Version: def.Version, Input: input, ReplyTo: s.ReplyTo,
			Priority: s.Priority, Labels: s.Labels, Computed: computed, CompleteBy: s.CompleteBy, Digest: s.Digest(),
			Traceparent: s.Traceparent, Intake: s.Intake, Plan: plan, Parent: s.Parent},
	})
	if labelError != nil {
		d.failTask(expressionFailed(labelError))
		return
	}
	by := events.Millis(d.now.Add(plan.CompleteWithin))
	if asked := s.CompleteBy; !asked.IsZero() && asked.Before(by) {
		by = asked
	}
	if !d.now.Before(by) {
		d.failTask(&events.Error{Code: events.CodeExpired, Message: "submitted after its complete-by"})
		return
	}
	d.emit(&events.TaskStarted{}, by, d.Task.TaskPolicy(by))
	d.advance()
}

// computeLabels returns the labels that the definition computes for a new task, without those that its submission has.
func (d *decider) computeLabels(s *events.Submission, p *workflow.Program, input json.RawMessage) (map[string]string, error) {
	def := p.Definition()
	if len(def.Labels) == 0 {
		return nil, nil
	}
	labels, err := p.Labels(workflow.Scope{TaskID: s.ID, Workflow: def.Name, Version: def.Version, Priority: s.Priority, Labels: s.Labels,
		Input: input, Work: &d.derived.work})
	if err != nil {
		return nil, err
	}
	maps.DeleteFunc(labels, func(name, _ string) bool { _, given := s.Labels[name]; return given })
	return labels, nil
}

// submitDuplicate answers a repeated submission with the present status. A submission with a used id and another body
// is refused.
func (d *decider) submitDuplicate(s *events.Submission) {
	if s.Digest() != d.Task.Digest || s.Parent != nil && !s.Parent.Same(d.Task.Parent) {
		d.refuseSubmission(s, events.ReasonIDConflict, "task "+quoted(s.ID)+" exists already, with another body")
		return
	}
	d.Ignored = IgnoredDuplicate
	if s.ReplyTo != "" {
		d.notifyPresent(s.ReplyTo)
	}
}

func (d *decider) refuseSubmission(s *events.Submission, r events.Reason, detail string) {
	d.markUnusable(r, detail)
	d.refuseChild(s, r, detail)
	if s.ReplyTo == "" {
		return
	}
	n := &events.Notification{Task: s.ID, Workflow: s.Workflow, Status: events.StatusRefused, Reason: string(r) + ": " + detail, At: d.now}
	d.Records = append(d.Records, n.Record(d.env.Namespace, d.env.Source, s.ReplyTo, "refused/"+d.cause.String()))
}

// checkReplyTo checks a reply_to, also against the prefixes that the operator permits.
func (d *decider) checkReplyTo(s *events.Submission) *events.Unusable {
	topic := s.ReplyTo
	u := d.env.Namespace.CheckTaskReplyTo(s.ID, topic)
	if u != nil || topic == "" || topic == d.env.Namespace.Schedules() || len(d.env.ReplyToPrefixes) == 0 {
		return u
	}
	for _, p := range d.env.ReplyToPrefixes {
		if strings.HasPrefix(topic, p) {
			return nil
		}
	}
	return &events.Unusable{Reason: events.ReasonBadReplyTo,
		Detail: fmt.Sprintf("reply_to %q begins with none of the permitted prefixes %q", topic, d.env.ReplyToPrefixes)}
}

// answerStatusQuery answers a submission that asks for the status of a task that isn't known. No task starts.
func (d *decider) answerStatusQuery(s *events.Submission) {
	d.Ignored = IgnoredUnknownTask
	if s.ReplyTo == "" {
		return
	}
	n := &events.Notification{Task: s.ID, Workflow: s.Workflow, Status: events.StatusForgotten, At: d.now}
	d.Records = append(d.Records, n.Record(d.env.Namespace, d.env.Source, s.ReplyTo, "forgotten/"+d.cause.String()))
}
