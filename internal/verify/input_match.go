package verify

import (
	"hash/maphash"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/waybill-run/waybill/events"
)

// lead fills l with what the event implies about its input.
func (s *eventCheck) lead(l *lead, x *input) {
	*l = lead{place: place{inboxPart{s.e.Cause.Inbox, s.e.Cause.Partition}, s.e.Cause.Offset}, task: s.t.id, offset: s.r.Offset,
		fact: s.e.Fact.Type(), slot: s.fired, attempt: endedAttempt(&s.about), timer: s.timer.Seq}
	l.request, l.asks = s.request(), s.asking()
	if s.run != nil {
		l.agent, _ = s.t.plan.Agent(s.index, s.slot.Kind)
		if s.run.index < len(s.t.attempts) {
			l.token = s.t.attempts[s.run.index].token
		}
	}
	if s.rule.lead != nil {
		s.rule.lead(s, l, x)
	}
}

func leadReceived(s *eventCheck, l *lead, x *input) {
	if f, ok := s.e.Fact.(*events.TaskReceived); ok {
		l.digest, l.by, l.due = f.Digest, sumOfOrigin(f.Traceparent, f.Intake, f.Parent), millis(f.CompleteBy)
		l.submitted(s.t.id, f, x)
	}
}

func leadCompleted(s *eventCheck, l *lead, _ *input) {
	l.body, l.written, l.from = sumOf(*s.about.Raw), s.about.Kind == events.Do, s.about.Instance
}

func leadFailed(s *eventCheck, l *lead, x *input) {
	if f, ok := s.e.Fact.(*events.AttemptFailed); ok {
		l.effect, l.later = f.Effect, f.RetryAfter
	}
	leadRejected(s, l, x)
}

func leadRejected(s *eventCheck, l *lead, _ *input) {
	l.from = s.about.Instance
	l.failure(s.about.Error())
}

func leadUndoing(s *eventCheck, l *lead, _ *input) {
	if f, ok := s.e.Fact.(*events.TaskUndoing); ok {
		l.by, l.ending, l.keep, l.refund = sumOfBy(&f.By), f.Ending, f.Keep, len(f.Processed) > 0
	}
}

func leadCancelled(s *eventCheck, l *lead, _ *input) {
	l.by, l.ending, l.keep = sumOfBy(s.about.By), events.StateCancelled, true
}

func leadResumed(s *eventCheck, l *lead, _ *input) { l.by, l.erred = sumOfBy(s.about.By), s.erred }

func leadReleased(s *eventCheck, l *lead, _ *input) {
	l.slot.Step, l.by, l.as, l.body, l.written = s.about.Step, sumOfBy(s.about.By), s.about.As, sumOf(*s.about.Raw), true
}

// failure sets the agent's error from the event. An error that is too large is stored as another.
func (l *lead) failure(err *events.Error) {
	l.body, l.large = sumOfError(err), err != nil && err.Code == events.CodeTooLarge
}

// submitted computes the digest of the submission from the event. The requested version is only in the submission, so
// without it there are two possible digests.
func (l *lead) submitted(task string, f *events.TaskReceived, x *input) {
	s := events.Submission{ID: task, Workflow: f.Workflow, Input: f.Input, ReplyTo: f.ReplyTo, Priority: f.Priority, Labels: f.Labels}
	if x == nil {
		l.made[1] = s.Digest()
		s.Version = f.Version
	} else {
		s.Version = x.version
	}
	l.made[0] = s.Digest()
}

// The actions of recoveries that may lead to a first event.
var (
	toGoOn   = []events.Action{events.ActionRetry, events.ActionWait} // the wait that was asked for may be over
	toGiveUp = []events.Action{events.ActionUndo, events.ActionHold}
	toUndo   = toGiveUp[:1]
	toHold   = toGiveUp[1:]
	toFire   = []events.Action{events.ActionFire}
)

// asking returns the actions of recoveries that can lead to the event as their first; nil: any. If an attempt ran
// during a hold, the supervisor's policy may differ from the scheduler's. Then a recovery that asks to give up may lead
// to a cool-down.
func (s *eventCheck) asking() []events.Action {
	if s.rule.asks == nil {
		return nil
	}
	return s.rule.asks(s)
}

func asksWait(s *eventCheck) []events.Action {
	if f, ok := s.e.Fact.(*events.AttemptWaiting); ok && f.CoolDown {
		return nil
	}
	return toGoOn
}

// asksHeld returns what a supervisor asks for before a hold. It asks for the undo that the plan says even if a completed
// pivot forbids it.
func asksHeld(s *eventCheck) []events.Action {
	if s.t.plan != nil && s.t.onError() != s.t.plan.OnError {
		return toGiveUp
	}
	return toHold
}

func asksErrored(s *eventCheck) []events.Action {
	if err := s.about.Error(); err != nil && err.Code == events.CodeTriesExhausted {
		return toGiveUp
	}
	return nil
}

func (c *Checker) compareInput(kind events.Inbox, x *input, l *lead) *Fault {
	cause := events.Cause{Inbox: l.inbox, Partition: l.partition, Offset: l.place.offset}
	switch {
	case x.unreadable != "":
		return faultf("P15", "%s led to %s and can't be used: %s", cause, l.fact, x.unreadable)
	case c.dead[l.place].why != "" && !c.consumedTwice(l.place) && !c.recreated(l.inboxPart):
		return faultf("P15", "%s led to %s and is a dead letter: %s", cause, l.fact, c.dead[l.place].why)
	case x.task != l.task:
		return faultf("P10", "%s is about task %q", cause, x.task)
	case x.where != l.partition:
		return faultf("P10", "%s led to %s and belongs in partition %d", cause, l.fact, x.where)
	}
	switch kind {
	case events.Tasks:
		if x.withdraws {
			return x.checkWithdrawal(cause, l)
		}
		if x.says != l.digest || x.says != l.made[0] && x.says != l.made[1] {
			return faultf("P10", "%s is another submission: its digest is %s, that of the event %s, of what is in it %s", cause, x.says, l.digest, l.made[0])
		}
		if x.due != l.due {
			return faultf("P10", "%s asks for another complete_by than %s has", cause, l.fact)
		}
		if x.by != l.by {
			return faultf("P10", "%s has another traceparent, another parent, or is of another record of an intake, than %s", cause, l.fact)
		}
	case events.Replies:
		if l.from != "" && c.o.Namespace.InstanceOf(l.agent, x.says) != l.from {
			return faultf("P3", "%s was written by %q; it led to %s of the instance %q", cause, x.says, l.fact, l.from)
		}
		if l.ofItem {
			return x.checkItemReply(cause, l)
		}
		return x.checkReply(cause, l)
	case events.Recoveries:
		if x.timer != l.timer || x.ref.Step != l.slot.Step || x.ref.Step != "" && x.ref.Kind != l.slot.Kind {
			return faultf("P4", "%s is for the timer of event %d (%s %s); %s ended that of event %d (%s %s)",
				cause, x.timer, x.ref.Kind, x.ref.Step, l.fact, l.timer, l.slot.Kind, l.slot.Step)
		}
		if l.asks != nil && !slices.Contains(l.asks, x.action) {
			return faultf("P4", "%s asks for %s; it led to %s", cause, x.action, l.fact)
		}
	case events.Controls:
		return x.checkCommand(cause, l)
	case events.Signals:
		return x.checkSignal(cause, l)
	case events.Inboxes: // the number of inboxes
	}
	return nil
}

// checkReply checks that the event ends the attempt that the reply names, with its outcome (P3), and that the
// reply has the attempt's token (P18).
func (x *input) checkReply(cause events.Cause, l *lead) *Fault {
	if x.ref != (events.RequestRef{Step: l.slot.Step, Kind: l.slot.Kind, Attempt: l.attempt}) {
		return faultf("P3", "%s is of %s; it led to %s of %s", cause, events.RequestID(x.task, x.ref), l.fact,
			events.RequestID(l.task, events.RequestRef{Step: l.slot.Step, Kind: l.slot.Kind, Attempt: l.attempt}))
	}
	if x.token != l.token {
		return faultf("P18", "%s hasn't the token of %s, and led to %s: another than its agent answered", cause, events.RequestID(x.task, x.ref), l.fact)
	}
	tooLarge := x.outcome == events.Completed && (strings.Contains(l.fact, ".failed.") || isChildRejected(l.fact))
	again := x.outcome == events.Completed && l.fact == (*events.CallRepeated)(nil).Type()
	if !tooLarge && !again && !strings.Contains(l.fact, verbOf(x.outcome)) {
		return faultf("P3", "%s says %s; it led to %s", cause, x.outcome, l.fact)
	}
	switch {
	case tooLarge && !l.large:
		return faultf("P3", "%s says %s; it led to %s, and not for its size", cause, x.outcome, l.fact)
	case x.outcome == events.Progress && x.body != l.body && !l.large:
		return faultf("P3", "%s has another progress than %s, which it led to", cause, l.fact)
	case x.outcome == events.Progress, x.outcome == events.Resumed:
	case x.outcome == events.Completed && l.written && x.body != l.body:
		return faultf("P3", "%s has another output than %s, which it led to", cause, l.fact)
	case x.outcome != events.Completed && x.body != 0 && x.body != l.body && !l.large:
		return faultf("P3", "%s has another error than %s, which it led to", cause, l.fact)
	case x.outcome == events.Failed && (x.effect == events.EffectNone) != (l.effect == events.EffectNone):
		return faultf("P3", "%s says that its effect is %s; it led to %s, which says %s", cause, x.effect, l.fact, l.effect)
	case x.outcome == events.Failed && x.later != l.later:
		return faultf("P3", "%s asks for a wait of %s; it led to %s, which has one of %s", cause, x.later, l.fact, l.later)
	}
	return nil
}

// verbOf returns the part of an event's type that a reply with this outcome leads to.
func verbOf(o events.Outcome) string {
	switch o {
	case events.Completed:
		return ".completed."
	case events.Failed:
		return ".failed."
	case events.Progress:
		return ".progressed."
	case events.Held, events.Resumed:
		return "." + string(o) + "."
	default:
		return ".rejected."
	}
}

// checkCommand checks that the event is what the control asks for (P10).
func (x *input) checkCommand(cause events.Cause, l *lead) *Fault {
	facts := map[events.Command][]string{
		events.Cancel:   {(*events.TaskUndoing)(nil).Type(), (*events.TaskCancelled)(nil).Type()},
		events.UndoTask: {(*events.TaskUndoing)(nil).Type()},
		events.Resubmit: {(*events.TaskResumed)(nil).Type()},
		events.Release:  {(*events.RunReleased)(nil).Type()},
		events.Migrate:  {(*events.TaskMigrated)(nil).Type()},
	}
	for _, f := range facts[x.command] {
		if f == l.fact && x.request == l.request && x.by == l.by && x.matchesCommand(l) {
			return nil
		}
	}
	return faultf("P10", "%s asks for %s (request %q); it led to %s (request %q)", cause, x.command, x.request, l.fact, l.request)
}

// matchesCommand reports whether the event has the parameters of the control.
func (x *input) matchesCommand(l *lead) bool {
	if x.version == dryRun {
		return false
	}
	switch x.command {
	case events.Migrate:
		return x.version == l.version
	case events.Cancel:
		return l.ending == events.StateCancelled && x.keep == l.keep
	case events.UndoTask:
		return l.ending == events.StateUndone && !l.keep && (x.refund || !l.refund)
	case events.Resubmit:
		return x.ref.Step == "" || slices.Contains(l.erred, x.ref.Step)
	default: // a release
		return x.ref.Step == l.slot.Step && x.as == l.as && x.body == l.body
	}
}

// dryRun is input.version of a command that has no effect.
const dryRun = -1

// seed is the seed of the hashes, which are valid only in this process.
var seed = maphash.MakeSeed()

// sumOf returns a hash of an output. No output is equal to null.
func sumOf(output []byte) uint64 {
	if len(output) == 0 || string(output) == "null" {
		return 0
	}
	return maphash.Bytes(seed, output)
}

// sumOfError returns a hash of an error; 0: there is none, or it is stored differently, since a cut message may not be
// UTF-8.
func sumOfError(e *events.Error) uint64 {
	if e == nil || !utf8.ValidString(e.Message) {
		return 0
	}
	var h maphash.Hash
	h.SetSeed(seed)
	for _, s := range [...]string{e.Code, e.Message} {
		_, _ = h.WriteString(s) // it never fails
		_ = h.WriteByte(0)
	}
	return h.Sum64() ^ sumOf(e.Details)
}

// sumOfText returns a hash of a text.
func sumOfText(s string) uint64 {
	if s == "" {
		return 0
	}
	return maphash.String(seed, s)
}

func sumOfBy(b *events.By) uint64 {
	var h maphash.Hash
	h.SetSeed(seed)
	for _, s := range [...]string{b.Who, b.Claimed, b.Why} {
		_, _ = h.WriteString(s) // it never fails
		_ = h.WriteByte(0)
	}
	return h.Sum64()
}
