package scheduler

import (
	"fmt"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/workflow"
)

// The bounds of what a decision makes, in uncompressed bytes. The largest
// record that Kafka takes by default is 1,000,012 bytes.
const (
	MaxStepInputBytes = 384 << 10 // of a step, as evaluated
	MaxOutputBytes    = 256 << 10 // of a step, and of a task
	MaxRequestBytes   = 900 << 10 // an undo's holds the step's input and output
	MaxTaskBytes      = 640 << 10 // of all that a task holds of other people's data
	MaxPlanBytes      = 192 << 10
	MaxFailureBytes   = 128 << 10 // of an event with an error, and little else
	MaxForwardBytes   = 900 << 10 // of a record that is passed on, with its headers
)

// clockTolerance is how early, by the scheduler's clock, a recovery may come:
// the supervisor's clock is another estimate of the same broker's. The decision
// is then dated at the timer's due, so no timer fires before it.
const clockTolerance = 100 * time.Millisecond

// Definitions are the workflow definitions as far as they have been read.
type Definitions interface {
	// Program returns a compiled definition, also one that was deleted: tasks that began with it go on.
	Program(name string, version int) (*workflow.Program, bool)
	// Applied returns what new tasks have; version 0 asks for the newest. nil: there is none, and
	// deleted says that there was one.
	Applied(name string, version int) (p *workflow.Program, deleted bool)
}

// Env is what a decision may know besides the task: all of it is given, so the
// same input in the same state at the same instant gives the same decision.
type Env struct {
	Now         time.Time
	Namespace   events.Namespace
	Source      string // ce_source of what is written
	Partition   int32
	Epoch       uint64
	Definitions Definitions
	// DefinitionsRead: the definitions topic has been read to its end since
	// the input was polled. Until then an unknown workflow is not refused.
	DefinitionsRead bool
	// Requests is the partition count of each agent's request topic, as
	// metadata has shown it. An agent without one can't be asked.
	Requests map[string]int32
	// Barred are agents that Requests lacks since their topics can't be written to, with the reason.
	Barred map[string]string
	// tooLarge are requests that their topics refused because of their size.
	tooLarge tooLargeRequests
	// Leaderless are, by agent, those partitions of its request topic that no broker leads, ascending:
	// what is written to them isn't acknowledged.
	Leaderless map[string][]int32
	// ReplyToPrefixes limits reply_to; empty: any topic outside the
	// namespace.
	ReplyToPrefixes []string
	// Token makes the token of an attempt that starts: at least 128 random bits, as text without a slash. A reply
	// is accepted only with it. What decides is pure, so the randomness is given to it.
	Token func(task string, ref events.RequestRef) string
	// Slots says how many requests may go out; nil: any number.
	Slots Slots
	// Records is memory for the decision's Records, which are then the caller's until
	// it gives it to another decision; nil: none.
	Records []events.Record
	// Room is memory for what those are made of: they are good until it is reset. nil:
	// they may be kept.
	Room *events.Arena
	// decider is memory for the decision: its Events are good until the next one that has
	// it. nil: they may be kept.
	decider *decider
}

// Slots are how many requests agents may have outstanding, beside those that
// they have.
type Slots interface {
	// Free is how many more an agent may be sent, by a step of the task. It is
	// less than 1 where others wait already.
	Free(agent, task string, now time.Time) int
	// Waits reports whether a run of a step waits for its agent already: it goes on when it
	// is its turn, and not before.
	Waits(t *events.Task, step int, k events.Kind) bool
}

// Ignored says why an input changed nothing and is no fault either.
type Ignored string

// What is ignored, and counted by these names.
const (
	IgnoredStaleReply     Ignored = "stale_reply"     // its attempt is no longer current
	IgnoredNotArmed       Ignored = "not_armed"       // a recovery for a timer that isn't armed (any more)
	IgnoredNotDue         Ignored = "not_due"         // a recovery that came early
	IgnoredOutsidePolicy  Ignored = "outside_policy"  // a recovery that the policy doesn't allow (yet)
	IgnoredDuplicate      Ignored = "duplicate"       // a submission that was there already
	IgnoredRefusedControl Ignored = "refused_control" // a control that the state doesn't allow
	IgnoredQueued         Ignored = "queued"          // a retry whose agent has no slot: it waits for one in the scheduler
	IgnoredTaskStopped    Ignored = "task_stopped"    // one more recovery of a task whose history holds what this build can't read
)

// Decision is what follows from one input.
type Decision struct {
	// Task is the state after; nil if there is no such task.
	Task *events.Task
	// Events are what happened, in order; empty if nothing did.
	Events []*events.Event
	// Records are what is to be written, the events' own among them.
	Records []events.Record
	// Ignored is set if the input is used up without effect.
	Ignored Ignored
	// Unusable is set if the input is to be dead-lettered.
	Unusable *events.Unusable
	// NeedDefinitions: decide again when definitions have been read to
	// their end as of now. Nothing else is set then.
	NeedDefinitions bool
}

// Decide is the scheduler's core: what follows from an input in a task's state
// (nil: there is no such task). It changes t, which must be the caller's own
// copy, and returns it in the decision. It reads no clock and does no I/O.
func Decide(t *events.Task, in events.Input, cause events.Cause, env *Env) Decision {
	d := newDecider(t, cause, env)
	switch in := in.(type) {
	case *events.Submission:
		d.submit(in)
	case *events.Reply:
		d.reply(in)
	case *events.Recovery:
		d.recover(in)
	case *events.Control:
		d.control(in)
	}
	return d.decision()
}

// decider carries one decision while it is made.
type decider struct {
	Decision
	env             *Env
	cause           events.Cause
	now             time.Time
	needDefinitions bool
	program         *workflow.Program
	changed         bool // there is one under the task's name, and it is another
	derived         derived
	// queued: what is decided on had to wait for its agent, and is its turn.
	queued bool
	freed  []freed
	// What most decisions need no more than.
	events [usualEvents]*events.Event
	made   [usualEvents]events.Event
	slot   [1]freed
}

const usualEvents = 4

func newDecider(t *events.Task, cause events.Cause, env *Env) *decider {
	d := env.decider
	if d == nil {
		d = &decider{}
	}
	*d = decider{Decision: Decision{Task: t, Records: env.Records[:0]}, env: env, cause: cause, now: events.Millis(env.Now), derived: derived{bytes: -1}}
	d.Events, d.freed = d.events[:0], d.slot[:0]
	return d
}

func (d *decider) decision() Decision {
	if d.needDefinitions {
		return Decision{NeedDefinitions: true}
	}
	return d.Decision
}

// event is memory for the next event.
func (d *decider) event() *events.Event {
	if n := len(d.Events); n < usualEvents {
		return &d.made[n]
	}
	return &events.Event{}
}

// emit records a fact: the task moves on, and what the fact means to others is
// written with it.
func (d *decider) emit(f events.Fact, due time.Time, p *events.Policy) *events.Event {
	e := d.event()
	*e = events.Event{At: d.now, Cause: d.cause, Epoch: d.env.Epoch, Queued: d.queued, Due: events.Millis(due), Policy: p, Fact: f, Seq: 1}
	if d.Task != nil {
		e.Task, e.Seq, e.Prev = d.Task.ID, d.Task.Seq+1, d.Task.Prev
	}
	return d.record(e)
}

func (d *decider) record(e *events.Event) *events.Event {
	value, hash := d.sealed(e)
	d.slots(e.Fact)
	next, err := events.Evolve(d.Task, e, hash)
	if err != nil {
		// The decision made an event that its own table forbids.
		panic("scheduler: " + err.Error())
	}
	d.Task = next
	d.derived.moved(next, e)
	d.Events = append(d.Events, e)
	d.Records = append(d.Records, e.RecordIn(d.env.Room, d.env.Namespace, d.env.Source, d.env.Partition, value))
	d.tell(e)
	return e
}

// sealed is an event's value, and its hash. Whatever is in an event has a bound where it is read or
// made; this is for the errors among it, which have most makers, should one have none:
// an event that no client writes would stop its partition for ever.
func (d *decider) sealed(e *events.Event) (value []byte, hash string) {
	value, hash = e.SealIn(d.env.Room, d.Task)
	if len(value) <= MaxFailureBytes {
		return value, hash
	}
	err := e.Fact.About().Failure
	if err == nil || *err == nil {
		return value, hash
	}
	*err = &events.Error{Code: events.CodeTooLarge, Step: (*err).Step,
		Message: fmt.Sprintf("the event of an error has %d bytes; at most %d: %s", len(value), MaxFailureBytes, shortened((*err).Code+": "+(*err).Message))}
	return e.SealIn(d.env.Room, d.Task)
}

func (d *decider) refuse(r events.Reason, detail string) {
	d.Unusable = &events.Unusable{Reason: r, Detail: detail}
}

func (d *decider) reply(r *events.Reply) {
	t := d.Task
	if r.Token == "" {
		d.refuse(events.ReasonBadToken, events.HeaderRequest+" of the reply has no token: an agent must copy the request's whole")
		return
	}
	if t == nil {
		d.refuse(events.ReasonUnknownTask, "no task "+quoted(r.Task)+" is known here")
		return
	}
	if !t.Open() { // its steps may be forgotten: see events.Task.Finished
		d.Ignored = IgnoredStaleReply
		return
	}
	i, ok := t.Plan.Step(r.Ref.Step)
	if !ok {
		d.refuse(events.ReasonUnknownStep, "task "+quoted(r.Task)+" has no step "+quoted(r.Ref.Step))
		return
	}
	run := t.Run(i, r.Ref.Kind)
	if run == nil || run.Attempt != r.Ref.Attempt {
		d.Ignored = IgnoredStaleReply
		return
	}
	ref := r.Ref
	agent, _ := t.Plan.Agent(i, ref.Kind)
	if !r.TokenMatches(run.TokenHash) {
		d.refuse(events.ReasonBadToken, "the reply to "+quoted(events.RequestID(t.ID, ref))+" hasn't the token that agent "+quoted(agent)+" was sent")
		return
	}
	if run.State != events.StepRunning {
		d.Ignored = IgnoredStaleReply
		return
	}
	instance := d.env.Namespace.InstanceOf(agent, r.Source)
	switch r.Outcome {
	case events.Completed:
		d.completed(i, ref, instance, r)
	case events.Failed:
		d.failed(i, &events.AttemptFailed{Kind: ref.Kind, Step: ref.Step, Attempt: ref.Attempt, Instance: instance, Effect: r.Effect, Error: r.Failure(),
			RetryAfter: events.AskedWait(ref.Kind, r.RetryAfter), Deferred: run.Defers(ref.Kind, r.Effect, r.RetryAfter, d.now)})
	case events.Rejected:
		err := r.Failure()
		d.emit(&events.AttemptRejected{Kind: ref.Kind, Step: ref.Step, Attempt: ref.Attempt, Instance: instance, Error: err}, time.Time{}, nil)
		d.giveUp(ref.Step, ref.Kind, err)
	}
}

func (d *decider) completed(i int, ref events.RequestRef, instance string, r *events.Reply) {
	if n := len(r.Body); ref.Kind == events.Do && (n > MaxOutputBytes || d.derived.size(d.Task)+n > MaxTaskBytes) {
		// It did happen: the effect stays unknown to the task, so that an
		// undo reaches it, and it isn't tried again.
		err := &events.Error{Code: events.CodeTooLarge, Message: tooLarge("the output of step "+quoted(ref.Step), n, MaxOutputBytes, d.derived.size(d.Task)+n)}
		d.emit(&events.AttemptFailed{Kind: ref.Kind, Step: ref.Step, Attempt: ref.Attempt, Instance: instance, Effect: events.EffectUnknown, Error: err}, time.Time{}, nil)
		d.errored(i, ref.Kind, err)
		return
	}
	f := &events.AttemptCompleted{Kind: ref.Kind, Step: ref.Step, Attempt: ref.Attempt, Instance: instance}
	if ref.Kind == events.Do {
		f.Output = r.Body
	}
	d.emit(f, time.Time{}, nil)
	d.advance()
}

// failed records a failed attempt. While the run may go on, a timer hands it to the supervisor: it is due at
// once, or when the agent asked to be called again.
func (d *decider) failed(i int, f *events.AttemptFailed) {
	if !d.goesOn(f.Kind) {
		d.emit(f, time.Time{}, nil)
		d.advance()
		return
	}
	p := d.policyOf(i, f)
	if f.Deferred {
		p.CooledDown = false
	} else {
		p.FailureCount++
	}
	d.emit(f, d.now.Add(f.RetryAfter), p)
}

// goesOn reports whether a run of the kind may have further attempts: a step's
// while the task is processed, an undo's while it is undone.
func (d *decider) goesOn(k events.Kind) bool { return goesOn(d.Task, k) }

func goesOn(t *events.Task, k events.Kind) bool {
	if k == events.Undo {
		return t.State == events.StateUndoing
	}
	return t.State == events.StateProcessing
}

func (d *decider) recover(r *events.Recovery) {
	t := d.Task
	if t == nil {
		d.refuse(events.ReasonUnknownTask, "no task "+quoted(r.Task)+" is known here")
		return
	}
	if !t.Open() {
		d.Ignored = IgnoredNotArmed
		return
	}
	timer, i, ok := d.timerOf(r)
	if !ok || timer.Seq != r.Timer {
		d.Ignored = IgnoredNotArmed
		return
	}
	if d.now.Before(timer.Due) {
		if timer.Due.Sub(d.now) > clockTolerance {
			d.Ignored = IgnoredNotDue
			return
		}
		d.now = timer.Due
	}
	if r.Step == "" {
		if string(r.Action) != t.Plan.OnError {
			d.Ignored = IgnoredOutsidePolicy
			return
		}
		d.fail(&events.Error{Code: events.CodeExpired, Message: "the task's complete-by has passed"})
		return
	}
	d.recoverRun(i, r)
}

// timerOf returns the timer that a recovery names, and its step.
func (d *decider) timerOf(r *events.Recovery) (events.Timer, int, bool) {
	if r.Step == "" {
		return d.Task.Timer, 0, d.Task.Timer.Armed()
	}
	i, ok := d.Task.Plan.Step(r.Step)
	if !ok {
		return events.Timer{}, 0, false
	}
	run := d.Task.Run(i, r.Kind)
	if run == nil {
		return events.Timer{}, 0, false
	}
	return run.Timer, i, run.Timer.Armed()
}

// recoverRun does what the policy in the log calls for, if that is what the
// supervisor asked for. The instants are the scheduler's own: the budget and
// the backoff are its to keep.
func (d *decider) recoverRun(i int, r *events.Recovery) {
	run := d.Task.Run(i, r.Kind)
	kind := run.State.TimerKind()
	if !d.goesOn(r.Kind) { // held, or about to be undone: only the attempt ends
		d.expire(i, r.Kind)
		d.advance()
		return
	}
	p := d.Task.Policy(i, r.Kind, kind)
	next := func() events.Ask { return p.Next(d.Task.ID, r.Step, r.Kind, run.Attempt, run.Timer.Due, d.now) }
	ask := next()
	if d.soon(r, ask) {
		d.now = ask.Until
		ask = next()
	}
	late := ask.Action == events.ActionRetry && r.Action == events.ActionWait // its wait is over by now
	// An attempt that ran through a hold was armed with the complete-by before
	// the resubmit, by which there was no time for a cool-down. Now there is. After a
	// release it was armed with the same; that can't be told here, and what follows is
	// what the policy calls for.
	longer := ask.CoolDown && string(r.Action) == p.OnError && run.Timer.Seq < d.Task.Timer.Seq
	if ask.Action != r.Action && !late && !longer {
		d.Ignored = IgnoredOutsidePolicy
		return
	}
	if ask.Action == events.ActionRetry && !d.now.Before(ask.CompleteBy) {
		d.Ignored = IgnoredOutsidePolicy // the task's own time is over: its timer decides
		return
	}
	if kind == events.TimerAttempt {
		d.expire(i, r.Kind)
	}
	switch ask.Action {
	case events.ActionRetry:
		switch {
		case d.room(i, r.Kind):
			d.attempt(i, r.Kind)
		case kind == events.TimerWaiting:
			d.Ignored = IgnoredQueued
		default: // it waits no longer than until its turn
			d.wait(i, r.Kind, events.Ask{Until: d.now})
		}
	case events.ActionWait:
		d.wait(i, r.Kind, ask)
	default:
		d.errored(i, r.Kind, exhausted(d.Task.Run(i, r.Kind))) // as the time-out has left it
	}
}

// soon reports whether a retry is asked for whose wait ends within what clocks may differ by.
// Refused, it would be asked for again only a second later.
func (d *decider) soon(r *events.Recovery, ask events.Ask) bool {
	return r.Action == events.ActionRetry && ask.Action == events.ActionWait && !ask.CoolDown && ask.Until.Sub(d.env.Now) <= clockTolerance
}

// wait arms the timer of a run's next attempt.
func (d *decider) wait(i int, k events.Kind, ask events.Ask) {
	f := &events.AttemptWaiting{Kind: k, Step: d.Task.Plan.Steps[i].ID, Attempt: d.Task.Run(i, k).Attempt, CoolDown: ask.CoolDown}
	p := d.policyOf(i, f)
	p.CooledDown = p.CooledDown || ask.CoolDown
	d.emit(f, ask.Until, p)
}

// policyOf is what a supervisor needs of the timer that a fact of a step arms.
func (d *decider) policyOf(i int, f events.Fact) *events.Policy {
	a := f.About()
	return d.Task.Policy(i, a.Kind, a.Arms)
}

func exhausted(run *events.Run) *events.Error {
	e := &events.Error{Code: events.CodeTriesExhausted, Message: "no attempt is left"}
	if run.Error != nil {
		e.Message += "; the last: " + run.Error.Code
		if run.Error.Message != "" {
			e.Message += ": " + run.Error.Message
		}
	}
	return e
}

// expire ends a running attempt whose time is over.
func (d *decider) expire(i int, k events.Kind) {
	run := d.Task.Run(i, k)
	d.emit(&events.AttemptExpired{Kind: k, Step: d.Task.Plan.Steps[i].ID, Attempt: run.Attempt}, time.Time{}, nil)
}

// errored ends a run for good, and with it the task's going on.
func (d *decider) errored(i int, k events.Kind, err *events.Error) {
	step := d.Task.Plan.Steps[i].ID
	d.emit(&events.RunErrored{Kind: k, Step: step, Error: err}, time.Time{}, nil)
	d.giveUp(step, k, err)
}

// giveUp is what a step in error means to its task.
func (d *decider) giveUp(step string, k events.Kind, err *events.Error) {
	if !d.goesOn(k) {
		d.advance()
		return
	}
	e := *err
	e.Step = step
	d.fail(&e)
}

// fail ends the going on of a task: undone or held, as its plan says. An undo
// that fails is held: nothing is dropped.
func (d *decider) fail(err *events.Error) {
	if d.Task.State == events.StateUndoing || d.Task.Plan.OnError == events.OnErrorHold {
		d.emit(&events.TaskHeld{Error: err}, time.Time{}, nil)
		return
	}
	d.emit(&events.TaskUndoing{Ending: events.StateUndone, Error: err}, time.Time{}, nil)
	d.advance()
}
