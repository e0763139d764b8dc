package scheduler

import (
	"fmt"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/workflow"
)

// The limits of a decision's output, in uncompressed bytes. The largest record that Kafka takes by default is
// 1,000,012 bytes.
const (
	MaxStepInputBytes = 384 << 10 // of a step, after evaluation
	MaxOutputBytes    = 256 << 10 // of a step, and of a task
	MaxRequestBytes   = 900 << 10 // the request of an undo contains the step's input and output
	MaxTaskBytes      = 640 << 10 // of all user data that a task holds
	MaxPlanBytes      = 192 << 10
	MaxFailureBytes   = 128 << 10 // of an event that contains an error
	MaxForwardBytes   = 900 << 10 // of a record that is forwarded, with its headers
)

// clockTolerance is how early, by the scheduler's clock, a recovery may arrive. The supervisor estimates the broker's
// clock independently. The decision then has the time at which the timer is due, so no timer fires early.
const clockTolerance = 100 * time.Millisecond

// Definitions are the workflow definitions that have been read.
type Definitions interface {
	// Program returns a compiled definition. Deleted definitions are included, for the tasks that began with them.
	Program(name string, version int) (*workflow.Program, bool)
	// Applied returns the definition for new tasks. Version 0 means the newest that isn't deprecated. If p is nil, why says
	// what is wrong.
	Applied(name string, version int) (p *workflow.Program, why Absence)
}

// Env contains everything that a decision depends on besides the task and the input. Equal arguments give equal
// decisions.
type Env struct {
	Now         time.Time
	Namespace   events.Namespace
	Source      string // ce_source of the records
	Partition   int32
	Epoch       uint64
	Forgot      time.Time // ids of the partition's ended tasks are forgotten until then; zero: none was
	Definitions Definitions
	// DefinitionsRead reports that the definitions topic was read to its end after the input was polled. Until then an
	// unknown workflow is not refused.
	DefinitionsRead bool
	// Requests is the partition count of each agent's request topic, from metadata. An agent that isn't listed can't
	// receive requests.
	Requests map[string]int32
	// Unwritable maps agents that Requests lacks to the reason why their topics can't be written to.
	Unwritable map[string]string
	// tooLarge are the requests that exceed the size limit of their topics.
	tooLarge tooLargeRequests
	// Leaderless lists, by agent, the partitions of its request topic that have no leader, ascending. Writes to them
	// aren't acknowledged.
	Leaderless map[string][]int32
	// ReplyToPrefixes limits reply_to to topics with one of these prefixes; empty: any topic outside the namespace.
	ReplyToPrefixes []string
	// Token generates the token of an attempt: at least 128 random bits, as text without a slash. A reply is accepted
	// only with this token. It is a parameter because a decision is pure.
	Token func(task string, ref events.RequestRef) string
	// Histories has the processed tasks that were read again from the log. An undo of a processed task needs one.
	Histories Histories
	// Slots limits the requests that may be outstanding; nil: no limit.
	Slots Slots
	// Records is memory for the decision's Records, to be reused. The caller may read them until it passes the memory
	// to another decision. May be nil.
	Records []events.Record
	// Arena is memory for the values of Records. They are valid until it is reset. nil: they may be retained.
	Arena *events.Arena
	// decider is memory for the decision. Its Events are valid until the next decision that uses it. nil: they may be
	// retained.
	decider *decider
}

// Slots tells how many more requests agents may have outstanding.
type Slots interface {
	// Free returns how many more requests of the task may be sent to the agent. It is less than 1 while other tasks
	// wait for the agent.
	Free(agent, task string, now time.Time) int
	// Waits reports whether a run of a step is already queued for its agent. Only Start may start such a run.
	Waits(t *events.Task, step int, k events.Kind) bool
}

// Ignored says why a valid input changed nothing.
type Ignored string

// The reasons. Metrics use these names.
const (
	IgnoredStaleReply      Ignored = "stale_reply"       // its attempt is no longer current
	IgnoredNotArmed        Ignored = "not_armed"         // a recovery for a timer that isn't armed (any more)
	IgnoredNotDue          Ignored = "not_due"           // a recovery that came before the timer is due
	IgnoredOutsidePolicy   Ignored = "outside_policy"    // a recovery that the policy doesn't allow (yet)
	IgnoredUnknownTask     Ignored = "unknown_task"      // a submission that asks for the status of a task that isn't known
	IgnoredDuplicate       Ignored = "duplicate"         // a submission or a signal that was accepted before
	IgnoredRefusedControl  Ignored = "refused_control"   // a control that the state doesn't allow
	IgnoredProgressEarly   Ignored = "progress_early"    // a progress too soon after the last recorded one
	IgnoredProgressLate    Ignored = "progress_late"     // a progress after the complete-by of its attempt
	IgnoredProgressOfCheck Ignored = "progress_of_check" // a progress of a check
	IgnoredQueued          Ignored = "queued"            // a retry whose agent has no free slot: the run is queued
	IgnoredSnapshotRuns    Ignored = "snapshot_runs"     // a recovery that asks to forget ids while a snapshot is written; it is asked for again
	IgnoredTaskStopped     Ignored = "task_stopped"      // a repeated recovery of a stopped task (partition.whyStopped)
)

// Decision is the result of one input.
type Decision struct {
	// Task is the state after the decision; nil: the task doesn't exist.
	Task *events.Task
	// Events are the new events, in order; empty: nothing changed.
	Events []*events.Event
	// Records are all records to write, including those of Events.
	Records []events.Record
	// Ignored is set if the input has no effect.
	Ignored Ignored
	// Unusable is set if the input is to be dead-lettered.
	Unusable *events.Unusable
	// NeedDefinitions requests that the definitions are read to their end and the decision is repeated. No other field
	// is set then.
	NeedDefinitions bool
	// NeedHistory requests that the processed task is read again from the log and the decision is repeated. No other
	// field is set then.
	NeedHistory bool
}

// Decide is the scheduler's core. It decides what follows from an input in a task's state (nil: the task doesn't
// exist). It changes t, which must be the caller's own copy, and returns it in the decision. It reads no clock and does
// no I/O.
func Decide(t *events.Task, in events.Input, cause events.Cause, env *Env) Decision {
	d := newDecider(t, cause, env)
	switch in := in.(type) {
	case *events.Submission:
		d.handleSubmission(in)
	case *events.Reply:
		d.handleReply(in)
	case *events.Recovery:
		d.handleRecovery(in)
	case *events.Control:
		d.handleControl(in)
	case *events.Signal:
		d.handleSignal(in)
	case *events.Withdrawal:
		d.handleWithdrawal(in)
	}
	return d.decision()
}

// decider is the state of one decision.
type decider struct {
	Decision
	env               *Env
	cause             events.Cause
	now               time.Time
	needDefinitions   bool
	needHistory       bool
	program           *workflow.Program
	definitionChanged bool // the definition under the task's name has other steps
	derived           derived
	// fromQueue reports that the run was queued for its agent. slotChanges are the slots that the decision has used or
	// freed so far.
	fromQueue   bool
	advancing   bool // advanceSteps is running
	slotChanges []slotChange
	// Memory that suffices for most decisions.
	events      [inlineEvents]*events.Event
	eventMemory [inlineEvents]events.Event
	slotMemory  [1]slotChange
}

const inlineEvents = 4

func newDecider(t *events.Task, cause events.Cause, env *Env) *decider {
	d := env.decider
	if d == nil {
		d = &decider{}
	}
	*d = decider{Decision: Decision{Task: t, Records: env.Records[:0]}, env: env, cause: cause, now: events.Millis(env.Now), derived: derived{bytes: -1}}
	d.Events, d.slotChanges = d.events[:0], d.slotMemory[:0]
	return d
}

func (d *decider) decision() Decision {
	if d.needDefinitions {
		return Decision{NeedDefinitions: true}
	}
	if d.needHistory {
		return Decision{NeedHistory: true}
	}
	return d.Decision
}

// newEvent returns memory for the next event.
func (d *decider) newEvent() *events.Event {
	if n := len(d.Events); n < inlineEvents {
		return &d.eventMemory[n]
	}
	return &events.Event{}
}

// emit appends an event with a fact to the decision, and the notifications that follow from it.
func (d *decider) emit(f events.Fact, due time.Time, p *events.Policy) *events.Event {
	e := d.newEvent()
	*e = events.Event{At: d.now, Cause: d.cause, Epoch: d.env.Epoch, Queued: d.fromQueue, Due: events.Millis(due), Policy: p, Fact: f, Seq: 1}
	if d.Task != nil {
		e.Task, e.Seq, e.Prev = d.Task.ID, d.Task.Seq+1, d.Task.Prev
	}
	return d.appendEvent(e)
}

func (d *decider) appendEvent(e *events.Event) *events.Event {
	value, hash := d.sealBounded(e)
	d.recordSlots(e.Fact)
	var was events.TaskState
	if d.Task != nil {
		was = d.Task.State
	}
	next, err := events.Evolve(d.Task, e, hash)
	if err != nil {
		// The decision made an event that the transition table forbids.
		panic("scheduler: " + err.Error())
	}
	d.Task = next
	d.derived.applyEvent(next, e)
	d.Events = append(d.Events, e)
	d.Records = append(d.Records, e.RecordIn(d.env.Arena, d.env.Namespace, d.env.Source, d.env.Partition, value))
	d.notifyStatus(e)
	d.replyToParent(was)
	return e
}

// sealBounded returns the event's value and hash. All fields are bounded where they are read or created, except for
// errors, which have many sources. They are bounded here: an event that is too large for a record would block its
// partition forever.
func (d *decider) sealBounded(e *events.Event) (value []byte, hash string) {
	value, hash = e.SealIn(d.env.Arena, d.Task)
	if len(value) <= MaxFailureBytes {
		return value, hash
	}
	a := e.Fact.About()
	err := a.Failure
	if err == nil || *err == nil || a.Raw != nil && len(value)-len(*a.Raw) <= MaxFailureBytes {
		return value, hash
	}
	*err = &events.Error{Code: events.CodeTooLarge, Step: (*err).Step,
		Message: fmt.Sprintf("the event of an error has %d bytes; at most %d: %s", len(value), MaxFailureBytes, shortened((*err).Code+": "+(*err).Message))}
	return e.SealIn(d.env.Arena, d.Task)
}

func (d *decider) markUnusable(r events.Reason, detail string) {
	d.Unusable = &events.Unusable{Reason: r, Detail: detail}
}

func (d *decider) handleReply(r *events.Reply) {
	t := d.Task
	if r.Token == "" {
		d.markUnusable(events.ReasonBadToken, events.HeaderRequest+" of the reply has no token: an agent must copy the request's header unchanged")
		return
	}
	if t == nil {
		d.markUnusable(events.ReasonUnknownTask, "no task "+quoted(r.Task)+" is known here")
		return
	}
	if !t.Open() { // its steps may be dropped: see events.Task.Finished
		d.Ignored = IgnoredStaleReply
		return
	}
	i, ok := t.Plan.Step(r.Ref.Step)
	if !ok {
		d.markUnusable(events.ReasonUnknownStep, "task "+quoted(r.Task)+" has no step "+quoted(r.Ref.Step))
		return
	}
	if t.Plan.StepKindOf(i, r.Ref.Kind) == events.ItemsStep {
		d.replyOfItem(i, r)
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
		d.markUnusable(events.ReasonBadToken, "the reply to "+quoted(events.RequestID(t.ID, ref))+" doesn't have the token that was sent to agent "+quoted(agent))
		return
	}
	if run.State != events.StepRunning {
		d.Ignored = IgnoredStaleReply
		return
	}
	if child := t.Plan.StepKindOf(i, ref.Kind) == events.WorkflowStep; !child && (r.Outcome == events.Held || r.Outcome == events.Resumed) {
		d.markUnusable(events.ReasonBadHeader, fmt.Sprintf("%s %q is for child tasks only", events.HeaderOutcome, r.Outcome))
		return
	}
	d.kindOf(i, ref.Kind).reply(d, i, r)
}

func (d *decider) completeAttempt(i int, ref events.RequestRef, instance string, r *events.Reply) {
	if n := len(r.Body) - len(d.Task.Steps[i].Output); ref.Kind == events.Do && (len(r.Body) > MaxOutputBytes || d.derived.taskBytes(d.Task)+n > MaxTaskBytes) {
		// The step did run. Its effect counts as unknown, so the step is undone if the task is. It isn't retried.
		err := &events.Error{Code: events.CodeTooLarge, Message: tooLarge("the output of step "+quoted(ref.Step), len(r.Body), MaxOutputBytes, d.derived.taskBytes(d.Task)+n)}
		d.emit(&events.AttemptFailed{Kind: ref.Kind, Step: ref.Step, Attempt: ref.Attempt, Instance: instance, Effect: events.EffectUnknown, Error: err}, time.Time{}, nil)
		d.failRun(i, ref.Kind, err)
		return
	}
	if ref.Kind == events.Do && d.Task.Plan.Steps[i].Repeat != nil {
		d.endCall(i, ref, instance, r)
		return
	}
	f := &events.AttemptCompleted{Kind: ref.Kind, Step: ref.Step, Attempt: ref.Attempt, Instance: instance}
	if ref.Kind == events.Do {
		f.Output = r.Body
	}
	d.emit(f, time.Time{}, nil)
	d.endCatch(i, ref.Kind)
	d.advance()
}

// failAttempt records a failed attempt. If the run may be retried, its timer is due at once, or at the time that the
// agent asked for.
func (d *decider) failAttempt(i int, f *events.AttemptFailed) {
	if !d.canContinue(f.Kind) {
		d.emit(f, time.Time{}, nil)
		d.advance()
		return
	}
	if !d.Task.Plan.Retries(i, f.Kind, f.Error) {
		f.Deferred = false // it isn't retried, so it counts
		d.emit(f, time.Time{}, nil)
		d.giveUp(i, f.Kind)
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

// canContinue reports whether a run of the kind may have further attempts: a step's while the task is processed, an
// undo's while the task is undone. An undo while the task is processed belongs to a step that is being caught.
func (d *decider) canContinue(k events.Kind) bool { return canContinue(d.Task, k) }

func canContinue(t *events.Task, k events.Kind) bool {
	return t.State == events.StateProcessing || k != events.Do && t.State == events.StateUndoing
}

func (d *decider) handleRecovery(r *events.Recovery) {
	t := d.Task
	if t == nil {
		d.markUnusable(events.ReasonUnknownTask, "no task "+quoted(r.Task)+" is known here")
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
		if string(r.Action) != t.Plan.OnError { // what the policy of the timer says; failTask knows about pivots
			d.Ignored = IgnoredOutsidePolicy
			return
		}
		d.failTask(&events.Error{Code: events.CodeExpired, Message: "the task's complete-by has passed"})
		return
	}
	d.kindOf(i, r.Kind).recover(d, i, r)
}

// timerOf returns the timer that a recovery names, and the index of its step.
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

// recoverRun applies the policy in the log if it calls for the action that the supervisor requests. The scheduler
// computes the times itself, since it owns the budget and the backoff.
func (d *decider) recoverRun(i int, r *events.Recovery) {
	run := d.Task.Run(i, r.Kind)
	kind := d.Task.TimerKind(i, r.Kind)
	if !d.canContinue(r.Kind) { // the task is held or about to be undone: only the attempt ends
		d.expireAttempt(i, r.Kind)
		d.advance()
		return
	}
	p := d.Task.Policy(i, r.Kind, kind)
	compute := func() events.NextRecovery {
		return p.Next(d.Task.ID, r.Step, r.Kind, run.Attempt, run.Timer.Due, d.now)
	}
	next := compute()
	if d.isAlmostDue(r, next) {
		d.now = next.Until
		next = compute()
	}
	late := next.Action == events.ActionRetry && r.Action == events.ActionWait // the requested wait is over by now
	// The timer of an attempt that was running during a hold has the complete-by from before the resubmit. By that
	// complete-by there was no time for a cool-down. By the new one there is. A timer from before a release looks the
	// same and can't be distinguished, so the current policy decides there, too.
	longer := next.CoolDown && string(r.Action) == p.OnError && run.Timer.Seq < d.Task.Timer.Seq
	if next.Action != r.Action && !late && !longer {
		d.Ignored = IgnoredOutsidePolicy
		return
	}
	if next.Action == events.ActionRetry && !d.inTime(i, r.Kind, next) {
		d.Ignored = IgnoredOutsidePolicy // the task's complete-by has passed: the task's timer decides
		return
	}
	if kind == events.TimerAttempt {
		d.expireAttempt(i, r.Kind)
	}
	switch next.Action {
	case events.ActionRetry:
		switch {
		case d.hasSlot(i, r.Kind):
			d.startAttempt(i, r.Kind)
		case kind == events.TimerWaiting:
			d.Ignored = IgnoredQueued
		default: // its wait is over, so it is queued
			d.armRetry(i, r.Kind, events.NextRecovery{Until: d.now})
		}
	case events.ActionWait:
		d.armRetry(i, r.Kind, next)
	default:
		d.giveUp(i, r.Kind)
	}
}

// inTime reports whether the next attempt of a run may begin: it would have time left. The supervisor knows no complete-by
// of a check.
func (d *decider) inTime(i int, k events.Kind, next events.NextRecovery) bool {
	return d.now.Before(next.CompleteBy) && (k != events.Check || d.mayCheck(i))
}

// isAlmostDue reports whether a retry is early by at most clockTolerance. If it were refused, the supervisor would
// repeat it only after a second.
func (d *decider) isAlmostDue(r *events.Recovery, next events.NextRecovery) bool {
	return r.Action == events.ActionRetry && next.Action == events.ActionWait && !next.CoolDown && next.Until.Sub(d.env.Now) <= clockTolerance
}

// armRetry arms the timer of a run's next attempt.
func (d *decider) armRetry(i int, k events.Kind, next events.NextRecovery) {
	f := &events.AttemptWaiting{Kind: k, Step: d.Task.Plan.Steps[i].ID, Attempt: d.Task.Run(i, k).Attempt, CoolDown: next.CoolDown}
	p := d.policyOf(i, f)
	p.CooledDown = p.CooledDown || next.CoolDown
	d.emit(f, next.Until, p)
}

// policyOf returns the policy that a supervisor needs for the timer that a fact arms.
func (d *decider) policyOf(i int, f events.Fact) *events.Policy {
	a := f.About()
	return d.Task.Policy(i, a.Kind, a.Arms)
}

// giveUp ends a run after its last attempt. Tries aren't exhausted by an attempt whose code may not be retried.
func (d *decider) giveUp(i int, k events.Kind) {
	if d.needsCheck(i, k) {
		d.startAttempt(i, k)
		return
	}
	run := d.Task.Run(i, k)
	last := run.Error
	switch {
	case last == nil:
	case !d.Task.Plan.Retries(i, k, last):
		d.failRun(i, k, last)
		return
	case k == events.Do && d.catches(i, last.Code, events.CodeTriesExhausted): // later steps read the last error
		d.emit(&events.RunErrored{Kind: k, Step: d.Task.Plan.Steps[i].ID, Error: last}, time.Time{}, nil)
		d.catchStep(i)
		return
	}
	d.failRun(i, k, triesExhausted(run))
}

func triesExhausted(run *events.Run) *events.Error {
	e := &events.Error{Code: events.CodeTriesExhausted, Message: "no attempt is left"}
	if run.Error != nil {
		e.Message += "; the last: " + run.Error.Code
		if run.Error.Message != "" {
			e.Message += ": " + run.Error.Message
		}
	}
	return e
}

// expireAttempt ends a running attempt that has timed out.
func (d *decider) expireAttempt(i int, k events.Kind) {
	run := d.Task.Run(i, k)
	d.emit(&events.AttemptExpired{Kind: k, Step: d.Task.Plan.Steps[i].ID, Attempt: run.Attempt, Silence: d.silenceOf(i, k)}, time.Time{}, nil)
}

// failRun ends a run permanently and fails its task.
func (d *decider) failRun(i int, k events.Kind, err *events.Error) {
	step := d.Task.Plan.Steps[i].ID
	d.emit(&events.RunErrored{Kind: k, Step: step, Error: err}, time.Time{}, nil)
	d.onRunError(i, k, err)
}

// onRunError goes on after a run ended in error: the error is caught, or the task fails. A check that ends in error
// changes nothing: what became of its step stays unknown.
func (d *decider) onRunError(i int, k events.Kind, err *events.Error) {
	if k == events.Check {
		d.afterCheck(i)
		return
	}
	if k == events.Do && d.catches(i, err.Code) {
		d.catchStep(i)
		return
	}
	if !d.canContinue(k) {
		d.advance()
		return
	}
	e := *err
	e.Step = d.Task.Plan.Steps[i].ID
	if k == events.Undo {
		d.holdTask(&e)
		return
	}
	d.failTask(&e)
}

// holdTask holds the task. A task whose undo fails is held, so that an operator can handle the remaining effects.
func (d *decider) holdTask(err *events.Error) {
	d.emit(&events.TaskHeld{Error: err}, time.Time{}, nil)
}

// failTask undoes or holds the task (events.Task.OnError).
func (d *decider) failTask(err *events.Error) {
	if d.Task.State == events.StateUndoing || d.Task.OnError() == events.OnErrorHold {
		d.holdTask(err)
		return
	}
	d.emit(&events.TaskUndoing{Ending: events.StateUndone, Error: err}, time.Time{}, nil)
	d.advance()
}
