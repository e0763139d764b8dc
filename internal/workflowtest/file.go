package workflowtest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/workflow"
)

// Suffix is how the name of a test file ends. Without it, it is the name of the definition beside it, without ".yaml".
const Suffix = ".test.yaml"

// DefaultTask is the id of a case's task, if the case has none.
const DefaultTask = "task-1"

// DefaultStart is when a case's task is submitted, if the case doesn't say it.
var DefaultStart = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// maxRepeated bounds `times` of a reply.
const maxRepeated = 10_000

// File is a test file and the definition that it tests.
type File struct {
	Name       string
	Definition *workflow.Definition
	Cases      []*Case

	src     []byte
	replies scripts // of all cases
}

// Case is one task and what is expected of it.
type Case struct {
	Name string
	Line int

	submission events.Submission
	start      time.Time
	until      time.Duration // 0: the case goes on until nothing is left to happen
	replies    scripts
	actions    []*action
	expect     *Expectation
	column     int // of the case's name, from 1
	keyColumn  int // of the case's fields, from 1; 0: they aren't on lines of their own
}

// scripts are the replies of agents, by STEP, STEP/undo, STEP/check or AGENT.OPERATION.
type scripts map[string]*script

// script is how an agent replies to the attempts of a run.
type script struct {
	line int
	each *Reply   // to every attempt; nil: replies counts
	list []*Reply // by attempt
	used int      // the highest attempt that was replied to
}

// Reply is a scripted reply. Silence means that none comes.
type Reply struct {
	Line       int
	Silence    bool
	Outcome    events.Outcome
	Body       json.RawMessage
	Effect     events.Effect
	After      time.Duration
	RetryAfter time.Duration
	// Progress are the reports before the reply, one each Every. The last one is repeated until the reply, if one comes.
	Progress []json.RawMessage
	Every    time.Duration
}

// action is what a person or another system does during a case: an input of the task at an instant.
type action struct {
	line  int
	what  string // for the timeline
	when  events.TaskState
	after time.Duration // since the submission, or since the task was in the state
	input func(task string, id string) events.Record
	inbox events.Inbox

	planned bool
}

// Expectation is what must be true at the end of a case. Fields that are absent aren't compared.
type Expectation struct {
	state    *string
	output   *json.RawMessage
	err      *expectedError
	steps    map[string]string
	inputs   map[string]json.RawMessage
	timeline *string

	whole member   // for update
	given []member // its fields
}

// expectedError is the error that the task must have; empty: none.
type expectedError struct{ code, step, message string }

// Load reads a test file and its definition. The error lists all mistakes, with file and line.
func Load(name string) (*File, error) {
	src, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	return load(name, src)
}

func load(name string, src []byte) (*File, error) {
	r := &reader{file: name}
	f := &File{Name: name, src: src}
	root := r.root(src)
	if root == nil {
		return nil, r.err()
	}
	fields := r.members(root, "the file", fileFields...)
	definition := strings.TrimSuffix(filepath.Base(name), Suffix) + ".yaml"
	if !strings.HasSuffix(name, Suffix) {
		definition = ""
	}
	line := 1
	for _, m := range fields {
		if m.name == "workflow" {
			definition, line = r.textOf(m.value, "workflow"), lineOf(m.value)
		}
	}
	f.readDefinition(r, definition, line)
	if f.Definition == nil {
		return nil, r.err()
	}
	for _, m := range fields {
		switch m.name {
		case "replies":
			f.replies = f.readScripts(r, m.value)
		case "cases":
			for _, c := range r.members(m.value, "cases") {
				f.Cases = append(f.Cases, f.readCase(r, c))
			}
		}
	}
	if len(f.Cases) == 0 && len(r.faults) == 0 {
		r.faultAt(1, "the file has no case", "write at least one under `cases`: its name, and its fields")
	}
	return f, r.err()
}

// readDefinition parses the definition that the file tests.
func (f *File) readDefinition(r *reader, name string, line int) {
	if name == "" {
		r.faultAt(line, "the file doesn't name its definition", "write `workflow: FILE`, or call the file as the definition, with "+Suffix+" for .yaml")
		return
	}
	path := name
	if !filepath.IsAbs(path) {
		path = filepath.Join(filepath.Dir(f.Name), name)
	}
	src, err := os.ReadFile(path)
	if err != nil {
		r.faultAt(line, "the definition can't be read: "+err.Error(), "write its name, relative to the test file, as `workflow: FILE`")
		return
	}
	if f.Definition, err = workflow.ParseYAML(path, src); err != nil {
		r.faultAt(line, "the definition has faults", "fix them there:\n"+err.Error())
	}
}

// fileFields are the fields of a file.
var fileFields = []string{"workflow", "replies", "cases"}

// caseFields are the fields of a case.
var caseFields = []string{"id", "start", "input", "labels", "priority", "until", "replies", "signals", "commands", "expect"}

func (f *File) readCase(r *reader, m member) *Case {
	c := &Case{Name: m.name, Line: lineOf(m.key), column: columnOf(m.key), start: DefaultStart,
		submission: events.Submission{ID: DefaultTask, Workflow: f.Definition.Name, Version: f.Definition.Version}}
	for _, m := range r.members(m.value, "the case", caseFields...) {
		if c.keyColumn == 0 && lineOf(m.key) > c.Line {
			c.keyColumn = columnOf(m.key)
		}
		switch m.name {
		case "id":
			c.submission.ID = r.textOf(m.value, "id")
		case "start":
			c.start = r.instantOf(m.value, "start")
		case "input":
			c.submission.Input = r.jsonOf(m.value)
		case "labels":
			c.submission.Labels = map[string]string{}
			for _, l := range r.members(m.value, "labels") {
				c.submission.Labels[l.name] = r.textOf(l.value, "the label")
			}
		case "priority":
			c.submission.Priority = r.numberOf(m.value, "priority", -1_000_000, 1_000_000)
		case "until":
			c.until = r.durationOf(m.value, "until")
		case "replies":
			c.replies = f.readScripts(r, m.value)
		case "signals":
			c.readSignals(r, m.value)
		case "commands":
			c.readCommands(r, m.value)
		case "expect":
			c.expect = f.readExpectation(r, m)
		}
	}
	return c
}

func (r *reader) durationOf(n ast.Node, what string) time.Duration {
	text := n.GetToken().Value
	if s, ok := n.(*ast.StringNode); ok {
		text = s.Value
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 || d != d.Truncate(time.Millisecond) {
		r.fault(n, fmt.Sprintf("%s: %q isn't a duration", what, text), "write a number and a unit, such as 50ms, 10s, 5m or 1h30m; at least 1 ms counts")
		return 0
	}
	return d
}

func (r *reader) instantOf(n ast.Node, what string) time.Time {
	t, err := events.ParseInstant(r.textOf(n, what))
	if err != nil {
		r.fault(n, what+" isn't an instant", "write one as 2026-01-01T00:00:00Z")
		return DefaultStart
	}
	return events.Millis(t).UTC()
}

// readScripts reads replies by STEP, STEP/undo, STEP/check or AGENT.OPERATION.
func (f *File) readScripts(r *reader, n ast.Node) scripts {
	all := scripts{}
	known := f.callable()
	for _, m := range r.members(n, "replies") {
		if !slices.Contains(known, withoutItem(m.name)) {
			r.fault(m.key, fmt.Sprintf("nothing in %s calls %q", f.Definition.Key(), m.name), "use one of "+strings.Join(known, ", "))
			continue
		}
		s := &script{line: lineOf(m.key)}
		if list, ok := m.value.(*ast.SequenceNode); ok {
			for _, v := range list.Values {
				reply, times := r.readReply(v)
				for range times {
					s.list = append(s.list, reply)
				}
			}
		} else {
			s.each, _ = r.readReply(m.value)
		}
		all[m.name] = s
	}
	return all
}

// callable returns the names of replies: of each call, by its step, and by its agent and operation.
func (f *File) callable() []string {
	var steps, operations []string
	add := func(step, agent, operation string) {
		steps = append(steps, step)
		if name := agent + "." + operation; !slices.Contains(operations, name) {
			operations = append(operations, name)
		}
	}
	for i := range f.Definition.Steps {
		s := &f.Definition.Steps[i]
		if s.StepKind().CallsAgent() {
			add(s.ID, s.Agent, s.Operation)
		}
		if s.StepKind() == events.WorkflowStep {
			add(s.ID, childAgent, s.Workflow)
			add(s.ID+"/"+string(events.Undo), childAgent, s.Workflow+"/"+string(events.Undo))
		}
		if u := s.Undo; u != nil {
			agent := u.Agent
			if agent == "" {
				agent = s.Agent
			}
			add(s.ID+"/"+string(events.Undo), agent, u.Operation)
		}
		if c := s.Check; c != nil {
			add(s.ID+"/"+string(events.Check), cmp.Or(c.Agent, s.Agent), c.Operation)
		}
	}
	return append(steps, operations...)
}

// The words of a reply.
const (
	wordSilence   = "silence"
	wordCompleted = string(events.Completed)
	wordFailed    = string(events.Failed)
	wordRejected  = string(events.Rejected)
)

// replyFields are the fields of a reply. One of the first four says what it is.
var replyFields = []string{wordCompleted, wordFailed, wordRejected, wordSilence, "after", "times", "message", "details", "effect", "retry_after",
	"progress", "every"}

// readReply reads a reply, and how many attempts in succession get it.
func (r *reader) readReply(n ast.Node) (*Reply, int) {
	reply := &Reply{Line: lineOf(n), Effect: events.EffectUnknown}
	if s, ok := n.(*ast.StringNode); ok {
		switch s.Value {
		case wordSilence:
			reply.Silence = true
		case wordCompleted:
			reply.Outcome, reply.Body = events.Completed, json.RawMessage("null")
		default:
			r.fault(n, fmt.Sprintf("%q isn't a reply", s.Value), "write completed, silence, or an object such as {failed: unavailable}")
		}
		return reply, 1
	}
	times, kinds := 1, 0
	failure := map[string]json.RawMessage{}
	for _, m := range r.members(n, "a reply", replyFields...) {
		switch m.name {
		case wordCompleted:
			kinds++
			reply.Outcome, reply.Body = events.Completed, r.jsonOf(m.value)
		case wordFailed, wordRejected:
			kinds++
			reply.Outcome = events.Outcome(m.name)
			failure["code"] = json.RawMessage(quoteJSON(r.textOf(m.value, "the code of the error")))
		case wordSilence:
			kinds++
			reply.Silence = r.boolOf(m.value, wordSilence)
		case "after":
			reply.After = r.durationOf(m.value, "after")
		case "times":
			times = r.numberOf(m.value, "times", 1, maxRepeated)
		case "message":
			failure["message"] = json.RawMessage(quoteJSON(r.textOf(m.value, "message")))
		case "details":
			failure["details"] = r.jsonOf(m.value)
		case "effect":
			if reply.Effect = events.Effect(r.textOf(m.value, "effect")); reply.Effect != events.EffectNone && reply.Effect != events.EffectUnknown {
				r.fault(m.value, "effect is none or unknown", "write `effect: none` if the failed attempt changed nothing")
			}
		case "retry_after":
			reply.RetryAfter = r.durationOf(m.value, "retry_after")
		case "progress", "every":
			r.readProgress(reply, m)
		}
	}
	r.checkProgress(reply, n)
	if kinds != 1 {
		r.fault(n, "a reply is one of completed, failed, rejected and silence", "write exactly one of them, such as {completed: {charge: ch-1}}")
	}
	if len(failure) > 0 {
		reply.Body, _ = events.EncodeJSON(failure) // of JSON values
	}
	return reply, times
}

// momentFields are the fields of an action that say when it comes.
var momentFields = []string{"at", "when", "after"}

// actionsOf reads a list of actions. read reads the fields besides the moment, and returns what comes. what is the name
// of one.
func (r *reader) actionsOf(n ast.Node, what string, fields []string, read func(a *action, v ast.Node, fields []member)) []*action {
	list, ok := n.(*ast.SequenceNode)
	if !ok {
		r.fault(n, what+"s isn't a list", "write each as an item: - {at: 1h, "+fields[0]+": ...}")
		return nil
	}
	var all []*action
	for _, v := range list.Values {
		a := &action{line: lineOf(v)}
		timed := 0
		var others []member
		for _, m := range r.members(v, "a "+what, slices.Concat(momentFields, fields)...) {
			if !slices.Contains(momentFields, m.name) {
				others = append(others, m)
			}
			timed += r.readMoment(a, m)
		}
		if timed != 1 {
			r.fault(v, "a "+what+" needs its time", "write `at: 5m` (since the submission), or `when: held`")
		}
		read(a, v, others)
		all = append(all, a)
	}
	return all
}

// checkAction reports an action that its inbox wouldn't accept.
func (r *reader) checkAction(a *action, v ast.Node, fix string) {
	probe := a.input(DefaultTask, "probe")
	if _, _, err := events.DecodeInput(a.inbox, &probe); err != nil {
		r.fault(v, "it can't be used: "+err.Error(), fix)
	}
}

// commandFields are the fields of a command besides its moment. They are those of the record on waybill.controls.
var commandFields = []string{"command", "step", "keep", "processed", "as", "output", "why", "by"}

func (c *Case) readCommands(r *reader, n ast.Node) {
	c.actions = append(c.actions, r.actionsOf(n, "command", commandFields, func(a *action, v ast.Node, fields []member) {
		x := events.Control{By: events.By{Who: "tester"}}
		for _, m := range fields {
			switch m.name {
			case "command":
				x.Command = events.Command(r.textOf(m.value, "command"))
			case "step":
				x.Step = r.textOf(m.value, "step")
			case "keep":
				x.Keep = r.boolOf(m.value, "keep")
			case "processed":
				x.Processed = r.boolOf(m.value, "processed")
			case "as":
				x.As = events.StepState(r.textOf(m.value, "as"))
			case "output":
				x.Output = r.jsonOf(m.value)
			case "why":
				x.Why = r.textOf(m.value, "why")
			case "by":
				x.Who = r.textOf(m.value, "by")
			}
		}
		a.what, a.inbox = string(x.Command), events.Controls
		a.input = func(task, id string) events.Record {
			x.Task, x.RequestID = task, id
			return x.Record(events.DefaultNamespace, source)
		}
		r.checkAction(a, v, "write command: cancel, undo, resubmit or release, with the fields that it needs")
	})...)
}

// readMoment reads a field that says when an action comes. It returns 1 if the field alone says it.
func (r *reader) readMoment(a *action, m member) int {
	switch m.name {
	case "at":
		a.after = r.durationOf(m.value, "at")
		return 1
	case "after":
		a.after = r.durationOf(m.value, "after")
	case "when":
		var ok bool
		if a.when, ok = stateOf(r.textOf(m.value, "when")); !ok {
			r.fault(m.value, "no task is ever in this state", "write a state: "+strings.Join(stateNames(), ", "))
		}
		return 1
	}
	return 0
}

// held is how people call the state error of a task.
const held = "held"

// stateOf returns the state with a name.
func stateOf(name string) (events.TaskState, bool) {
	if name == held {
		return events.StateError, true
	}
	s := events.TaskState(name)
	return s, s != events.StateError && slices.Contains(events.TaskStates, s)
}

// stateName is the name of a state.
func stateName(s events.TaskState) string {
	if s == events.StateError {
		return held
	}
	return string(s)
}

func stateNames() []string {
	names := make([]string, len(events.TaskStates))
	for i, s := range events.TaskStates {
		names[i] = stateName(s)
	}
	return names
}

// expectFields are the fields of an expectation.
var expectFields = []string{"state", "error", "output", "steps", "inputs", "timeline"}

func (f *File) readExpectation(r *reader, m member) *Expectation {
	x := &Expectation{whole: m}
	for _, m := range r.members(m.value, "expect", expectFields...) {
		x.given = append(x.given, m)
		switch m.name {
		case "state":
			name := r.textOf(m.value, "state")
			if _, ok := stateOf(name); !ok && name != "" {
				r.fault(m.value, "no task is ever in the state "+strconv.Quote(name), "write one of "+strings.Join(stateNames(), ", "))
			}
			x.state = &name
		case "error":
			x.err = r.expectedErrorOf(m.value)
		case "output":
			v := r.jsonOf(m.value)
			x.output = &v
		case "steps":
			x.steps = map[string]string{}
			for _, s := range r.members(m.value, "steps") {
				if f.Definition.Index(s.name) < 0 {
					r.fault(s.key, "the definition has no step "+strconv.Quote(s.name), "write the id of one of its steps")
				}
				x.steps[s.name] = r.textOf(s.value, "the state of a step")
			}
		case "inputs":
			x.inputs = map[string]json.RawMessage{}
			for _, s := range r.members(m.value, "inputs") {
				if !slices.Contains(f.callable(), s.name) || strings.Contains(s.name, ".") {
					r.fault(s.key, "no step calls an agent as "+strconv.Quote(s.name), "write the id of a step, STEP/undo or STEP/check")
				}
				x.inputs[s.name] = r.jsonOf(s.value)
			}
		case "timeline":
			text := r.textOf(m.value, "timeline")
			x.timeline = &text
		}
	}
	return x
}

func (r *reader) expectedErrorOf(n ast.Node) *expectedError {
	x := &expectedError{}
	switch n := n.(type) {
	case *ast.NullNode:
		return x
	case *ast.StringNode:
		x.code = n.Value
		return x
	}
	for _, m := range r.members(n, "error", "code", "step", "message") {
		switch text := r.textOf(m.value, m.name); m.name {
		case "code":
			x.code = text
		case "step":
			x.step = text
		case "message":
			x.message = text
		}
	}
	return x
}
