package events

// StepKind is the kind of a step: what happens between its start and its end. (A Kind says whether a run is of a step
// or of its undo. An undo is a call, unless the step has children: see HasChildren.) The stored form of CallStep is empty.
type StepKind string

// CallStep is the kind of steps that call an operation of an agent. Their facts are those of attempts.
const CallStep StepKind = ""

// runningTimers are the kinds that this build can fold, with the kind of timer that a running step of each has.
var runningTimers = map[StepKind]TimerKind{CallStep: TimerAttempt}

// stepKindFacts are the facts of the registered kinds.
var stepKindFacts []*factKind

// registerCallFacts adds facts of CallStep that a file of its own declares.
func registerCallFacts(facts ...*factKind) bool {
	stepKindFacts = append(stepKindFacts, facts...)
	return true
}

// registerStepKind adds a kind and its facts. Its running steps have a timer of TimerStep. The file of the kind calls it.
func registerStepKind(k StepKind, facts ...*factKind) StepKind {
	runningTimers[k] = TimerStep
	stepKindFacts = append(stepKindFacts, facts...)
	knownTexts[string(k)] = string(k)
	return k
}

// String returns the name of the kind.
func (k StepKind) String() string {
	if k == CallStep {
		return "call"
	}
	return string(k)
}

// HasChildren reports whether a step of the kind runs child tasks. Its undo is then their withdrawal.
func (k StepKind) HasChildren() bool { return k == WorkflowStep || k == ItemsStep }

// CallsAgent reports whether a running step of the kind has an agent at work. If not, a decision to undo ends the step
// at once, and the step needs no slot of an agent.
func (k StepKind) CallsAgent() bool { return k == CallStep }
