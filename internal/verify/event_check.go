package verify

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"github.com/waybill-run/waybill/events"
)

// eventCheck checks one event against the state of its task, before and after the fold.
type eventCheck struct {
	c       *Checker
	t       *task
	e       *events.Event
	r       *events.Record
	first   bool  // first event of its cause
	replied int64 // offset of the replies' partition below which all replies have been decided

	slot  events.Slot // the slot whose timer and attempts the event is about; empty: the task itself
	index int         // of the slot's step in the plan
	run   *run        // of the slot; nil: the event is about the task itself
	timer events.Timer
	fired events.Slot // the slot of timer: that of the step's operation, if a check begins when the operation's timer is due
	erred []string    // steps in error that a resubmit may name

	about events.About // of the event's fact
	rule  *factRule    // the rule of the event's verb
}

// checkBefore checks the event against the state before it. It returns nil if there is no fault, or if the fold will reject
// the event anyway.
func (s *eventCheck) checkBefore() *Fault {
	o := s.t.open
	if o.state == nil {
		return s.checkOrigin()
	}
	if s.e.Seq != o.state.Seq+1 || s.e.Prev != o.state.Prev {
		return nil // the events in between are unknown
	}
	if s.about.Verb == events.VerbResumed {
		s.erred = inError(o.state)
	}
	s.slot = slotOf(&s.about)
	if s.slot != (events.Slot{}) {
		i, ok := o.state.Plan.Step(s.slot.Step)
		if !ok || !o.state.Plan.Has(i, s.slot.Kind) {
			return nil
		}
		s.index, s.run = i, o.run(i, s.slot.Kind)
	}
	s.findTimer()
	s.beginCheck()
	for _, check := range checksBefore {
		if fault := check(s); fault != nil {
			return fault
		}
	}
	return nil
}

// checksBefore are the checks of checkBefore, in the order in which they report a fault.
var checksBefore []func(*eventCheck) *Fault

func init() { // the checks lead back to checkBefore
	checksBefore = []func(*eventCheck) *Fault{(*eventCheck).checkEndedAttempt, (*eventCheck).checkRecovery, (*eventCheck).checkAttempts,
		(*eventCheck).checkUndoOrder, (*eventCheck).checkNotEarly, (*eventCheck).checkRequestOnce, (*eventCheck).checkPlan, (*eventCheck).checkOrigin, (*eventCheck).checkTimer}
}

// request returns the request id of the control that led to the event; empty: none.
func (s *eventCheck) request() string {
	if s.about.By == nil {
		return ""
	}
	return s.about.By.RequestID
}

// slotOf returns the slot whose timer and attempts an event is about. For a skip and a release it is the task's own.
func slotOf(a *events.About) events.Slot {
	if a.Phase == events.PhaseNone && a.Verb != events.VerbErrored {
		return events.Slot{}
	}
	return a.Slot()
}

// endedAttempt returns the number of the attempt that an event ends; 0: none.
func endedAttempt(a *events.About) int {
	if a.Phase.Ends() {
		return a.Attempt
	}
	return 0
}

// checkEndedAttempt checks that an event which ends an attempt names the running one (P3), and that the attempt ends once (P2).
func (s *eventCheck) checkEndedAttempt() *Fault {
	n := endedAttempt(&s.about)
	if n == 0 || s.run == nil {
		return nil
	}
	if f, failed := s.e.Fact.(*events.AttemptFailed); failed && !s.run.running && !(s.first && s.e.Cause.Inbox == events.Replies) {
		if f.Effect != events.EffectNone { // the request couldn't be sent
			return faultf("P6", "attempt %d of step %q failed before a request was sent, and its effect is %s", n, s.slot.Step, f.Effect)
		}
		return nil
	}
	switch {
	case s.run.running && n == s.run.attempt:
		return nil
	case n == s.run.attempt && s.e.Fact.Type() == s.run.closed:
		return faultf("P2", "%s of attempt %d of step %q, twice", s.e.Fact.Type(), n, s.slot.Step)
	case s.run.running:
		return faultf("P3", "%s of attempt %d of step %q, while attempt %d runs", s.e.Fact.Type(), n, s.slot.Step, s.run.attempt)
	}
	return faultf("P3", "%s of attempt %d of step %q, while no attempt of it runs", s.e.Fact.Type(), n, s.slot.Step)
}

// checkRecovery checks that the first event from a recovery ends an armed timer (P4). So a second recovery for the same
// timer is a fault.
func (s *eventCheck) checkRecovery() *Fault {
	if s.fires() && !s.timer.Armed() {
		return faultf("P4", "a recovery led to %s, but its timer was not armed", s.e.Fact.Type())
	}
	switch {
	case s.rule.wait && s.e.Cause.Inbox != events.Recoveries && !s.followsCheck():
		return faultf("P4", "%s comes of %s, and only a recovery can ask for it", s.e.Fact.Type(), s.e.Cause)
	case !s.rule.begins && !s.rule.wait || s.about.Phase.Ends() && s.run.running:
		return nil
	}
	if s.timer.Armed() && !s.fires() && !s.e.Queued {
		return faultf("P4", "%s ended the timer of event %d, and no recovery asked for that", s.e.Fact.Type(), s.timer.Seq)
	}
	return nil
}

// fires reports whether the event is the first that a recovery led to.
func (s *eventCheck) fires() bool { return s.first && s.e.Cause.Inbox == events.Recoveries }

// checkAttempts checks the event against the plan's rule of attempts: their number, with one more after a cool-down, their
// waits, and their key (P5, P7).
func (s *eventCheck) checkAttempts() *Fault {
	if s.run == nil || s.rule.checkAttempts == nil {
		return nil
	}
	return s.rule.checkAttempts(s, s.t.open.state.Plan.AttemptsOf(s.index, s.slot.Kind))
}

// checkWait checks that a wait isn't shorter than the backoff, and that the budget allows another attempt.
func (s *eventCheck) checkWait(attempts events.Attempts) *Fault {
	f, ok := s.e.Fact.(*events.AttemptWaiting)
	if !ok {
		return nil
	}
	if soonest := s.run.notBefore; s.e.Due.Before(soonest) {
		return faultf("P5", "the wait after attempt %d of step %q ends %s before its backoff", f.Attempt, f.Step, soonest.Sub(s.e.Due))
	}
	if fault := s.checkRetryable(); fault != nil {
		return fault
	}
	used := s.run.failures >= attempts.MaxAttempts
	switch {
	case f.CoolDown && s.run.cooled:
		return faultf("P5", "step %q cools down a second time", f.Step)
	case f.CoolDown && (attempts.CoolDown == 0 || !used):
		return faultf("P5", "step %q cools down after %d failures of %d, and has a cool-down of %s", f.Step, s.run.failures, attempts.MaxAttempts, attempts.CoolDown)
	case !f.CoolDown && used && !s.cooledBeforeCheck(attempts):
		return faultf("P5", "step %q waits for one more attempt after %d failures of %d", f.Step, s.run.failures, attempts.MaxAttempts)
	}
	return nil
}

// cooledBeforeCheck reports whether the attempt after the cool-down was granted before a check, after which it waits for a
// slot of its agent.
func (s *eventCheck) cooledBeforeCheck(attempts events.Attempts) bool {
	return s.run.cooled && s.run.failures == attempts.MaxAttempts && s.t.open.state.Plan.Steps[s.index].Check != nil
}

// checkFailure checks a failure. If no attempt runs, the request couldn't be sent, and the budget must allow the attempt.
func (s *eventCheck) checkFailure(attempts events.Attempts) *Fault {
	f, ok := s.e.Fact.(*events.AttemptFailed)
	switch {
	case !ok:
		return nil
	case !s.run.running:
		if fault := s.checkNextCall(""); fault != nil {
			return fault
		}
		return s.checkBudget(attempts)
	}
	return s.checkDeferral(f)
}

// checkAttemptStart checks that an attempt is within the budget, and has the run's key and the plan's agent.
func (s *eventCheck) checkAttemptStart(attempts events.Attempts) *Fault {
	f, ok := s.e.Fact.(*events.AttemptStarted)
	if !ok {
		return nil
	}
	if fault := s.checkNextCall(f.Key); fault != nil {
		return fault
	}
	if f.Kind == events.Do {
		if fault := s.checkAskedBefore("the next attempt"); fault != nil {
			return fault
		}
	}
	if fault := s.checkBudget(attempts); fault != nil {
		return fault
	}
	if s.run.key != "" && (s.run.key == f.Key) == s.run.renewed {
		return faultf("P7", "%s attempt %d of step %q has the key %s after %s; renewable: %v", f.Kind, f.Attempt, f.Step, f.Key, s.run.key, s.run.renewed)
	}
	if fault := s.checkHeartbeat(f, attempts); fault != nil {
		return fault
	}
	return s.checkAgentAndKey(f)
}

// checkDeferral checks a failure's wait, and that an attempt isn't counted only if its agent did nothing and asked to be
// called later, at most MaxDeferrals times.
func (s *eventCheck) checkDeferral(f *events.AttemptFailed) *Fault {
	switch number := s.run.attempt - s.run.lastCall - s.run.failures; {
	case f.RetryAfter < 0 || f.RetryAfter > events.MaxRetryAfter:
		return faultf("P5", "step %q waits for %s because its agent asked for it; at most %s", f.Step, f.RetryAfter, events.MaxRetryAfter)
	case f.Deferred && (f.Effect != events.EffectNone || f.RetryAfter == 0):
		return faultf("P5", "attempt %d of step %q isn't counted, and its effect is %s, its wait %s: only what had no effect and asks for a wait isn't",
			f.Attempt, f.Step, f.Effect, f.RetryAfter)
	case f.Deferred && number > events.MaxDeferrals:
		return faultf("P5", "attempt %d of step %q isn't counted, after %d that weren't; at most %d", f.Attempt, f.Step, number-1, events.MaxDeferrals)
	}
	return nil
}

// checkBudget checks that one more attempt is allowed, and that its wait is over.
func (s *eventCheck) checkBudget(attempts events.Attempts) *Fault {
	k, step, attempt := s.about.Kind, s.about.Step, s.about.Attempt
	if fault := s.checkRetryable(); fault != nil {
		return fault
	}
	most := attempts.MaxAttempts
	if s.run.cooled {
		most++
	}
	switch {
	case s.run.fresh >= most && !s.run.granted:
		return faultf("P5", "%s attempt %d of step %q after %d attempts; at most %d", k, attempt, step, s.run.fresh, most)
	case s.e.At.Before(s.run.notBefore):
		return faultf("P5", "%s attempt %d of step %q began %s before its wait was over", k, attempt, step, s.run.notBefore.Sub(s.e.At))
	}
	return nil
}

// checkAgentAndKey checks that an attempt has the agent and the operation of the plan, the key of its own run (P7) and a token
// (P18). A service would take another run's key for an operation that it has already done. Without a token any writer
// could reply.
func (s *eventCheck) checkAgentAndKey(f *events.AttemptStarted) *Fault {
	t := s.t
	if agent, operation := t.open.state.Plan.Agent(s.index, f.Kind); f.Agent != agent || f.Operation != operation {
		return faultf("P2", "%s attempt %d of step %q is for %s of agent %q; by the plan for %s of agent %q", f.Kind, f.Attempt, f.Step, f.Operation, f.Agent, operation, agent)
	}
	if f.TokenHash == "" {
		return faultf("P18", "%s attempt %d of step %q has no token, so no reply to it can be told from a forged one", f.Kind, f.Attempt, f.Step)
	}
	if own := s.c.ownKey(t, s.index, f.Kind, t.steps[s.index].generationOf(f.Kind)); !endsWith(f.Key, own) {
		return faultf("P7", "%s attempt %d of step %q has the key %s, which doesn't end with its own, %s", f.Kind, f.Attempt, f.Step, f.Key, own)
	}
	return nil
}

// ownKey returns the idempotency key of a run without the namespace before it, which differs for imported events. The
// result is valid until the next call.
func (c *Checker) ownKey(t *task, step int, k events.Kind, generation uint16) []byte {
	b := append(append(append(c.text[:0], t.name...), '/'), t.plan.Steps[step].ID...)
	b = append(append(append(b, '/'), k...), '/')
	c.text = strconv.AppendUint(b, uint64(generation)+1, 10)
	return c.text
}

// endsWith reports whether a key ends with own.
func endsWith(key string, own []byte) bool {
	n := len(key) - len(own)
	return n >= 0 && key[n:] == string(own)
}

func (x *stepTally) generationOf(k events.Kind) uint16 {
	switch k {
	case events.Undo:
		return x.undoing
	case events.Check:
		return 0
	case events.Do:
	}
	return x.generation
}

// checkNotEarly checks that no timer fires before it is due (P16).
func (s *eventCheck) checkNotEarly() *Fault {
	if !s.fires() {
		return nil
	}
	if d := s.timer.Due.Sub(s.e.At); d > 0 {
		return faultf("P16", "the timer of event %d fired %s before it was due", s.timer.Seq, d)
	}
	if tolerance := s.c.o.EarliestBy; tolerance > 0 && !s.r.Time.IsZero() {
		if d := s.timer.Due.Sub(s.r.Time); d > tolerance {
			return faultf("P16", "the timer of event %d fired %s before it was due, by the record's timestamp", s.timer.Seq, d)
		}
	}
	return nil
}

// checkRequestOnce checks that a repeated request of an operator is accepted once, as far as the task stores accepted requests
// (P10).
func (s *eventCheck) checkRequestOnce() *Fault {
	request := s.request()
	for _, a := range s.t.open.state.Accepted {
		if request != "" && a.RequestID == request {
			return faultf("P10", "%s of the request %q, which was accepted as event %d", s.e.Fact.Type(), request, a.Seq)
		}
	}
	return nil
}

// checkOrigin checks that the event's cause is an input that can lead to it (P10; P3 for events from replies, P4 for events
// from timers).
func (s *eventCheck) checkOrigin() *Fault {
	promise, from, only := cmp.Or(s.rule.promise, "P10"), s.rule.from, s.rule.only
	switch {
	case s.e.Queued && (only || s.rule.own):
		return faultf(promise, "%s can't come of a slot that %s freed", s.e.Fact.Type(), s.e.Cause)
	case s.first && (s.rule.follows || !slices.Contains(from, s.e.Cause.Inbox)):
		return faultf(promise, "%s can't come of %s", s.e.Fact.Type(), s.e.Cause)
	case !s.first && only:
		return faultf(promise, "%s is not the first that %s led to", s.e.Fact.Type(), s.e.Cause)
	}
	return nil
}

// checkInTime checks that a task leaves processing by its complete-by plus RecoverWithin (P1). was is the state before the
// event.
func (s *eventCheck) checkInTime(was events.TaskState) *Fault {
	now := s.t.open.state
	bound := s.c.o.RecoverWithin
	if bound == 0 || was != events.StateProcessing || now.State == was || now.CompleteBy.IsZero() {
		return nil
	}
	if late := s.e.At.Sub(now.CompleteBy); late > bound {
		return faultf("P1", "%s %s after the task's complete-by; at most %s", now.State, late, bound)
	}
	return nil
}

// countAndCheck applies the event to the state of the checks, and checks its policy, the end of an undo, and the time.
func (s *eventCheck) countAndCheck() *Fault {
	o, was := s.t.open, s.t.state
	if f, ok := s.e.Fact.(*events.TaskReceived); ok {
		s.t.plan, s.t.steps = f.Plan, make([]stepTally, len(f.Plan.Steps))
		s.t.digest, s.t.taken = sumOfText(f.Digest), s.e.Cause.Offset
		s.c.recordReceived(s.t, f)
		s.c.recordScheduled(s, f)
		if f.Intake != nil {
			s.c.checkIntake(*f.Intake, receivedFrom{s.t.id, s.r.Partition, s.r.Offset})
		}
		if p := f.Parent; p != nil {
			k := s.t.kin()
			k.parent, k.of, k.token, k.item = p.Task, p.Ref(), sumOfText(p.TokenHash()), p.Item
		}
		o.runs = slices.Grow(o.runs, runsPerStep*len(f.Plan.Steps))[:runsPerStep*len(f.Plan.Steps)]
	}
	if s.fires() {
		s.c.timing.addFired(s.t, s.timer, s.e.At, s.r.Offset, s.c.o.LatestBy)
	}
	s.countCatching()
	s.countAsking()
	if s.rule.count != nil {
		s.rule.count(s)
	}
	s.interruptChecks()
	armed := o.timers.Armed
	if o.timers.Evolve(s.e); o.timers.Armed == nil {
		o.timers.Armed = armed[:0] // reuse the memory
	}
	if fault := s.checkPolicy(); fault != nil {
		return fault
	}
	if fault := s.checkItemsOutput(); fault != nil {
		return fault
	}
	switch s.about.Verb {
	case events.VerbUndone, events.VerbCancelled:
		if fault := s.checkAllUndone(was); fault != nil {
			return fault
		}
	case events.VerbHeld:
		s.c.holds = append(s.c.holds, hold{s.t, s.e.Seq, s.r.Offset})
	default: // neither ends an undo nor holds the task
	}
	return s.checkInTime(was)
}

// millis returns an instant in Unix ms; 0 for the zero time.
func millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}
