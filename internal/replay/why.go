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

// Reason says why a task, or a step of it, stands where it stands.
type Reason string

// The reasons, of which the first that holds of any step is the task's.
const (
	ReasonUnreadable   Reason = "unreadable"    // an event of its history can't be used by this build
	ReasonHold         Reason = "hold"          // an operator has to say what is to be done
	ReasonNoLiveAgent  Reason = "no_live_agent" // nobody reads the agent's requests: that is why an attempt runs, or doesn't start
	ReasonCoolDown     Reason = "cool_down"     // a long wait, after the last attempt of the budget
	ReasonWaitingRetry Reason = "waiting_retry" // a wait before another attempt
	ReasonCapacity     Reason = "capacity"      // it could start, or its wait is over, and the scheduler hasn't: the agent has enough to do
	ReasonQueue        Reason = "queue"         // the request, or the submission, waits to be taken
	ReasonAtWork       Reason = "at_work"       // an attempt is under way
	ReasonUpstreamStep Reason = "upstream_step" // another step must end first
	ReasonEnded        Reason = "ended"
)

// reasons are in the order in which one stands for the task.
var reasons = []Reason{ReasonUnreadable, ReasonHold, ReasonNoLiveAgent, ReasonCoolDown, ReasonWaitingRetry, ReasonCapacity, ReasonQueue,
	ReasonAtWork, ReasonUpstreamStep, ReasonEnded}

// AgentState is what the cluster knows of an agent.
type AgentState struct {
	Members int             // processes that read its requests
	Lag     int64           // offsets of requests that aren't committed: what is at work is among them
	Lags    map[int32]int64 // the same by partition; nil: not known
}

// ownLag is what a request that is at work makes its partition lag by: itself, and the marker of its
// transaction.
const ownLag = 2

// behind reports whether the partition which an attempt's request is in lags by more than the task's own requests there, or all
// partitions do, if theirs aren't known. attempts are those of the task that run with the agent.
func (a AgentState) behind(task string, attempt int, attempts []int) bool {
	if len(a.Lags) == 0 {
		return a.Lag > ownLag*int64(len(attempts))
	}
	in := func(attempt int) int32 { return scheduler.RequestPartition(task, attempt, int32(len(a.Lags))) }
	own := int64(0)
	for _, other := range attempts {
		if in(other) == in(attempt) {
			own += ownLag
		}
	}
	return a.Lags[in(attempt)] > own
}

// attemptsWith are the attempts of a task that run with an agent.
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

// Since is when what holds a task up began, which no state keeps. The zero value is before its first event.
type Since struct {
	held time.Time
	runs map[events.Slot]time.Time // the last attempt of each, or the wait after it
}

// Add takes in the next record of the task. One that is no event says nothing.
func (s *Since) Add(r *events.Record) {
	e, err := events.ReadEvent(r)
	if err != nil {
		return
	}
	switch a := e.Fact.About(); {
	case a.Verb == events.VerbHeld:
		s.held = e.At
	case a.Phase == events.PhaseStarted || a.Phase == events.PhaseWaiting:
		s.begins(a.Slot(), e.At)
	}
}

func (s *Since) begins(slot events.Slot, at time.Time) {
	if s.runs == nil {
		s.runs = map[events.Slot]time.Time{}
	}
	s.runs[slot] = at
}

// hold is since when a task is held: where nobody knows, no later than its last event.
func (s *Since) hold(t *events.Task) time.Time {
	if s == nil || s.held.IsZero() {
		return t.UpdatedAt
	}
	return s.held
}

// run is since when a run is at an attempt, or waits after one; known: where nobody knows.
func (s *Since) run(slot events.Slot, known time.Time) time.Time {
	if s == nil || s.runs[slot].IsZero() {
		return known
	}
	return s.runs[slot]
}

// StepWhy is why a step stands where it stands.
type StepWhy struct {
	Step    string      `json:"step"`
	Kind    events.Kind `json:"kind"`
	Attempt int         `json:"attempt"`
	Agent   string      `json:"agent"`
	Reason  Reason      `json:"reason"`
	Since   *string     `json:"since"`
	Until   *string     `json:"until"` // when a timer is due at the latest; null: none
	Moves   string      `json:"moves"` // what would move it

	err *events.Error // of the last attempt, after which it waits
}

// Why is why a task doesn't advance.
type Why struct {
	Task   string           `json:"task"`
	State  events.TaskState `json:"state"`
	Reason Reason           `json:"reason"`
	Step   string           `json:"step,omitempty"` // that the reason is of
	Since  *string          `json:"since"`
	Until  *string          `json:"until"`
	Moves  string           `json:"moves"`
	Error  *events.Error    `json:"error,omitempty"` // that led to it
	Steps  []StepWhy        `json:"steps"`           // that haven't ended
}

// Explain says why a task doesn't advance, as of now. agents is what the cluster
// knows of its agents (AgentsAwaited); of one that isn't there nothing is known. since is made of
// its records; nil: it is told since when at the latest.
// unreadable says which event of it can't be used; empty: none.
func Explain(t *events.Task, since *Since, unreadable string, agents map[string]AgentState, now time.Time) *Why {
	w := &Why{Task: t.ID, State: t.State, Since: events.InstantText(t.UpdatedAt), Steps: []StepWhy{}}
	switch {
	case unreadable != "":
		w.Reason = ReasonUnreadable
		w.Moves = "a build that can read it, if a newer one wrote it; where the log was corrupted nothing does, so see by the timeline what was done, settle it, and submit the order under another id: " + unreadable
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
			w.Steps = append(w.Steps, s)
		}
	}
	w.ofSteps(t)
	if l := late(t.Timer, now); l != "" { // nothing starts any more
		w.Moves = "a supervisor that ends the task's time" + l
	}
	return w
}

// ofSteps takes the reason of the step that is hindered most.
func (w *Why) ofSteps(t *events.Task) {
	if len(w.Steps) == 0 {
		w.Reason, w.Until = ReasonQueue, events.InstantText(t.Timer.Due)
		w.Moves = "a scheduler that takes what came last"
		return
	}
	s := slices.MinFunc(w.Steps, func(a, b StepWhy) int {
		return cmp.Compare(slices.Index(reasons, a.Reason), slices.Index(reasons, b.Reason))
	})
	w.Reason, w.Step, w.Since, w.Until, w.Moves, w.Error = s.Reason, s.Step, s.Since, s.Until, s.Moves, s.err
}

// present is the run that a step is at: its undo's while the task is undone and no
// attempt of the step runs any more; nil: that hasn't begun.
func present(t *events.Task, i int) (*events.Run, events.Kind) {
	kind := events.Do
	if t.State == events.StateUndoing && t.Steps[i].State != events.StepRunning {
		kind = events.Undo
	}
	return t.Run(i, kind), kind
}

// explainStep looks at a step, or at its undo while the task is undone. It reports
// whether there is anything to say.
func explainStep(t *events.Task, i int, since *Since, agents map[string]AgentState, now time.Time) (StepWhy, bool) {
	run, kind := present(t, i)
	if run == nil {
		return StepWhy{}, false // it isn't undone, or not yet
	}
	s := StepWhy{Step: t.Plan.Steps[i].ID, Kind: kind, Attempt: run.Attempt}
	s.Agent, _ = t.Plan.Agent(i, kind)
	if from, could := couldStart(t, i, now); could {
		s.queued(run, from, agents)
		return s, true
	}
	switch run.State {
	case events.StepRunning: // StartedAt is when the first attempt began
		s.running(t, run, agents, now)
		s.Since = events.InstantText(since.run(events.Slot{Step: s.Step, Kind: kind}, run.StartedAt))
	case events.StepWaiting:
		s.Reason, s.Since, s.Until, s.err = ReasonWaitingRetry, events.InstantText(since.run(events.Slot{Step: s.Step, Kind: kind}, t.UpdatedAt)), events.InstantText(run.Timer.Due), run.Error
		if run.CooledDown {
			s.Reason = ReasonCoolDown
		}
		s.Moves = "the end of the wait: then attempt " + fmt.Sprint(run.Attempt+1)
	case events.StepFailed:
		s.Reason, s.Since, s.Until = ReasonWaitingRetry, events.InstantText(run.Timer.Due), events.InstantText(run.Timer.Due) // due at once
		s.err = run.Error
		s.Moves = "a supervisor that asks for what comes next" + late(run.Timer, now)
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
	default:
		return s, false
	}
	return s, true
}

// couldStart reports whether the next attempt of a step, or of its undo, could start, and
// since when: all that it needs is there, or the wait before it is over. The scheduler
// holds it back for its agent's sake then, and refuses the supervisor's retry.
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

// needs are the steps that a step waits for, and when the last of the others ended. One
// that an operator released before it had run doesn't let go what comes after it: that
// waits for those that the released one needs, too.
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
			if need.State != events.StepCompleted && need.State != events.StepSkipped {
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

// lateSupervisor is how long after its due a timer may stand before it is said.
const lateSupervisor = 5 * time.Second

// late says that nobody has asked for what a timer calls for; empty: it isn't due, or has just come to be.
func late(timer events.Timer, now time.Time) string {
	if by := now.Sub(timer.Due); timer.Armed() && by > lateSupervisor {
		return fmt.Sprintf("; it is %s late: is one running?", by.Round(time.Second))
	}
	return ""
}

func (s *StepWhy) running(t *events.Task, run *events.Run, agents map[string]AgentState, now time.Time) {
	s.Reason, s.Until = ReasonAtWork, events.InstantText(run.Timer.Due)
	s.Moves = "the agent's reply, or the end of the attempt's time"
	a, known := agents[s.Agent]
	switch {
	case !known:
	case a.Members == 0:
		s.noLiveAgent()
	case a.behind(t.ID, s.Attempt, attemptsWith(t, s.Agent)):
		s.Reason = ReasonQueue
		s.Moves = fmt.Sprintf("agent %s, whose group lags by %d: perhaps it has not taken this request yet, and perhaps it is at work on it", s.Agent, a.Lag)
	}
	if l := late(run.Timer, now); l != "" { // an agent drops what is late
		s.Moves = "a supervisor that ends the attempt" + l
	}
}

// queued is a run that could start.
func (s *StepWhy) queued(run *events.Run, since time.Time, agents map[string]AgentState) {
	s.Since = events.InstantText(since)
	if a, known := agents[s.Agent]; known && a.Members == 0 {
		s.noLiveAgent()
		return
	}
	s.Reason = ReasonCapacity
	s.Moves = "a reply of agent " + s.Agent + " to another request: the scheduler asks for no more at once"
	if run.State == events.StepWaiting {
		s.Moves += "; or a supervisor, if none has asked for the retry yet"
	}
}

func (s *StepWhy) noLiveAgent() {
	s.Reason, s.Moves = ReasonNoLiveAgent, "an instance of agent "+s.Agent+" that reads its requests"
}

// AgentsOf are the agents that attempts of a task are with, each once.
func AgentsOf(t *events.Task) []string {
	var names []string
	for i := range t.Steps {
		for _, kind := range []events.Kind{events.Do, events.Undo} {
			run := t.Run(i, kind)
			if run == nil || run.State != events.StepRunning {
				continue
			}
			if name, _ := t.Plan.Agent(i, kind); !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}

// AgentsAwaited are the agents that Explain has to know of, each once: those that have an
// attempt, or could have one by now.
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
		if name, _ := t.Plan.Agent(i, kind); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}
