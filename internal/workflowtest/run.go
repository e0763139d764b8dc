package workflowtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/scheduler"
	"github.com/waybill-run/waybill/supervisor"
)

// source is the ce_source of a case's inputs.
const source = "workflow test"

// maxInputs ends a case that goes round forever.
const maxInputs = 100_000

// Result is the outcome of a case.
type Result struct {
	File   string `json:"file"`
	Line   int    `json:"line"`
	Case   string `json:"case"`
	Passed bool   `json:"passed"`
	// Updated: the expectation was written, and is met now.
	Updated bool `json:"updated,omitempty"`
	// Differences say what isn't as expected. Fault is a mistake in the file that kept the case from ending.
	Differences []string `json:"differences,omitempty"`
	Fault       string   `json:"fault,omitempty"`
	State       string   `json:"state"` // of the task at the end
	Events      int      `json:"events"`
	Virtual     string   `json:"virtual"` // how long the task took in virtual time

	end *outcome
}

// outcome is the end of a case.
type outcome struct {
	task   *events.Task
	inputs map[string]json.RawMessage // the last input of each run, by STEP, STEP/undo or STEP/check
	lines  []string
}

// Run runs the cases of a file whose names match, and compares them.
func (f *File) Run(matches func(name string) bool) []*Result {
	var results []*Result
	for _, c := range f.Cases {
		if matches(c.Name) {
			results = append(results, f.runCase(c))
		}
	}
	return results
}

func (f *File) runCase(c *Case) *Result {
	r := &Result{File: f.Name, Line: c.Line, Case: c.Name}
	s := newSimulation(f, c)
	err := s.run()
	r.end = &outcome{task: s.task, inputs: s.inputs, lines: s.timeline.lines}
	r.Events, r.Virtual = s.timeline.events, durationText(s.now.Sub(c.start))
	if s.task != nil {
		r.State = stateName(s.task.State)
	}
	if err != nil {
		r.Fault = err.Error()
		return r
	}
	r.Differences = f.compare(c, r.end)
	r.Passed = len(r.Differences) == 0
	return r
}

// simulation is one task in virtual time.
type simulation struct {
	file     *File
	c        *Case
	catalog  *scheduler.CompiledDefinitions
	requests map[string]int32
	now      time.Time
	offset   int64
	task     *events.Task
	timers   events.Timers
	items    map[string]*itemTask // the tasks of items, by id
	order    []string             // the ids of those that are open, in the order in which they started
	asked    map[armedBy]*asked
	planned  []*input // to come, in the order in which they were planned
	inputs   map[string]json.RawMessage
	timeline timeline
	fault    error // the first mistake that the case revealed

	observeInput, observeOutput func(*events.Record) // of tests; may be nil
}

// input is an input that will come, unless the case ends before.
type input struct {
	at     time.Time
	inbox  events.Inbox
	record events.Record
	what   string // for the timeline, if it changes nothing
	person bool   // it isn't a reply: the case goes on until it has come
	then   func() // what follows if the input isn't ignored; nil: nothing
}

// asked counts the recoveries that were asked for a timer.
type asked struct {
	times int
	until time.Time // when the timer is due again
}

func newSimulation(f *File, c *Case) *simulation {
	s := &simulation{file: f, c: c, catalog: &scheduler.CompiledDefinitions{}, requests: map[string]int32{}, now: c.start,
		items: map[string]*itemTask{}, asked: map[armedBy]*asked{}, inputs: map[string]json.RawMessage{}, timeline: newTimeline(f.Definition, c.start)}
	s.catalog.Rejected = func(key string, err error) { s.fail(fmt.Errorf("%s: %w", key, err)) }
	s.catalog.Apply(&events.Record{Key: []byte(f.Definition.Key()), Value: f.Definition.JSON()})
	for _, agent := range f.Definition.Agents() {
		s.requests[agent] = 1
	}
	return s
}

// run submits the case's input, and takes input after input until nothing is left to happen.
func (s *simulation) run() error {
	submission := s.c.submission.Record(events.DefaultNamespace, source)
	s.deliver(&input{inbox: events.Tasks, record: submission, what: "submission"})
	if s.task == nil && s.fault == nil {
		return s.faultAt(s.c.Line, "the submission is refused: "+s.timeline.last(), "change the case's id, input or labels")
	}
	for range maxInputs {
		s.planActions()
		next, timer, of, at := s.next()
		switch {
		case s.fault != nil:
			return s.fault
		case next == nil && timer == nil, s.c.until > 0 && at.After(s.c.start.Add(s.c.until)):
			if s.c.until > 0 {
				s.now = s.c.start.Add(s.c.until)
			}
			return nil
		case next != nil:
			s.planned = slices.DeleteFunc(s.planned, func(p *input) bool { return p == next })
			s.now = at
			s.deliver(next)
		default:
			s.now = at
			s.fire(of, timer)
		}
	}
	return s.faultAt(s.c.Line, fmt.Sprintf("the task loops: stopped after %d inputs", maxInputs), "bound its retries, or give the case `until`")
}

func (s *simulation) faultAt(line int, what, fix string) error {
	return &Fault{File: s.file.Name, Line: line, What: "case " + quoteJSON(s.c.Name) + ": " + what, Fix: fix}
}

// next returns what comes first: an input or a timer. Inputs of an instant come before timers, in the order in which
// they were planned, since a reply in time wins. Nothing comes once the task has ended and no person will act.
func (s *simulation) next() (next *input, timer *events.Armed, of string, at time.Time) {
	for _, p := range s.planned {
		if (s.task.Open() || p.person) && (next == nil || p.at.Before(at)) {
			next, at = p, p.at
		}
	}
	look := func(id string, timers *events.Timers) {
		for i := range timers.Armed {
			a := &timers.Armed[i]
			due := later(a.Timer.Due, s.now)
			if asked := s.asked[armedBy{id, a.Timer.Seq}]; asked != nil {
				due = later(asked.until, due)
			}
			if next == nil && timer == nil || due.Before(at) {
				next, timer, of, at = nil, a, id, due
			}
		}
	}
	look(s.c.submission.ID, &s.timers)
	for _, id := range s.order {
		look(id, &s.items[id].timers)
	}
	return next, timer, of, at
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// planActions plans the actions whose time is known by now.
func (s *simulation) planActions() {
	for i, a := range s.c.actions {
		from := s.c.start
		if a.when != "" {
			from = s.now
		}
		if a.planned || a.when != "" && (s.task == nil || s.task.State != a.when) {
			continue
		}
		a.planned = true
		id := fmt.Sprintf("action-%d", i+1)
		s.planned = append(s.planned, &input{at: later(from.Add(a.after), s.now), inbox: a.inbox, person: true, what: a.what,
			record: a.input(s.c.submission.ID, id)})
		if a.when != "" {
			return // the next one of the same state is for the next time that the task is in it
		}
	}
}

// fire does what a supervisor does about a due timer.
func (s *simulation) fire(task string, a *events.Armed) {
	state := s.asked[armedBy{task, a.Timer.Seq}]
	if state == nil {
		state = &asked{}
		s.asked[armedBy{task, a.Timer.Seq}] = state
	}
	recovery, snooze := supervisor.RecoveryFor(&events.Due{Task: task, Armed: *a, Asked: state.times}, s.now)
	state.times++
	state.until = s.now.Add(snooze)
	if recovery != nil {
		s.deliver(&input{inbox: events.Recoveries, record: recovery.Record(events.DefaultNamespace, source, 0)})
	}
}

// deliver lets the scheduler decide on an input, as it reads it from the inbox.
func (s *simulation) deliver(in *input) {
	s.offset++
	in.record.Partition, in.record.Offset = 0, s.offset
	if s.observeInput != nil {
		s.observeInput(&in.record)
	}
	id, decoded, err := events.DecodeInput(in.inbox, &in.record)
	var d scheduler.Decision
	if err == nil {
		d = scheduler.Decide(s.taskOf(id).Clone(), decoded, events.Cause{Inbox: in.inbox, Offset: s.offset}, s.env())
	} else if !errors.As(err, &d.Unusable) {
		s.fail(err)
	}
	s.keep(d.Task)
	if d.Unusable != nil {
		d.Records = append(d.Records, events.Deadletter(events.DefaultNamespace, source, &in.record, d.Unusable))
		s.timeline.note(s.now, in.what+" is a dead letter: "+d.Unusable.Error())
	} else if d.Ignored != "" && in.inbox != events.Recoveries && d.Ignored != scheduler.IgnoredRefusedControl {
		s.timeline.note(s.now, in.what+" is ignored: "+string(d.Ignored))
	}
	if in.then != nil && d.Ignored != scheduler.IgnoredStaleReply {
		in.then()
	}
	for i := range d.Records {
		s.read(&d.Records[i], in)
	}
}

// fail keeps the first mistake.
func (s *simulation) fail(err error) {
	if s.fault == nil && err != nil {
		s.fault = err
	}
}

func (s *simulation) env() *scheduler.Env {
	return &scheduler.Env{Now: s.now, Namespace: events.DefaultNamespace, Source: source, Epoch: 1, Definitions: s.catalog, DefinitionsRead: true,
		Requests: s.requests, Token: func(string, events.RequestRef) string { return "token" }}
}

// read reads a record of a decision as the role does that it is for.
func (s *simulation) read(r *events.Record, in *input) {
	if s.observeOutput != nil {
		s.observeOutput(r)
	}
	ns := events.Namespace(events.DefaultNamespace)
	var err error
	switch r.Topic {
	case ns.Events():
		var e *events.Event
		if e, err = events.DecodeEvent(r); err == nil {
			s.evolve(e, r)
		}
	case ns.Answers():
		var a *events.Answer
		if a, err = events.DecodeAnswer(r); err == nil && !a.Accepted {
			s.timeline.note(s.now, in.what+" is refused: "+strings.TrimPrefix(a.Reason, in.what+": "))
		}
	case ns.Inbox(events.Tasks), ns.Inbox(events.Replies): // between the task and those of its items
		if of, err := s.child(r); of || err != nil {
			s.fail(err)
			return
		}
		inbox, what := events.Tasks, "submission"
		if r.Topic == ns.Inbox(events.Replies) {
			inbox, what = events.Replies, "reply"
		}
		s.planned = append(s.planned, &input{at: s.now, inbox: inbox, record: *r, what: what + " of an item"})
	case ns.Alerts(), ns.Notifications(), ns.Deadletters():
	default:
		agent, isRequest := strings.CutPrefix(r.Topic, ns.Requests(""))
		var q *events.Request
		if q, err = events.DecodeRequest(r); err == nil && isRequest {
			s.call(agent, q)
		}
	}
	if err != nil {
		s.fail(fmt.Errorf("a record of %s: %w", r.Topic, err))
	}
}

// call plans the scripted reply to a request.
func (s *simulation) call(agent string, q *events.Request) {
	run := s.runOf(q)
	value, undoOf := q.Value, ""
	switch q.Ref.Kind {
	case events.Undo:
		value, undoOf = splitUndoOf(q.Value)
	case events.Check:
		value = json.RawMessage("{}") // each check has the key and the input of its step, and nothing else
	case events.Do:
	}
	what := agent + "." + q.Operation
	if text := compact(value); text != "{}" && text != "null" && !bytes.Equal(value, s.inputs[run]) {
		what += " " + text // an input that is the same as before isn't repeated
	}
	if len(q.Progress) > 0 {
		what += " progress=" + compact(q.Progress) // where the attempt before was
	}
	if undoOf == string(events.EffectUnknown) {
		what += " undo_of=unknown" // whether there is anything to undo
	}
	if run == runName(q.Ref) {
		s.timeline.request(q.Ref, what)
	} else {
		s.timeline.add(s.now, "item.called", fmt.Sprintf("%s (%d)", run, q.Ref.Attempt), what)
	}
	s.inputs[run], s.inputs[runName(q.Ref)] = value, value
	reply, line := s.replyTo(run, agent+"."+q.Operation, q.Ref.Attempt)
	if reply != nil {
		s.planProgress(q, reply, run, 1, reply.After)
	}
	switch {
	case reply == nil:
		s.fail(s.faultAt(line, fmt.Sprintf("attempt %d of %s (%s.%s) has no reply", q.Ref.Attempt, run, agent, q.Operation),
			"add one under replies: "+run+": completed, {failed: CODE}, {rejected: CODE} or silence"))
	case !reply.Silence:
		answer := events.Reply{Task: q.Task, Ref: q.Ref, Token: q.Token, Outcome: reply.Outcome, Effect: reply.Effect, RetryAfter: reply.RetryAfter, Body: reply.Body}
		s.planned = append(s.planned, &input{at: s.now.Add(reply.After), inbox: events.Replies, record: answer.Record(events.DefaultNamespace, source),
			what: fmt.Sprintf("reply to attempt %d of %s", q.Ref.Attempt, run)})
	}
}

// replyTo returns the scripted reply to an attempt: the case's before the file's, the step's before the operation's. If
// there is none, line is where it is missing.
func (s *simulation) replyTo(run, operation string, attempt int) (reply *Reply, line int) {
	line = s.c.Line
	for _, all := range []scripts{s.c.replies, s.file.replies} {
		for _, name := range []string{run, withoutItem(run), operation} {
			script := all[name]
			switch {
			case script == nil:
				continue
			case script.each != nil:
				return script.each, 0
			case attempt <= len(script.list):
				script.used = max(script.used, attempt)
				return script.list[attempt-1], 0
			}
			return nil, script.line
		}
	}
	return nil, line
}

// runName is the name of a run in replies and inputs.
func runName(ref events.RequestRef) string {
	if ref.Kind == events.Do {
		return ref.Step
	}
	return ref.Step + "/" + string(ref.Kind)
}

// splitUndoOf returns the value of a request without the member that each undo has, and the outcome in that member:
// completed or unknown. outcome is empty if the request is no undo.
func splitUndoOf(value json.RawMessage) (rest json.RawMessage, outcome string) {
	var members map[string]json.RawMessage
	if json.Unmarshal(value, &members) != nil || members["undo_of"] == nil {
		return value, ""
	}
	var of struct{ Outcome string }
	_ = json.Unmarshal(members["undo_of"], &of) // an operation may have an input of that name
	delete(members, "undo_of")
	rest, _ = events.EncodeJSON(members) // of JSON values
	return rest, of.Outcome
}
