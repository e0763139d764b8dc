package replay

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/scheduler"
)

// Reason says why a task, or a step of it, doesn't advance.
type Reason string

// The reasons. The task's reason is the one of its steps that comes first in Reasons.
const (
	ReasonUnreadable    Reason = "unreadable"     // this build can't read or fold an event of its history
	ReasonHold          Reason = "hold"           // the task is held for an operator
	ReasonNoLiveAgent   Reason = "no_live_agent"  // no process reads the agent's requests, so an attempt doesn't end or start
	ReasonCoolDown      Reason = "cool_down"      // the cool-down after the last attempt of the budget
	ReasonWaitingRetry  Reason = "waiting_retry"  // the wait before another attempt
	ReasonCapacity      Reason = "capacity"       // it could start, but the agent's concurrency limit is reached
	ReasonQueue         Reason = "queue"          // the request or the submission hasn't been consumed
	ReasonAtWork        Reason = "at_work"        // an attempt is running
	ReasonWaitingTimer  Reason = "waiting_timer"  // a step waits for an instant
	ReasonWaitingCall   Reason = "waiting_repeat" // a repeated step waits for its next call
	ReasonWaitingSignal Reason = "waiting_signal" // a step waits for a signal
	ReasonWaitingChild  Reason = "waiting_child"  // a step waits for the end of its child task
	ReasonChildHeld     Reason = "child_held"     // the child task of a step is held for an operator
	ReasonWaitingItems  Reason = "waiting_items"  // a step waits for the ends of its items
	ReasonUpstreamStep  Reason = "upstream_step"  // another step must end first
	ReasonEnded         Reason = "ended"
)

// Reasons lists the reasons by precedence, the first being the task's.
var Reasons = []Reason{ReasonUnreadable, ReasonHold, ReasonChildHeld, ReasonNoLiveAgent, ReasonCoolDown, ReasonWaitingRetry, ReasonCapacity, ReasonQueue,
	ReasonAtWork, ReasonWaitingTimer, ReasonWaitingSignal, ReasonWaitingCall, ReasonWaitingChild, ReasonWaitingItems, ReasonUpstreamStep, ReasonEnded}

// AgentState is the state of an agent's consumer group.
type AgentState struct {
	Members int             // members of the consumer group
	Lag     int64           // uncommitted offsets of requests, including those being worked on
	Lags    map[int32]int64 // Lag by partition; nil: unknown
}

// ownLag is the lag that a request being worked on causes in its partition: the record and its transaction marker.
const ownLag = 2

// behind reports whether the agent may not have consumed an attempt's request yet: the lag of the request's partition
// exceeds what the task's own requests there cause. If the lag of that partition is unknown, it uses the total lag.
// attempts are the task's running attempts with the agent.
func (a AgentState) behind(task string, attempt int, attempts []int) bool {
	partitions := int32(0)
	for p := range a.Lags { // without those that have no leader
		partitions = max(partitions, p+1)
	}
	in := func(attempt int) int32 { return scheduler.RequestPartition(task, attempt, partitions) }
	if partitions == 0 {
		return a.Lag > ownLag*int64(len(attempts))
	}
	lag, known := a.Lags[in(attempt)]
	if !known {
		return a.Lag > ownLag*int64(len(attempts))
	}
	own := int64(0)
	for _, other := range attempts {
		if in(other) == in(attempt) {
			own += ownLag
		}
	}
	return lag > own
}

// attemptsWith returns the running attempts of a task with an agent.
func attemptsWith(t *events.Task, agent string) (attempts []int) {
	for i := range t.Steps {
		run, kind := present(t, i)
		if run == nil || run.State != events.StepRunning {
			continue
		}
		if name, _ := t.Plan.Agent(i, kind); name == agent {
			attempts = append(attempts, run.Attempt)
		}
	}
	return attempts
}

// Since records when the current runs, waits and hold of a task began, which the task's state doesn't have. The zero
// value is before the first event.
type Since struct {
	held time.Time
	runs map[events.Slot]time.Time // when the last attempt of each run, or the wait after it, began
}

// Add adds the next record of the task. It ignores unreadable records.
func (s *Since) Add(r *events.Record) {
	e, err := events.ReadEvent(r)
	if err != nil {
		return
	}
	switch a := e.Fact.About(); {
	case a.Verb == events.VerbHeld:
		s.held = e.At
	case a.Phase.Begins() || a.Phase == events.PhaseWaiting || a.Verb == events.VerbRepeated:
		s.recordBegin(a.Slot(), e.At)
	}
}

func (s *Since) recordBegin(slot events.Slot, at time.Time) {
	if s.runs == nil {
		s.runs = map[events.Slot]time.Time{}
	}
	s.runs[slot] = at
}

// hold returns when the task's hold began. If unknown, it returns the instant of the last event, an upper bound.
func (s *Since) hold(t *events.Task) time.Time {
	if s == nil || s.held.IsZero() {
		return t.UpdatedAt
	}
	return s.held
}

// run returns when a run's current attempt, or the wait after it, began; known if that is unknown.
func (s *Since) run(slot events.Slot, known time.Time) time.Time {
	if s == nil || s.runs[slot].IsZero() {
		return known
	}
	return s.runs[slot]
}

// StepWhy is why a step doesn't advance.
type StepWhy struct {
	Step    string      `json:"step" jsonschema:"The step."`
	Kind    events.Kind `json:"kind" jsonschema:"Whether its operation or its undo doesn't advance."`
	Attempt int         `json:"attempt" jsonschema:"The number of the last attempt. 0: none has started."`
	Agent   string      `json:"agent" jsonschema:"The agent of the attempt."`
	Reason  Reason      `json:"reason" jsonschema:"Why the step doesn't advance."`
	Since   *string     `json:"since" format:"date-time" jsonschema:"Since when. null: unknown."`
	Until   *string     `json:"until" format:"date-time" jsonschema:"When the step's timer is due. null: no timer is armed."`
	Moves   string      `json:"moves" jsonschema:"What would unblock the step, for people."`
	Child   string      `json:"child,omitempty" jsonschema:"The child task that the step waits for. Absent: none."`
	Items   *ItemsWhy   `json:"items,omitempty" jsonschema:"Where the items of the step are. Absent: it has none."`

	err *events.Error // the error of the last attempt, after which it waits
}

// Why is why a task doesn't advance.
type Why struct {
	Task   string           `json:"task" jsonschema:"The task's id."`
	State  events.TaskState `json:"state" jsonschema:"The state of the task."`
	Reason Reason           `json:"reason" jsonschema:"Why the task doesn't advance: the most important reason of its steps."`
	Step   string           `json:"step,omitempty" jsonschema:"The step with this reason. Absent: none."`
	Since  *string          `json:"since" format:"date-time" jsonschema:"Since when. null: unknown."`
	Until  *string          `json:"until" format:"date-time" jsonschema:"When the timer is due. null: no timer is armed."`
	Moves  string           `json:"moves" jsonschema:"What would unblock the task, for people."`
	Error  *events.Error    `json:"error,omitempty" jsonschema:"The error that led to the reason. Absent: none."`
	Steps  []StepWhy        `json:"steps" jsonschema:"The steps that don't advance, each with its reason."`
	// Causes and Cut are set by who can read other tasks.
	Causes []Cause `json:"causes,omitempty" jsonschema:"The way down to the cause: the child task that the step waits for or that failed, its child, and so on. The last one is the cause. Absent: the cause is in the task itself."`
	Cut    string  `json:"causes_cut,omitempty" jsonschema:"Why the way ends before the cause, for people. Absent: it doesn't."`
}

// ExplainItems returns why a task doesn't advance, as of now. agents has the states of its agents (AgentsAwaited); a
// missing one is unknown. since is made from the task's records; nil: the result has upper bounds instead. unreadable says
// which of its events can't be used; empty: none. ids has the ids of the tasks of items, which the task's definition may
// give.
func ExplainItems(t *events.Task, since *Since, unreadable string, agents map[string]AgentState, now time.Time, ids ItemIDs) *Why {
	w := &Why{Task: t.ID, State: t.State, Since: events.InstantText(t.UpdatedAt), Steps: []StepWhy{}}
	switch {
	case unreadable != "":
		w.Reason = ReasonUnreadable
		w.Moves = "a build that can read it, if a newer one wrote it. If the log is corrupt, nothing does: see in the timeline what was done, finish or revert it by hand, and submit the task under another id: " + unreadable
		return w
	case !t.Open():
		w.Reason, w.Moves, w.Error = ReasonEnded, "nothing: it is "+string(t.State), t.Error
		return w
	case t.State == events.StateError:
		w.Reason, w.Since, w.Error = ReasonHold, events.InstantText(since.hold(t)), t.Error
		w.Moves = "waybill resubmit, undo, release or task cancel"
		if t.Error != nil {
			w.Step = t.Error.Step
		}
		return w
	case t.State == events.StatePending:
		w.Reason, w.Moves = ReasonQueue, "a scheduler that starts it"
		return w
	}
	for i := range t.Steps {
		if s, waits := explainStep(t, i, since, agents, now); waits {
			if s.Reason == ReasonWaitingItems {
				s.nameItems(t, ids)
			}
			w.Steps = append(w.Steps, s)
		}
	}
	w.ofSteps(t)
	if l := late(t.Timer, now); l != "" { // the task's complete-by has passed, so no attempt starts
		w.Moves = "a supervisor that acts on the task's deadline" + l
	}
	return w
}

// ofSteps sets the task's reason to that of the step whose reason comes first in Reasons.
func (w *Why) ofSteps(t *events.Task) {
	if len(w.Steps) == 0 {
		w.Reason, w.Until = ReasonQueue, events.InstantText(t.Timer.Due)
		w.Moves = "a scheduler that consumes the newest input of the task"
		return
	}
	s := slices.MinFunc(w.Steps, func(a, b StepWhy) int {
		return cmp.Compare(slices.Index(Reasons, a.Reason), slices.Index(Reasons, b.Reason))
	})
	w.Reason, w.Step, w.Since, w.Until, w.Moves, w.Error = s.Reason, s.Step, s.Since, s.Until, s.Moves, s.err
}

// present returns the current run of a step. While the task is undoing, or the step is undone because its error is
// caught, that is its undo's, unless an attempt of the operation is still running; nil: it hasn't begun.
func present(t *events.Task, i int) (*events.Run, events.Kind) {
	kind := events.Do
	if s := t.Steps[i].State; t.State == events.StateUndoing && s != events.StepRunning || s == events.StepUndoing {
		kind = events.Undo
	}
	if t.Steps[i].IsChecking() {
		kind = events.Check
	}
	return t.Run(i, kind), kind
}

// explainStep explains a step, or its undo while the task is undoing. It returns false if the step isn't waiting for
// anything.
func explainStep(t *events.Task, i int, since *Since, agents map[string]AgentState, now time.Time) (StepWhy, bool) {
	run, kind := present(t, i)
	if run == nil {
		return StepWhy{}, false // its undo isn't needed or hasn't begun
	}
	s := StepWhy{Step: t.Plan.Steps[i].ID, Kind: kind, Attempt: run.Attempt}
	s.Agent, _ = t.Plan.Agent(i, kind)
	stepKind := t.Plan.StepKindOf(i, kind)
	if from, could := couldStart(t, i, now); could && stepKind.CallsAgent() {
		s.queued(run, from, agents)
		return s, true
	}
	switch run.State {
	case events.StepRunning: // StartedAt is when the first attempt began
		explainRunning[stepKind](&s, t, run, agents, now)
		s.Since = events.InstantText(since.run(events.Slot{Step: s.Step, Kind: kind}, run.StartedAt))
	case events.StepWaiting:
		s.Reason, s.Since, s.Until, s.err = ReasonWaitingRetry, events.InstantText(since.run(events.Slot{Step: s.Step, Kind: kind}, t.UpdatedAt)), events.InstantText(run.Timer.Due), run.Error
		s.Moves = "the end of the wait: then attempt " + fmt.Sprint(run.Attempt+1)
		switch {
		case run.BetweenCalls() && t.Plan.Steps[i].Repeat != nil:
			s.Reason = ReasonWaitingCall
			s.Moves = fmt.Sprintf("the end of the wait: then call %d of at most %d", run.Interim().Calls+1, t.Plan.Steps[i].Repeat.Max)
		case run.CooledDown:
			s.Reason = ReasonCoolDown
		}
	case events.StepFailed:
		s.Reason, s.Since, s.Until = ReasonWaitingRetry, events.InstantText(run.Timer.Due), events.InstantText(run.Timer.Due) // due immediately
		s.err = run.Error
		s.Moves = "a supervisor that asks for the recovery" + late(run.Timer, now)
		if run.Timer.Due.After(now) { // the agent asked to be called later
			s.Since = events.InstantText(since.run(events.Slot{Step: s.Step, Kind: kind}, t.UpdatedAt))
			s.Moves = "the end of the wait that the agent asked for: then " + s.Moves
		}
	case events.StepPending:
		if kind == events.Undo || t.State != events.StateProcessing {
			return s, false
		}
		missing, from := needs(t, i)
		s.Reason, s.Since, s.Moves = ReasonUpstreamStep, events.InstantText(from), "the end of "+strings.Join(missing, ", ")
		if len(missing) == 0 {
			s.Reason, s.Moves = ReasonQueue, "a scheduler that starts it"
		}
	default:
		return s, false
	}
	return s, true
}

// couldStart reports whether the next attempt of a step, or of its undo, could start, and since when: the steps that it
// needs have ended, or its wait is over. If it hasn't started, the agent's concurrency limit is reached, and the
// scheduler refuses the supervisor's retry.
func couldStart(t *events.Task, i int, now time.Time) (since time.Time, could bool) {
	run, kind := present(t, i)
	switch {
	case run == nil:
		return since, false
	case run.State == events.StepWaiting:
		return run.Timer.Due, !run.Timer.Due.After(now)
	case run.State == events.StepPending && kind == events.Do && t.State == events.StateProcessing:
		missing, since := needs(t, i)
		return cmp.Or(since, t.SubmittedAt), len(missing) == 0
	}
	return since, false
}

// needs returns the steps that a step waits for, and when the last of the ended ones ended. The steps that those need
// count too, since an operator may have released a step before its own needs were met.
func needs(t *events.Task, i int) (missing []string, since time.Time) {
	seen := make([]bool, len(t.Steps))
	var visit func(i int)
	visit = func(i int) {
		for _, n := range t.Plan.Steps[i].Needs {
			if seen[n] {
				continue
			}
			seen[n] = true
			need := t.Steps[n]
			if need.State != events.StepCompleted && need.State != events.StepSkipped && need.State != events.StepCaught {
				missing = append(missing, t.Plan.Steps[n].ID)
				continue
			}
			if need.EndedAt.After(since) {
				since = need.EndedAt
			}
			visit(n)
		}
	}
	visit(i)
	return missing, since
}

// lateSupervisor is how long after its due a timer may be armed before late reports it.
const lateSupervisor = 5 * time.Second

// late returns a note that no recovery came for a due timer; empty: the timer isn't late.
func late(timer events.Timer, now time.Time) string {
	if by := now.Sub(timer.Due); timer.Armed() && by > lateSupervisor {
		return fmt.Sprintf("; it is %s late: `waybill doctor` says whether one runs, and whether schedulers can write", by.Round(time.Second))
	}
	return ""
}

// explainRunning explains a running step, by its kind.
var explainRunning = map[events.StepKind]func(s *StepWhy, t *events.Task, run *events.Run, agents map[string]AgentState, now time.Time){
	events.CallStep:   (*StepWhy).running,
	events.WaitStep:   (*StepWhy).waitingTimer,
	events.SignalStep: (*StepWhy).waitingSignal,

	events.WorkflowStep: (*StepWhy).waitingChild,
	events.ItemsStep:    (*StepWhy).waitingItems,
}

func (s *StepWhy) waitingSignal(t *events.Task, run *events.Run, _ map[string]AgentState, now time.Time) {
	s.Reason, s.Until = ReasonWaitingSignal, events.InstantText(run.Timer.Due)
	s.Moves = "the end of its time"
	if i, ok := t.Plan.Step(s.Step); ok {
		s.Moves = "the signal " + t.Plan.Steps[i].Signal
	}
	if l := late(run.Timer, now); l != "" {
		s.Moves = "a supervisor that asks for the end of its time" + l
	}
}

func (s *StepWhy) waitingTimer(_ *events.Task, run *events.Run, _ map[string]AgentState, now time.Time) {
	s.Reason, s.Until = ReasonWaitingTimer, events.InstantText(run.Timer.Due)
	s.Moves = "the end of the wait"
	if l := late(run.Timer, now); l != "" {
		s.Moves = "a supervisor that asks for the end of the wait" + l
	}
}

func (s *StepWhy) running(t *events.Task, run *events.Run, agents map[string]AgentState, now time.Time) {
	s.Reason, s.Until = ReasonAtWork, events.InstantText(run.Timer.Due)
	s.Moves = "the agent's reply, or the end of the attempt's time" + lastProgress(run)
	if t.Plan.AttemptsOf(stepIndex(t, s.Step), s.Kind).Heartbeat > 0 {
		s.Moves = "the agent's reply or next progress, or the end of its heartbeat" + lastProgress(run)
	}
	a, known := agents[s.Agent]
	switch {
	case !known:
	case a.Members == 0:
		s.noLiveAgent()
	case a.behind(t.ID, s.Attempt, attemptsWith(t, s.Agent)):
		s.Reason = ReasonQueue
		s.Moves = fmt.Sprintf("agent %s, whose group lags by %d: it may not have read this request yet, or it may be working on it", s.Agent, a.Lag)
	}
	if l := late(run.Timer, now); l != "" { // agents drop requests whose complete-by has passed
		s.Moves = "a supervisor that ends the attempt" + l
	}
}

// queued explains a run that could start.
func (s *StepWhy) queued(run *events.Run, since time.Time, agents map[string]AgentState) {
	s.Since = events.InstantText(since)
	if a, known := agents[s.Agent]; known && a.Members == 0 {
		s.noLiveAgent()
		return
	}
	s.Reason = ReasonCapacity
	s.Moves = "a reply of agent " + s.Agent + " to another request: the agent is at its concurrency limit"
	if run.State == events.StepWaiting {
		s.Moves += "; or a supervisor, if none has asked for the retry yet"
	}
}

func (s *StepWhy) noLiveAgent() {
	s.Reason, s.Moves = ReasonNoLiveAgent, "an instance of agent "+s.Agent+" that reads its requests"
}

// AgentsAwaited returns the agents whose state Explain needs, each once: those with a running attempt, and those of
// attempts that could start now.
func AgentsAwaited(t *events.Task, now time.Time) []string {
	if t.State != events.StateProcessing && t.State != events.StateUndoing {
		return nil
	}
	var names []string
	for i := range t.Steps {
		run, kind := present(t, i)
		if _, could := couldStart(t, i, now); !could && (run == nil || run.State != events.StepRunning) {
			continue
		}
		if name, _ := t.Plan.Agent(i, kind); name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}
