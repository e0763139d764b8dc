package verify

import (
	"cmp"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
)

const ns = events.Namespace(events.DefaultNamespace)

// history writes the records of a task with the steps a, b and c: the records of inboxes, the events that follow, the
// requests, the alerts and the ledger. The steps need nothing. By default the records are those of a scheduler.
type history struct {
	t       testing.TB
	id      string // of the task
	c       *Checker
	o       Options
	state   *events.Task
	at      time.Time
	decided int64 // the offset of the records of schedules
	offset  int64 // of the next event
	inputs  [events.Inboxes]int64
	cause   events.Cause
	topics  events.TopicIDs // of the last claim
	epoch   uint64          // of the last claim
	part    int32           // the partition of all records
	onError string          // of its plan; empty: undo
	chain   bool            // each step needs the one before it
	waiting bool            // step a is a wait
	beats   time.Duration   // the heartbeat of step a and of its undo; 0: none
	forget  bool            // requests are without progress
	polling bool            // step a is repeated: at most 2 calls, 10 s apart
	dedupe  time.Duration   // how long the ids of ended tasks are known; 0: for ever
	mute    bool            // the next input isn't passed to the checker, because it was trimmed
	all     []events.Record // of events
	fed     []events.Record // of inboxes

	steps func([]events.PlanStep) // changes the steps of its plan; nil: none
}

// rule is the retry rule of every attempt: two attempts, half a second apart, and one after a cool-down.
var rule = events.Attempts{CompleteWithin: time.Second, MaxAttempts: 2, Backoff: time.Second / 2, Factor: 1, CoolDown: 5 * time.Second}

var start0 = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// newHistory returns a history of a claimed partition without tasks.
func newHistory(t *testing.T, o Options) *history {
	o.Inputs = true
	h := &history{t: t, id: "t", o: o, c: New(o), at: start0}
	h.claim(1)
	return h
}

func (h *history) claim(epoch uint64) {
	h.epoch = epoch
	h.raw(&events.Event{Seq: epoch, Epoch: epoch, At: h.at, Cause: events.Cause{Inbox: events.Tasks, Partition: h.part, Offset: h.inputs[events.Tasks]},
		Fact: &events.PartitionClaimed{Owner: "test", TopicIDs: h.topics}})
}

// recreated starts an inbox again: it was deleted and created again, and is claimed with its new id. The checker gets
// the records of the last topic only.
func (h *history) recreated(inbox events.Inbox, id string) *history {
	h.topics[inbox], h.inputs[inbox] = id, 0
	h.claim(h.epoch + 1)
	return h
}

// submit submits task t. The task is accepted and started.
func (h *history) submit() *history {
	s := &events.Submission{ID: h.id, Workflow: "w", Input: []byte("{}")}
	h.input(s.Record(ns, "test"))
	h.receive(s)
	return h
}

func (h *history) receive(s *events.Submission) {
	h.add(&events.TaskReceived{Workflow: "w", Version: 1, Input: s.Input, ReplyTo: s.ReplyTo, Priority: s.Priority, Labels: s.Labels,
		CompleteBy: s.CompleteBy, Plan: h.plan(), Digest: s.Digest()})
	h.add(&events.TaskStarted{})
}

// holding makes the task be held instead of undone.
func (h *history) holding() *history {
	h.onError = events.OnErrorHold
	return h
}

func (h *history) plan() *events.Plan {
	steps := make([]events.PlanStep, 0, 3)
	for _, id := range []string{"a", "b", "c"} {
		steps = append(steps, events.PlanStep{ID: id, Agent: "x", Operation: id, Attempts: rule,
			Undo: &events.PlanUndo{Agent: "x", Operation: "u", Attempts: rule}})
		if n := len(steps) - 1; h.chain && n > 0 {
			steps[n].Needs = []int{n - 1}
		}
	}
	if h.beats > 0 {
		steps[0].Attempts.CompleteWithin, steps[0].Attempts.Heartbeat = time.Minute, h.beats
		steps[0].Undo.Attempts = steps[0].Attempts
	}
	if h.polling {
		steps[0].Repeat = &events.PlanRepeat{Every: 10 * time.Second, Max: 2}
	}
	if h.waiting {
		steps[0] = events.PlanStep{ID: "a", StepKind: events.WaitStep}
	}
	if h.steps != nil {
		h.steps(steps)
	}
	p := events.NewPlan(cmp.Or(h.onError, events.OnErrorUndo), time.Hour, steps)
	if h.dedupe == 0 {
		return p
	}
	return p.WithDedupeFor(h.dedupe)
}

// input writes a record to an inbox. The events that are added next have it as their cause.
func (h *history) input(r events.Record) *history {
	h.t.Helper()
	kind, ok := events.ParseInbox(r.Topic[len(ns):])
	if !ok {
		h.t.Fatalf("%s is no inbox", r.Topic)
	}
	r.Partition, r.Offset, r.Time = h.part, h.inputs[kind], h.at
	h.inputs[kind]++
	h.cause = events.Cause{Inbox: kind, Partition: h.part, Offset: r.Offset}
	if !h.mute {
		h.fed = append(h.fed, r)
		h.c.Input(&r)
	}
	h.mute = false
	return h
}

// token is the token of each attempt. Its hash differs between attempts.
const token = "K5QW2MZT7C4NAXJ6RB3LDY5GHE"

// empty is the body of all replies.
var empty = events.Reply{Body: []byte("{}")}

func (h *history) reply(step string, k events.Kind, n int, o events.Outcome) *history {
	p := &events.Reply{Task: h.id, Ref: events.RequestRef{Step: step, Kind: k, Attempt: n}, Token: token, Outcome: o, Body: empty.Body}
	return h.input(p.Record(ns, "agent"))
}

// recovery writes the recovery for the active timer of a slot.
func (h *history) recovery(step string, k events.Kind, a events.Action) *history {
	x := &events.Recovery{Task: h.id, Timer: 1, Action: a, Step: step, Kind: k}
	if t := h.timer(step, k); t.Armed() {
		x.Timer = t.Seq
	}
	return h.input(x.Record(ns, "supervisor", 0))
}

func (h *history) timer(step string, k events.Kind) events.Timer {
	if step == "" {
		return h.state.Timer
	}
	i, _ := h.state.Plan.Step(step)
	if run := h.state.Run(i, k); run != nil {
		return run.Timer
	}
	return events.Timer{}
}

func (h *history) control(x *events.Control) *history {
	x.Task, x.RequestID = h.id, "request"
	return h.input(x.Record(ns, "operator"))
}

// event makes a fact the task's next event, with the timer that it starts.
func (h *history) event(f events.Fact) *events.Event {
	e := &events.Event{Task: h.id, Seq: 1, At: h.at, Cause: h.cause, Epoch: h.epoch, Fact: f}
	if h.state == nil {
		return e
	}
	e.Seq, e.Prev = h.state.Seq+1, h.state.Prev
	switch f := f.(type) {
	case *events.AttemptCompleted:
		if f.Kind == events.Do && f.Output == nil {
			f.Output = []byte("{}") // as in all replies
		}
	case *events.TaskStarted:
		by := earlier(h.at.Add(time.Hour), h.state.Asked)
		e.Due, e.Policy = by, h.state.TaskPolicy(by)
	case *events.TaskResumed:
		if h.state.Ending == "" {
			e.Due, e.Policy = h.at.Add(time.Hour), h.state.TaskPolicy(h.at.Add(time.Hour))
		}
	case *events.TaskMigrated:
		if h.state.State == events.StateProcessing {
			e.Due = h.state.CompleteByUnder(f.Plan)
			e.Policy = &events.Policy{Timer: events.TimerTask, OnError: f.Plan.OnError, CompleteBy: e.Due}
		}
	case *events.AttemptStarted:
		if f.TokenHash == "" {
			f.TokenHash = events.TokenHash(h.id, events.RequestRef{Step: f.Step, Kind: f.Kind, Attempt: f.Attempt}, token)
		}
		if f.Key == key(f.Step, f.Kind) { // another task has another key
			f.Key = events.IdempotencyKey(ns, h.state.KeyName(), f.Step, f.Kind, 0)
		}
		if i, _ := h.state.Plan.Step(f.Step); f.Kind == events.Do && f.Input == nil && len(h.state.Steps[i].Input) == 0 {
			f.Input = []byte("{}") // as in all requests
		}
		i, _ := h.state.Plan.Step(f.Step)
		rule := h.state.Plan.AttemptsOf(i, f.Kind)
		by := h.at.Add(rule.CompleteWithin)
		if rule.Heartbeat > 0 {
			f.CompleteBy = by
		}
		h.arm(e, events.TimerAttempt, f.Step, f.Kind, rule.SilenceEnds(h.at, by))
	case *events.AttemptProgressed:
		i, _ := h.state.Plan.Step(f.Step)
		h.arm(e, events.TimerAttempt, f.Step, f.Kind, h.state.Plan.AttemptsOf(i, f.Kind).SilenceEnds(h.at, h.state.Run(i, f.Kind).CompleteBy))
	case *events.SignalStarted:
		h.arm(e, events.TimerStep, f.Step, events.Do, h.at.Add(10*time.Second))
	case *events.WaitStarted:
		h.arm(e, events.TimerStep, f.Step, events.Do, f.End(h.at))
	case *events.CallRepeated:
		f.Output = []byte("{}") // as in all replies
		if h.state.State == events.StateProcessing && h.state.Steps[0].Interim().Calls == 0 {
			h.arm(e, events.TimerWaiting, f.Step, events.Do, h.at.Add(10*time.Second))
			e.Policy.FailureCount, e.Policy.CooledDown = 0, false
		}
	case *events.AttemptRejected:
		if f.Error == nil {
			f.Error = empty.Failure()
		}
	case *events.AttemptFailed:
		if f.Error == nil && h.cause.Inbox == events.Replies {
			f.Error = empty.Failure()
		}
		if i, _ := h.state.Plan.Step(f.Step); !h.state.Plan.Retries(i, f.Kind, f.Error) {
			break
		}
		if h.state.State == events.StateProcessing || f.Kind != events.Do && h.state.State == events.StateUndoing {
			h.arm(e, events.TimerFailed, f.Step, f.Kind, h.at.Add(f.RetryAfter))
			if !f.Deferred {
				e.Policy.FailureCount++
			}
		}
	case *events.AttemptWaiting:
		i, _ := h.state.Plan.Step(f.Step)
		run := h.state.Run(i, f.Kind)
		due := run.Timer.Due
		if due.IsZero() {
			due = run.CompleteBy
		}
		attempts := h.state.Plan.AttemptsOf(i, f.Kind)
		wait := attempts.Delay(h.id, f.Step, f.Kind, f.Attempt, run.FailureCount)
		if f.CoolDown {
			wait = attempts.CoolDown
		}
		h.arm(e, events.TimerWaiting, f.Step, f.Kind, due.Add(wait))
		e.Policy.CooledDown = e.Policy.CooledDown || f.CoolDown
	}
	return e
}

func (h *history) arm(e *events.Event, timer events.TimerKind, step string, k events.Kind, due time.Time) {
	i, _ := h.state.Plan.Step(step)
	e.Due, e.Policy = due, h.state.Policy(i, k, timer)
}

// raw writes an event unchanged.
func (h *history) raw(e *events.Event) events.Record {
	value := e.Seal(h.state)
	r := e.Record(ns, "test", h.part, value)
	r.Offset, r.Time = h.offset, h.at
	h.offset++
	h.all = append(h.all, r)
	h.c.Event(&r)
	return r
}

// add writes a fact as the task's next event, with its request or alert.
func (h *history) add(f events.Fact) *history {
	h.t.Helper()
	return h.write(h.event(f))
}

func (h *history) write(e *events.Event) *history {
	h.t.Helper()
	r := h.raw(e)
	next, err := events.Evolve(h.state, e, events.Hash(e.Fact.Type(), r.Value))
	if err != nil {
		h.t.Fatal(err)
	}
	h.state = next
	switch f := e.Fact.(type) {
	case *events.AttemptStarted:
		if h.o.Requests {
			h.request(f, f.EndsBy(e))
		}
	case *events.TaskHeld:
		a := events.Alert{Task: h.id, Seq: e.Seq}
		r := a.Record(ns, "test", e.ID(0))
		h.c.Alert(&r)
	}
	return h
}

func (h *history) request(f *events.AttemptStarted, due time.Time) {
	if due.IsZero() { // an attempt without a timer has a request too
		due = h.at.Add(time.Second)
	}
	q := events.Request{Task: h.id, Ref: events.RequestRef{Step: f.Step, Kind: f.Kind, Attempt: f.Attempt}, Token: token, Operation: f.Operation,
		CompleteBy: due, IdempotencyKey: f.Key, Value: []byte("{}")}
	i, _ := h.state.Plan.Step(f.Step)
	q.Heartbeat, q.Progress = h.state.Plan.AttemptsOf(i, f.Kind).Heartbeat, h.state.Run(i, f.Kind).Interim().Progress
	if h.forget {
		q.Progress = nil
	}
	if own := h.state.Steps[i]; f.Kind == events.Check {
		q.Value = events.CheckValue(events.CheckOf{IdempotencyKey: own.Key, Input: own.Input})
	}
	r := q.Record(ns, "test", "x", 0)
	h.c.Request(&r)
}

func (h *history) later(d time.Duration) *history {
	h.at = h.at.Add(d)
	return h
}

// do returns the start of an attempt at a step.
func do(step string, n int) *events.AttemptStarted {
	return &events.AttemptStarted{Kind: events.Do, Step: step, Attempt: n, Agent: "x", Operation: step, Key: key(step, events.Do)}
}

// undo returns the start of an attempt at a step's undo.
func undo(step string, n int) *events.AttemptStarted {
	return &events.AttemptStarted{Kind: events.Undo, Step: step, Attempt: n, Agent: "x", Operation: "u", Key: key(step, events.Undo)}
}

func key(step string, k events.Kind) string { return events.IdempotencyKey(ns, "t", step, k, 0) }

// completes writes a reply that completes the first attempt, and its event.
func (h *history) completes(step string, k events.Kind) *history {
	h.t.Helper()
	h.later(10 * time.Millisecond)
	h.reply(step, k, 1, events.Completed).add(&events.AttemptCompleted{Kind: k, Step: step, Attempt: 1})
	e := Effect{Happened, key(step, events.Do)}
	if k == events.Undo {
		e.What = Undone
	}
	h.c.Effect(e)
	return h
}

// defers writes a failed attempt. The event of its reply is f. The agent asked to be called 1 s later.
func (h *history) defers(f *events.AttemptFailed, effect events.Effect) *history {
	h.t.Helper()
	h.later(10 * time.Millisecond)
	p := &events.Reply{Task: h.id, Ref: events.RequestRef{Step: f.Step, Kind: f.Kind, Attempt: f.Attempt}, Token: token, Outcome: events.Failed, Effect: effect, RetryAfter: time.Second, Body: empty.Body}
	return h.input(p.Record(ns, "agent")).add(f)
}

func (h *history) fails(step string, k events.Kind, n int) *history {
	h.t.Helper()
	h.later(10 * time.Millisecond)
	return h.reply(step, k, n, events.Failed).add(&events.AttemptFailed{Kind: k, Step: step, Attempt: n, Effect: events.EffectUnknown})
}

// waits writes the wait after a failed attempt, to its end.
func (h *history) waits(step string, n int) *history {
	h.t.Helper()
	h.recovery(step, events.Do, events.ActionWait).add(&events.AttemptWaiting{Kind: events.Do, Step: step, Attempt: n})
	h.at = h.timer(step, events.Do).Due
	return h.recovery(step, events.Do, events.ActionRetry)
}

// twoDone writes a task whose steps a and b have completed, in this order.
func (h *history) twoDone() *history {
	h.t.Helper()
	return h.submit().add(do("a", 1)).completes("a", events.Do).add(do("b", 1)).completes("b", events.Do)
}

// undoing writes the decision to undo after the rejection of step c.
func (h *history) undoing() *history {
	h.t.Helper()
	return h.add(do("c", 1)).later(time.Millisecond).reply("c", events.Do, 1, events.Rejected).
		add(&events.AttemptRejected{Kind: events.Do, Step: "c", Attempt: 1}).add(&events.TaskUndoing{Ending: events.StateUndone})
}

// undone writes a task that was undone correctly.
func (h *history) undone() *history {
	h.t.Helper()
	return h.twoDone().undoing().add(undo("b", 1)).completes("b", events.Undo).add(undo("a", 1)).completes("a", events.Undo).add(&events.TaskUndone{})
}

// processed writes a task that was processed correctly.
func (h *history) processed() *history {
	h.t.Helper()
	return h.twoDone().add(do("c", 1)).completes("c", events.Do).add(&events.TaskProcessed{})
}
