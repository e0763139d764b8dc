package replay

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/scheduler"
	"github.com/waybill-run/waybill/workflow"
)

// The bounds of a fork. maxForkTurns ends the fork of a task that loops forever.
const (
	maxForkTurns = 100_000
	// retryEvery is the interval, in virtual time, at which a recovery that changed nothing is asked for again.
	retryEvery = time.Second
)

// Fork describes how a task is rerun.
type Fork struct {
	// Program is the definition under which the task runs from the fork on.
	Program *workflow.Program
	// At is the seq of the last event that both courses share; 0: the last event. Events of one decision stay together.
	// If At is within a decision, the fork is before it, and its input is decided again.
	At uint64
	// Assume is the answer to attempts without a recorded answer.
	Assume Assume
	// MaxEvents bounds the events of the forked course, about; 0: only the number of inputs is bounded.
	MaxEvents int
	// Stop is asked before each input, if it is set. Run returns its error.
	Stop func() error
}

// ForkLine is an event of the forked course.
type ForkLine struct {
	events.Line
	// Assumed is true if the event results from an assumed answer.
	Assumed bool `json:"assumed,omitempty"`
}

// Forked is the result of a task in the sandbox.
type Forked struct {
	Task    string           `json:"task"`
	At      uint64           `json:"at"` // seq of the last event that both courses share
	State   events.TaskState `json:"state"`
	Error   *events.Error    `json:"error"`
	Assumed int              `json:"assumed"` // number of assumed answers that had an effect, including silence
	// Stalled says why the task neither ended nor is held.
	Stalled string `json:"stalled,omitempty"`
	// LeftOut are the seqs of the recorded events that commands led to after the fork, of operators or of a parent that
	// withdraws the task; the first of each command.
	LeftOut  []uint64        `json:"left_out,omitempty"`
	Recorded []events.Line   `json:"recorded"` // after the fork
	Forked   []ForkLine      `json:"forked"`
	View     events.TaskView `json:"task_after"`
}

// Run forks a task's history. It uses the real scheduler's decisions and the real policies, in virtual time, with the
// agents' recorded answers if there are any, and with recorded delays (recordedTiming). It writes nothing. Commands of
// operators after the fork are left out, since they were meant for another course. records are all records of the task. If
// they begin with those of earlier tasks with its id, which were forgotten, the fork is of the last one.
func (f Fork) Run(records []events.Record) (*Forked, error) {
	s := &sandbox{fork: f, past: newRecording(), timers: &events.Timers{}, answers: map[events.RequestRef]pending{}, reports: map[events.RequestRef][]pending{}, items: map[itemRef][]pending{}, silent: map[events.RequestRef]bool{}, snoozed: map[uint64]time.Time{},
		out: &Forked{Recorded: []events.Line{}, Forked: []ForkLine{}}}
	history, err := readEvents(records)
	if err != nil {
		return nil, err
	}
	first := lastTask(history)
	history, records = history[first:], records[first:]
	if err := s.replay(history, records); err != nil {
		return nil, err
	}
	if err := checkSameWorkflow(&records[0], f.Program); err != nil {
		return nil, err
	}
	s.switchToFork()
	if err := s.run(); err != nil {
		return nil, err
	}
	if s.task == nil {
		return nil, errors.New("the submission is refused under this definition")
	}
	s.out.Task, s.out.State, s.out.Error = s.task.ID, s.task.State, s.task.Error
	s.out.View = s.task.View("", s.partition, s.next)
	return s.out, nil
}

// readEvents reads the events of records.
func readEvents(records []events.Record) ([]*events.Event, error) {
	history := make([]*events.Event, len(records))
	for i := range records {
		var err error
		if history[i], err = events.ReadEvent(&records[i]); err != nil {
			return nil, err
		}
	}
	return history, nil
}

// lastTask returns the index of the first event of the last task that had the id.
func lastTask(history []*events.Event) (first int) {
	var s events.Summary
	for i, e := range history {
		if s.Renews(e) {
			first = i
		}
		s.Evolve(e)
	}
	return first
}

// checkSameWorkflow refuses a definition of another workflow than the task's.
func checkSameWorkflow(first *events.Record, p *workflow.Program) error {
	e, err := events.ReadEvent(first)
	if err != nil {
		return err
	}
	f, ok := e.Fact.(*events.TaskReceived)
	if ok && f.Workflow != p.Definition().Name {
		return fmt.Errorf("it belongs to workflow %s, but the definition to %s", f.Workflow, p.Definition().Name)
	}
	if ok && f.Parent != nil && f.Parent.StepAlone && p.ItemOfStep(f.Parent.Step) == nil {
		return fmt.Errorf("it runs step %q for an item, and the definition has no such step with for_each", f.Parent.Step)
	}
	return nil
}

// sandbox is one fork.
type sandbox struct {
	fork      Fork
	past      *recording
	task      *events.Task
	timers    *events.Timers
	running   map[events.RequestRef]time.Time
	answers   map[events.RequestRef]pending   // scheduled answers
	reports   map[events.RequestRef][]pending // scheduled progress
	items     map[itemRef][]pending           // what tasks of items will say
	silent    map[events.RequestRef]bool      // attempts for which silence is assumed
	snoozed   map[uint64]time.Time            // timers whose recovery changed nothing, and when to ask again
	signalled int                             // number of recorded signals that were delivered
	queue     []queuedStart                   // attempts that waited for their agent and haven't started
	now       time.Time
	seq       uint64 // of the recorded event for the input that is being decided
	partition int32
	next      int64
	out       *Forked
}

// pending is an answer that is still to arrive.
type pending struct {
	moment
	written time.Time // at the latest
	answer
}

// replay folds the history up to the fork, and records the agents' answers of the whole history.
func (s *sandbox) replay(history []*events.Event, records []events.Record) error {
	s.running = map[events.RequestRef]time.Time{}
	for i, e := range history {
		s.past.addEvent(e, &records[i])
	}
	s.past.course.endRecording()
	last, err := s.fork.lastShared(history)
	if err != nil {
		return err
	}
	var shared events.Fold
	for i, e := range history {
		r := &records[i]
		if e.Seq > last {
			line, err := events.TimelineLine(r)
			if err != nil {
				return fmt.Errorf("%s: %w", events.Origin(r), err)
			}
			s.out.Recorded = append(s.out.Recorded, line)
			if isCommanded(e) && !sameDecision(history[i-1], e) {
				s.out.LeftOut = append(s.out.LeftOut, e.Seq)
			}
			continue
		}
		if err := shared.Apply(e, r); err != nil {
			return err
		}
		s.trackEvent(e)
		s.now, s.seq, s.partition, s.out.At = e.At, e.Seq, r.Partition, e.Seq
	}
	s.task, s.next = shared.Task, shared.Next
	return nil
}

// isCommanded reports whether a later event of a task than its first comes of a command: of an operator, or of the parent that
// withdraws it.
func isCommanded(e *events.Event) bool {
	return (e.Cause.Inbox == events.Controls || e.Cause.Inbox == events.Tasks && e.Seq > 1) && !e.Queued
}

// lastShared returns the seq of the last event that both courses share. It is the last end of a decision at or before
// Fork.At, or the task's first event.
func (f Fork) lastShared(history []*events.Event) (uint64, error) {
	switch n := len(history); {
	case n == 0:
		return 0, errors.New("the task's history has no event")
	case f.At > history[n-1].Seq:
		return 0, fmt.Errorf("the task's history ends with event %d", history[n-1].Seq)
	case f.At == 0:
		return history[n-1].Seq, nil
	}
	last := history[0].Seq
	for i, e := range history {
		if ends := i == len(history)-1 || !sameDecision(history[i+1], e); ends && e.Seq <= f.At {
			last = e.Seq
		}
	}
	return last, nil
}

// sameDecision reports whether two consecutive events of a task have the same input. If the inbox was deleted and
// created again, an offset names another input; then there is another claim between the events.
func sameDecision(a, b *events.Event) bool { return a.Cause == b.Cause && a.Epoch == b.Epoch }

// trackEvent records what an event of either course means for timers and agents.
func (s *sandbox) trackEvent(e *events.Event) {
	s.timers.Evolve(e)
	switch a := e.Fact.About(); {
	case a.Phase == events.PhaseStarted, a.Phase == events.PhaseBegan && isOfChild(&a):
		s.running[a.Ref()] = e.At
	case a.Phase.Ends():
		delete(s.running, a.Ref())
		delete(s.reports, a.Ref())
	}
}

// switchToFork starts the forked course.
func (s *sandbox) switchToFork() {
	t := s.task
	s.enqueue()
	switch {
	case !t.Open():
	case t.State == events.StatePending: // only received: it starts under the new definition
		s.task, s.timers = nil, &events.Timers{}
		version := s.fork.Program.Definition().Version
		s.decide(&events.Submission{ID: t.ID, Workflow: t.Workflow, Version: version, Input: t.Input, Priority: t.Priority, Labels: t.Labels,
			CompleteBy: t.CompleteBy, Traceparent: t.Traceparent, Intake: t.Intake, Parent: t.Parent}, false)
		if len(s.out.Forked) > 0 {
			s.out.Forked = s.out.Forked[1:] // the received event is in both courses
		}
	default:
		s.migrate()
		s.accept(s.protected(nil, func(env *scheduler.Env) scheduler.Decision {
			return scheduler.Advance(s.task.Clone(), events.Cause{}, env)
		}), false)
	}
}

// migrate applies the fork's definition to the task, as a migration does (events.Task.FollowPlan). Other than a migration it needn't
// fit: steps that the definition lacks are dropped, with their undos and checks. A step that was under way as another kind
// starts again.
func (s *sandbox) migrate() {
	t, plan := s.task, scheduler.PlanOf(s.program())
	var unchecked []string
	for was := range t.Steps {
		id := t.Plan.Steps[was].ID
		i, ok := plan.Step(id)
		switch {
		case !ok:
			continue
		case t.Plan.Steps[was].StepKind != plan.Steps[i].StepKind && isUnderWay(t.Steps[was].State):
			s.forget(id)
			*t.OwnStep(was) = events.Step{Run: events.Run{State: events.StepPending}}
			continue
		}
		step := t.OwnStep(was)
		if plan.Steps[i].Undo == nil {
			step.Undo = nil
		}
		if plan.Steps[i].Check == nil {
			if t.State == events.StateProcessing && step.IsChecking() && step.State == events.StepFailed {
				unchecked = append(unchecked, id)
			}
			step.Check = nil
		}
	}
	completeBy := time.Time{}
	if t.State == events.StateProcessing {
		completeBy = t.CompleteByUnder(plan)
		t.CompleteBy = completeBy
		if t.Timer.Armed() {
			t.Timer.Due = completeBy
		}
	}
	t.FollowPlan(plan, s.fork.Program.Definition().Version)
	s.timers.FollowPlan(plan, completeBy)
	for _, id := range unchecked {
		i, _ := plan.Step(id)
		s.retryNow(i)
	}
	for ref, since := range s.running {
		if i, ok := plan.Step(ref.Step); ok && plan.Has(i, ref.Kind) {
			a := s.past.answerTo(ref, 0, s.fork.Assume) // a running attempt keeps its complete-by
			s.scheduleAnswer(ref, since, a)
			s.scheduleReports(ref, since)
		}
	}
	s.resumeItems()
	s.setTokens()
}

// program returns the definition of the task: that of the fork, or of its step whose item the task is.
func (s *sandbox) program() *workflow.Program {
	if step := s.task.ItemOf(); step != "" {
		return s.fork.Program.ItemOfStep(step)
	}
	return s.fork.Program
}

// retryNow lets a step continue whose check was under way: its wait is over.
func (s *sandbox) retryNow(i int) {
	slot, step := events.Slot{Step: s.task.Plan.Steps[i].ID, Kind: events.Do}, s.task.OwnStep(i)
	step.State, step.Timer = events.StepWaiting, events.Timer{Seq: s.task.Seq, Due: s.now}
	s.timers.Armed = append(s.timers.Armed, events.Armed{Slot: slot, Timer: step.Timer, Attempt: step.Attempt, Policy: *s.task.Policy(i, events.Do, events.TimerWaiting)})
}

func isUnderWay(s events.StepState) bool {
	return s == events.StepRunning || s == events.StepFailed || s == events.StepWaiting
}

// forget drops the timer and the attempts of a step's operation.
func (s *sandbox) forget(step string) {
	s.timers.Armed = slices.DeleteFunc(s.timers.Armed, func(a events.Armed) bool { return a.Slot == events.Slot{Step: step, Kind: events.Do} })
	maps.DeleteFunc(s.running, func(ref events.RequestRef, _ time.Time) bool { return ref.Step == step && ref.Kind == events.Do })
}

// sandboxToken is the token of all attempts in a sandbox, where replies can't be forged.
const sandboxToken = "sandbox"

// setTokens gives each run the sandbox's token. The log has only hashes of the recorded ones.
func (s *sandbox) setTokens() {
	t := s.task
	for i := range t.Steps {
		for _, k := range []events.Kind{events.Do, events.Undo, events.Check} {
			run := t.Run(i, k)
			if run == nil || run.Attempt == 0 {
				continue
			}
			hash := events.TokenHash(t.ID, events.RequestRef{Step: t.Plan.Steps[i].ID, Kind: k, Attempt: run.Attempt}, sandboxToken)
			switch own := t.OwnStep(i); k {
			case events.Undo:
				own.Undo.TokenHash = hash
			case events.Check:
				own.Check.TokenHash = hash
			default:
				own.TokenHash = hash
			}
		}
	}
}

// scheduleAnswer schedules the answer to an attempt.
func (s *sandbox) scheduleAnswer(ref events.RequestRef, since time.Time, a answer) {
	if a.outcome != "" {
		s.answers[ref] = pending{moment{at: since.Add(a.after), seq: a.seq}, since.Add(a.written), a}
	} else if a.assumed {
		s.silent[ref] = true
	}
}

// scheduleAttempt schedules the answer to an attempt that starts: the recorded one, if the same agent had the same
// request.
func (s *sandbox) scheduleAttempt(f *events.AttemptStarted, e *events.Event) {
	ref := events.RequestRef{Step: f.Step, Kind: f.Kind, Attempt: f.Attempt}
	if is, sent := s.past.asked[ref]; sent && is != (asked{f.Agent, f.Operation}) {
		s.scheduleAnswer(ref, e.At, s.past.assumedAnswer(ref, 0, s.fork.Assume))
		return
	}
	i, _ := s.task.Plan.Step(f.Step)
	within := s.past.aliveFor(ref, s.task.Plan.AttemptsOf(i, f.Kind).Heartbeat, f.EndsBy(e).Sub(e.At))
	s.scheduleAnswer(ref, e.At, s.past.answerTo(ref, within, s.fork.Assume))
	s.scheduleReports(ref, e.At)
}

// run takes step after step until the task has ended, or is held and nothing recorded is pending. Its error is that of
// Fork.Stop.
func (s *sandbox) run() error {
	for turn := 0; s.task != nil && s.out.Stalled == "" && s.task.Open() && (s.task.State != events.StateError || s.hasPending()); turn++ {
		if s.fork.Stop != nil {
			if err := s.fork.Stop(); err != nil {
				return err
			}
		}
		switch {
		case turn == maxForkTurns:
			s.out.Stalled = "it loops: stopped after " + strconv.Itoa(maxForkTurns) + " inputs"
			return nil
		case s.fork.MaxEvents > 0 && len(s.out.Forked) >= s.fork.MaxEvents:
			s.out.Stalled = "stopped after " + strconv.Itoa(len(s.out.Forked)) + " events"
			return nil
		}
		if err := s.step(); err != nil {
			s.out.Stalled = err.Error()
			return nil
		}
	}
	return nil
}

// hasPending reports whether recorded answers are pending for a held task. Nothing is assumed any more.
func (s *sandbox) hasPending() bool {
	maps.DeleteFunc(s.answers, func(_ events.RequestRef, a pending) bool { return a.assumed })
	s.timers.Armed = slices.DeleteFunc(s.timers.Armed, func(a events.Armed) bool {
		_, recorded := s.past.answers[attemptOf(&a)]
		return !recorded && a.Policy.Timer != events.TimerStep
	})
	return len(s.answers) > 0 || len(s.timers.Armed) > 0 || s.hasItems() || len(s.pendingSignals()) > 0
}

// step takes the next answer, timer, or start of a waiting step, whichever comes first.
func (s *sandbox) step() error {
	ref, reply := s.firstAnswer()
	timer, fires := s.firstTimer()
	waits := s.firstStart()
	item, says := s.firstItem()
	if says != nil && (reply == nil || s.compare(says.moment, reply.moment) < 0) {
		reply = says
	}
	if s.deliverSignal(reply, timer, fires, waits) {
		return nil
	}
	switch {
	case reply == nil && timer == nil && waits == nil:
		return errors.New("nothing is under way, and no timer is armed")
	case waits != nil && (reply == nil || s.compare(waits.moment, reply.moment) <= 0) && (timer == nil || s.compare(waits.moment, fires) <= 0):
		s.start(*waits)
		return nil
	case reply != nil && (timer == nil || s.compare(reply.moment, fires) <= 0):
		if reply == says {
			s.deliverItem(item, says)
			return nil
		}
		if isReport(reply.outcome) {
			s.removeReport(ref)
		} else {
			delete(s.answers, ref)
		}
		s.advanceTo(reply.moment)
		s.decide(&events.Reply{Task: s.task.ID, Ref: ref, Token: sandboxToken, Outcome: reply.outcome, Effect: reply.effect, RetryAfter: reply.later, Body: reply.body, Source: reply.from}, reply.assumed)
		return nil
	}
	silent := timer.Policy.Timer == events.TimerAttempt && s.silent[attemptOf(timer)]
	s.advanceTo(fires)
	ask := timer.Policy.Next(s.task.ID, timer.Slot.Step, timer.Slot.Kind, timer.Attempt, timer.Timer.Due, s.now)
	if s.decide(timer.Recovery(s.task.ID, ask), silent) {
		return nil
	}
	s.snoozed[timer.Timer.Seq] = s.now.Add(retryEvery)
	return nil
}

// compare orders moments. Those that are not in the future are equal.
func (s *sandbox) compare(a, b moment) int {
	return cmp.Or(later(a.at, s.now).Compare(later(b.at, s.now)), cmp.Compare(a.seq, b.seq), cmp.Compare(a.rank, b.rank))
}

// advanceTo advances the sandbox's time.
func (s *sandbox) advanceTo(to moment) {
	s.now, s.seq = later(s.now, to.at), to.seq
}

// attemptOf returns the attempt that a timer belongs to, or after which it was armed.
func attemptOf(a *events.Armed) events.RequestRef {
	return events.RequestRef{Step: a.Slot.Step, Kind: a.Slot.Kind, Attempt: a.Attempt}
}

// firstAnswer returns the first pending answer or progress. Among equal moments the order of the log decides.
func (s *sandbox) firstAnswer() (ref events.RequestRef, first *pending) {
	consider := func(r events.RequestRef, a pending) {
		if first == nil || cmp.Or(s.compare(a.moment, first.moment), strings.Compare(events.RequestID("", r), events.RequestID("", ref))) < 0 {
			ref, first = r, &a
		}
	}
	for r, a := range s.answers {
		consider(r, a)
	}
	for r, list := range s.reports {
		consider(r, list[0])
	}
	return ref, first
}

// firstTimer returns the timer that fires first. The timer of an attempt that is answered in time doesn't fire.
func (s *sandbox) firstTimer() (first *events.Armed, fires moment) {
	for i := range s.timers.Armed {
		a := &s.timers.Armed[i]
		if answer, comes := s.answers[attemptOf(a)]; comes && a.Policy.Timer == events.TimerAttempt && !answer.written.After(a.Timer.Due) {
			continue
		}
		at := s.past.course.firesAt(a)
		if until := s.snoozed[a.Timer.Seq]; until.After(at.at) {
			at = moment{until, math.MaxUint64, unrecorded}
		}
		if first == nil || s.compare(at, fires) < 0 {
			first, fires = a, at
		}
	}
	return first, fires
}

// decide makes the scheduler's decision. It reports whether anything happened.
func (s *sandbox) decide(in events.Input, assumed bool) bool {
	return s.accept(s.protected(in, func(env *scheduler.Env) scheduler.Decision {
		return scheduler.Decide(s.task.Clone(), in, events.Cause{}, env)
	}), assumed)
}

// protected calls the scheduler, to decide on an input, or on a start (nil). A plan that was changed under a task can
// lead to a transition that no log has, on which the scheduler panics. The fork then ends with that as its result.
func (s *sandbox) protected(in events.Input, decide func(*scheduler.Env) scheduler.Decision) (d scheduler.Decision) {
	env := &scheduler.Env{Now: s.now, Namespace: events.DefaultNamespace, Source: "replay", Partition: s.partition,
		Definitions: singleDefinition{s.fork.Program}, DefinitionsRead: true, Requests: map[string]int32{}, Slots: sandboxSlots{s, in},
		Token: func(string, events.RequestRef) string { return sandboxToken }}
	for _, agent := range s.fork.Program.Definition().Agents() {
		env.Requests[agent] = 1
	}
	defer func() {
		if why := recover(); why != nil {
			d, s.out.Stalled = scheduler.Decision{}, fmt.Sprintf("the task can't continue under this definition: %v", why)
		}
	}()
	d = decide(env)
	for s.past.removeUnlisted(d.Events, env.Requests) {
		d = decide(env)
	}
	return d
}

// accept applies a decision. It reports whether anything happened.
func (s *sandbox) accept(d scheduler.Decision, assumed bool) bool {
	if len(d.Events) == 0 {
		return false
	}
	s.task = d.Task
	if assumed {
		s.out.Assumed++
	}
	for _, e := range d.Events {
		s.trackEvent(e)
		s.appendLine(e, assumed)
		if f, ok := e.Fact.(*events.AttemptStarted); ok {
			s.scheduleAttempt(f, e)
		}
		if a := e.Fact.About(); a.Phase == events.PhaseBegan && isOfChild(&a) {
			s.scheduleChild(a.Ref(), e.At)
		}
		s.scheduleItems(e)
	}
	return true
}

// appendLine adds an event of the forked course as a line of a timeline.
func (s *sandbox) appendLine(e *events.Event, assumed bool) {
	if f, ok := e.Fact.(*events.AttemptStarted); ok { // the sandbox's token is meaningless outside
		told, fact := *e, *f
		fact.TokenHash = ""
		told.Fact, e = &fact, &told
	}
	e = withoutToken(e)
	r := e.Record(events.DefaultNamespace, "replay", s.partition, e.Value())
	line, err := events.TimelineLine(&r)
	if err != nil {
		panic("replay: " + err.Error()) // it was just made
	}
	line.Offset = ""
	s.out.Forked = append(s.out.Forked, ForkLine{line, assumed})
}

// singleDefinition is a catalog that returns one definition for every name.
type singleDefinition struct{ program *workflow.Program }

func (o singleDefinition) Program(string, int) (*workflow.Program, bool) { return o.program, true }
func (o singleDefinition) Applied(string, int) (*workflow.Program, scheduler.Absence) {
	return o.program, scheduler.Unknown
}
