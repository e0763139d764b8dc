package scheduler

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/workflow"
)

// plans holds the plan of each program: tasks of one definition share it, as
// they do when they are read from the log. Programs are kept for ever too.
var plans sync.Map // *workflow.Program -> *planned

// planned is the plan of a program.
type cachedPlan struct {
	*events.Plan
	// fits is the plan that was last found to be of the same steps. Tasks that
	// were read from a log share one, so it is mostly the next task's.
	lastMatch atomic.Pointer[events.Plan]
}

// PlanOf is what the fold needs of a definition.
func PlanOf(p *workflow.Program) *events.Plan { return cachedPlanOf(p).Plan }

func cachedPlanOf(p *workflow.Program) *cachedPlan {
	plan, ok := plans.Load(p)
	if !ok {
		plan, _ = plans.LoadOrStore(p, &cachedPlan{Plan: planOf(p)})
	}
	return plan.(*cachedPlan)
}

// suits reports whether a task of this plan can be evaluated with the program.
func (p *cachedPlan) matches(plan *events.Plan) bool {
	if plan == p.Plan || plan == p.lastMatch.Load() {
		return true
	}
	if !slices.EqualFunc(plan.Steps, p.Steps, sameStep) {
		return false
	}
	p.lastMatch.Store(plan)
	return true
}

// sameStep: attempts and times aren't compared, for a task goes by those of its
// plan. Nor are the stored forms, which another build may write differently.
func sameStep(a, b events.PlanStep) bool {
	if a.ID != b.ID || a.Agent != b.Agent || a.Operation != b.Operation || !slices.Equal(a.Needs, b.Needs) {
		return false
	}
	if a.Undo == nil || b.Undo == nil {
		return a.Undo == b.Undo
	}
	return a.Undo.Agent == b.Undo.Agent && a.Undo.Operation == b.Undo.Operation
}

func planOf(p *workflow.Program) *events.Plan {
	def := p.Definition()
	index := make(map[string]int, len(def.Steps))
	for i := range def.Steps {
		index[def.Steps[i].ID] = i
	}
	steps := make([]events.PlanStep, len(def.Steps))
	for i := range def.Steps {
		s := &def.Steps[i]
		steps[i] = events.PlanStep{ID: s.ID, Agent: s.Agent, Operation: s.Operation, Attempts: attempts(def.Effective(i))}
		for _, n := range s.Needs {
			steps[i].Needs = append(steps[i].Needs, index[n])
		}
		if u := s.Undo; u != nil {
			agent := u.Agent
			if agent == "" {
				agent = s.Agent
			}
			steps[i].Undo = &events.PlanUndo{Agent: agent, Operation: u.Operation, Attempts: attempts(def.EffectiveUndo(i))}
		}
	}
	return events.NewPlan(def.OnError, time.Duration(def.CompleteWithin), steps)
}

func attempts(within time.Duration, r workflow.Retry) events.Attempts {
	return events.Attempts{CompleteWithin: within, MaxAttempts: r.MaxAttempts, Backoff: time.Duration(r.Backoff),
		Factor: r.Factor, Max: time.Duration(r.Max), CoolDown: time.Duration(r.CoolDown)}
}

// Advance is what a task's state allows without any input. Of a task that was
// decided by Decide that is nothing; it is for one whose plan was changed since
// (internal/replay). Like Decide it changes t, which must be the caller's own copy.
func Advance(t *events.Task, cause events.Cause, env *Env) Decision {
	d := newDecider(t, cause, env)
	d.advance()
	return d.decision()
}

// advance does what the state allows next: starts what is ready, ends what is
// done, undoes what is to be undone. In a hold nothing starts.
func (d *decider) advance() {
	switch d.Task.State {
	case events.StateProcessing:
		d.advanceSteps()
	case events.StateUndoing:
		d.advanceUndo()
	}
}

// advanceSteps starts every step before which all is done, in the plan's
// order; a step that is skipped may satisfy the next. Past the task's
// complete-by none starts: an agent would drop the request, and its effect
// would be taken to be unknown. The task's timer is due, and decides.
func (d *decider) advanceSteps() {
	var known doneAncestors
	var held [workflow.MaxSteps]bool
	for progress := d.now.Before(d.Task.CompleteBy); progress; {
		progress = false
		for i := range d.Task.Steps {
			if d.Task.State != events.StateProcessing || d.needDefinitions {
				return
			}
			if d.Task.Steps[i].State == events.StepPending && known.allDone(d.Task, i) {
				d.startOrSkip(i, &held)
				progress = progress || d.Task.Steps[i].State == events.StepSkipped
			}
		}
	}
	if d.Task.State == events.StateProcessing && stepsDone(d.Task) {
		d.completeTask()
	}
}

// ancestry is which steps of a task are known to be done with all that they come
// after: no step is undone while others start, so it stays so.
type doneAncestors [workflow.MaxSteps]bool

// satisfied reports whether all that a step comes after is done: what it needs, what
// that needs, and so on. That a need is done doesn't say so: an operator may release a
// step as completed that has never run, before those that it needs.
func (a *doneAncestors) allDone(t *events.Task, i int) bool {
	needs := t.Plan.Steps[i].Needs
	for _, n := range needs {
		if !isDone(t.Steps[n].State) {
			return false
		}
	}
	for _, n := range needs {
		if n < len(a) && a[n] {
			continue
		}
		if !a.allDone(t, n) {
			return false
		}
		if n < len(a) {
			a[n] = true
		}
	}
	return true
}

func ancestorsDone(t *events.Task, i int) bool {
	var known doneAncestors
	return known.allDone(t, i)
}

func isDone(s events.StepState) bool { return s == events.StepCompleted || s == events.StepSkipped }

func stepsDone(t *events.Task) bool {
	for i := range t.Steps {
		if !isDone(t.Steps[i].State) {
			return false
		}
	}
	return true
}

// begin starts a step, or skips it. held are those whose condition was seen to hold: in
// this decision it goes on to.
func (d *decider) startOrSkip(i int, held *[workflow.MaxSteps]bool) {
	if !d.loadProgram() {
		d.failRun(i, events.Do, d.definitionError())
		return
	}
	// Of one that waits for its agent the condition held when it came to wait, and is of
	// what doesn't change any more: of many beside each other it isn't looked at for each input.
	if d.needDefinitions || d.env.Slots != nil && d.env.Slots.Waits(d.Task, i, events.Do) {
		return
	}
	// What was tried may have had an effect: it isn't skipped any more, for nothing
	// would undo it then.
	if d.Task.Steps[i].Attempt == 0 && !d.conditionHolds(i, held) {
		return
	}
	if d.hasSlot(i, events.Do) { // else it stays pending, until it is its turn
		d.startAttempt(i, events.Do)
	}
}

// holds reports whether a step's condition holds. If not, the step is skipped, or in error.
func (d *decider) conditionHolds(i int, held *[workflow.MaxSteps]bool) bool {
	if i < len(held) && held[i] {
		return true
	}
	when, err := d.program.When(i, d.evaluationScope())
	switch {
	case err != nil:
		d.failRun(i, events.Do, expressionFailed(err))
	case !when:
		d.emit(&events.RunSkipped{Step: d.Task.Plan.Steps[i].ID}, time.Time{}, nil)
	case i < len(held):
		held[i] = true
	}
	return when && err == nil
}

// attempt starts the next attempt of a run: the request goes out with the
// event.
func (d *decider) startAttempt(i int, k events.Kind) {
	agent, operation := d.Task.Plan.Agent(i, k)
	step, number := d.Task.Plan.Steps[i].ID, 1
	run := d.Task.Run(i, k)
	if run != nil {
		number = run.Attempt + 1
	}
	input, fresh, ferr := d.runInput(i, k, run)
	if d.needDefinitions {
		return
	}
	if ferr != nil {
		d.failRun(i, k, ferr)
		return
	}
	partitions := d.env.Requests[agent]
	if partitions == 0 {
		d.failAttempt(i, &events.AttemptFailed{Step: step, Kind: k, Attempt: number, Effect: events.EffectNone,
			Error: d.noSuchAgent(agent)})
		return
	}
	if r, refused := d.env.tooLarge[attemptID{d.Task.ID, step, k, number}]; refused {
		d.failRun(i, k, &events.Error{Code: events.CodeTooLarge, Message: r.why})
		return
	}
	generation := 0
	if run != nil {
		generation = run.Generation
	}
	key := events.IdempotencyKey(d.env.Namespace, d.Task.ID, step, k, generation)
	value, err := d.requestValue(i, k, input)
	if err != nil {
		d.failRun(i, k, err)
		return
	}
	ref := events.RequestRef{Step: step, Kind: k, Attempt: number}
	token := d.env.Token(d.Task.ID, ref)
	f := &events.AttemptStarted{Kind: k, Step: step, Attempt: number, Agent: agent, Operation: operation, Key: key,
		TokenHash: events.TokenHash(d.Task.ID, ref, token)}
	switch {
	case fresh && isTaskInput(d.Task, input):
		f.TaskInput = true
	case fresh:
		f.Input = input
	}
	by := d.attemptDeadline(i, k)
	d.emit(f, by, d.policyOf(i, f))
	q := &events.Request{Task: d.Task.ID, Ref: ref, Token: token, Operation: operation,
		CompleteBy: by, IdempotencyKey: key, Traceparent: d.Task.Traceparent, Value: value}
	d.Records = append(d.Records, q.RecordIn(d.env.Arena, d.env.Namespace, d.env.Source, agent, requestPartition(d.Task.ID, number, partitions, d.env.Leaderless[agent])))
}

// noSuchAgent is why an agent can't be asked.
func (d *decider) noSuchAgent(agent string) *events.Error {
	topic := d.env.Namespace.Requests(agent)
	if why, barred := d.env.Unwritable[agent]; barred {
		return &events.Error{Code: events.CodeNoSuchAgent, Message: shortened(fmt.Sprintf("topic %s can't be written to: %s", topic, why))}
	}
	return &events.Error{Code: events.CodeNoSuchAgent, Message: fmt.Sprintf("there is no topic %s", topic)}
}

// RequestPartition is the partition of an agent's requests that an attempt's is in, while all of
// them have a leader.
func RequestPartition(task string, attempt int, partitions int32) int32 {
	return requestPartition(task, attempt, partitions, nil)
}

// requestPartition spreads tasks over an agent's partitions, and sends each
// retry to another one than the attempt before, so that a sick instance isn't
// met again. Instances tend to own neighbouring partitions, or every k-th: the
// stride is about n over the golden ratio, so it leaves either kind of set, and
// has no divisor in common with n, so every partition has its turn. Those that no broker
// leads have none, unless there is no other.
func requestPartition(task string, attempt int, partitions int32, leaderless []int32) int32 {
	if len(leaderless) >= int(partitions) {
		leaderless = nil
	}
	first, n := int64(events.Partition([]byte(task), partitions)), int64(partitions)-int64(len(leaderless))
	p := int32((first + int64(attempt-1)*stride(n)) % n) // of those that are led
	for _, none := range leaderless {
		if none <= p {
			p++
		}
	}
	return p
}

func stride(n int64) int64 {
	s := max(1, n*618/1000)
	for gcd(s, n) != 1 {
		s++
	}
	return s
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// attemptDeadline bounds an attempt by its own time and the task's. An undo has its
// own deadlines only.
func (d *decider) attemptDeadline(i int, k events.Kind) time.Time {
	by := events.Millis(d.now.Add(d.Task.Plan.AttemptsOf(i, k).CompleteWithin))
	if k == events.Do && d.Task.CompleteBy.Before(by) {
		by = d.Task.CompleteBy
	}
	return by
}

// runInput is a run's input: what the log holds, or for the first attempt what
// the definition's expressions give (fresh).
func (d *decider) runInput(i int, k events.Kind, run *events.Run) (input json.RawMessage, fresh bool, err *events.Error) {
	// An undo without undo.input has none to keep. An attempt whose agent was
	// gone kept nothing either: StartedSeq says that a request was sent.
	if run != nil && (len(run.Input) > 0 || k == events.Undo && run.StartedSeq > 0) {
		return run.Input, false, nil
	}
	if !d.loadProgram() {
		return nil, false, d.definitionError()
	}
	if d.needDefinitions {
		return nil, false, nil
	}
	var failure error
	if k == events.Undo {
		input, fresh, failure = d.program.UndoInput(i, d.evaluationScope())
	} else {
		input, failure = d.program.Input(i, d.evaluationScope())
		fresh = true
	}
	if failure != nil {
		return nil, false, expressionFailed(failure)
	}
	if fresh && !events.ValidJSON(input) {
		return nil, false, nestsTooDeep("the input of step " + quoted(d.Task.Plan.Steps[i].ID))
	}
	n, total := len(input), d.derived.taskBytes(d.Task)
	if !isTaskInput(d.Task, input) {
		total += n
	}
	if n > MaxStepInputBytes || total > MaxTaskBytes {
		what := "the input of step " + quoted(d.Task.Plan.Steps[i].ID)
		return nil, false, &events.Error{Code: events.CodeTooLarge, Message: tooLarge(what, n, MaxStepInputBytes, total)}
	}
	return input, fresh, nil
}

// minSharedBytes is how long an input is that isn't repeated in the event of its step: a shorter one is, so that the
// event can be read by itself.
const minSharedBytes = 256

// isTaskInput reports whether a step's input is the task's. Then it is counted and stored once.
func isTaskInput(t *events.Task, input json.RawMessage) bool {
	return len(input) >= minSharedBytes && bytes.Equal(input, t.Input)
}

// requestValue is what the agent gets: the input, or for an undo what is to be
// undone.
func (d *decider) requestValue(i int, k events.Kind, input json.RawMessage) (json.RawMessage, *events.Error) {
	if k == events.Do {
		return input, nil
	}
	s := d.Task.Steps[i]
	u := events.UndoOf{IdempotencyKey: s.Key, Outcome: "unknown", Input: s.Input, Output: s.Output}
	if s.CompletedSeq != 0 {
		u.Outcome = "completed"
	}
	value, err := events.UndoValue(u, input)
	if err != nil {
		return nil, &events.Error{Code: events.CodeExpressionFailed, Message: "undo.input is no object: " + err.Error()}
	}
	if n := len(value); n > MaxRequestBytes {
		return nil, &events.Error{Code: events.CodeTooLarge, Message: fmt.Sprintf("the request has %d bytes; at most %d", n, MaxRequestBytes)}
	}
	return value, nil
}

// advanceUndo: undo begins when nothing runs, and goes one step at a time.
func (d *decider) advanceUndo() {
	for i := range d.Task.Steps {
		s := d.Task.Steps[i]
		if s.State == events.StepRunning {
			return
		}
		if u := s.Undo; u != nil {
			switch u.State {
			case events.StepRunning, events.StepFailed, events.StepWaiting:
				return
			case events.StepPending: // resubmitted
				d.startAttempt(i, events.Undo)
				return
			}
		}
	}
	if i, ok := nextUndo(d.Task); ok {
		d.startAttempt(i, events.Undo)
		return
	}
	if i, ok := skippedUnknown(d.Task); ok {
		d.failTask(cannotUndo(d.Task.Plan.Steps[i].ID))
		return
	}
	if d.Task.Ending == events.StateCancelled {
		d.emit(&events.TaskCancelled{}, time.Time{}, nil)
	} else {
		d.emit(&events.TaskUndone{}, time.Time{}, nil)
	}
}

// skippedUnknown finds a step that may have had an effect and was skipped. Builds
// before made such histories (see begin), and the table has no way from there: an
// operator must look, and can end the task.
func skippedUnknown(t *events.Task) (int, bool) {
	for i, s := range t.Steps {
		if s.State == events.StepSkipped && s.Unknown && t.Plan.Steps[i].Undo != nil {
			return i, true
		}
	}
	return 0, false
}

func cannotUndo(step string) *events.Error {
	return &events.Error{Code: events.CodeTriesExhausted, Step: step,
		Message: "step " + quoted(step) + " was skipped after an attempt that may have had an effect, and can't be undone; see what it did, and cancel the task with --keep"}
}

// nextUndo chooses the step to undo next: first those whose effect is unknown,
// the last started first, then the completed ones, the last completed first. A
// step without an undo is passed over, and one that was skipped (skippedUnknown).
func nextUndo(t *events.Task) (int, bool) {
	best, unknown, order := -1, false, uint64(0)
	for i := range t.Steps {
		s := t.Steps[i]
		if t.Plan.Steps[i].Undo == nil || s.State == events.StepUndone || s.State == events.StepSkipped || s.Undo != nil && s.Undo.State == events.StepCompleted {
			continue
		}
		var at uint64
		switch {
		case s.Unknown && s.CompletedSeq == 0:
			at = s.StartedSeq
		case s.CompletedSeq != 0 && !t.Keep:
			at = s.CompletedSeq
		default:
			continue
		}
		u := s.CompletedSeq == 0
		if best < 0 || u && !unknown || u == unknown && at > order {
			best, unknown, order = i, u, at
		}
	}
	return best, best >= 0
}

// process ends a task whose steps are all done.
func (d *decider) completeTask() {
	if !d.loadProgram() {
		d.failTask(d.definitionError())
		return
	}
	if d.needDefinitions {
		return
	}
	out, err := d.program.Output(d.evaluationScope())
	if err != nil {
		d.failTask(expressionFailed(err))
		return
	}
	if !events.ValidJSON(out) {
		d.failTask(nestsTooDeep("the task's output"))
		return
	}
	if n := len(out); n > MaxOutputBytes || d.derived.taskBytes(d.Task)+n > MaxTaskBytes {
		d.failTask(&events.Error{Code: events.CodeTooLarge, Message: tooLarge("the task's output", n, MaxOutputBytes, d.derived.taskBytes(d.Task)+n)})
		return
	}
	d.emit(&events.TaskProcessed{Output: out}, time.Time{}, nil)
}

// loadProgram finds the definition that the task keeps. false: it is gone, or there
// is another under its name, whose expressions aren't those of the task's steps; a
// definition that may only not have been read yet asks for that instead.
func (d *decider) loadProgram() bool {
	if d.program != nil {
		return true
	}
	p, ok := d.env.Definitions.Program(d.Task.Workflow, d.Task.Version)
	if !ok && !d.env.DefinitionsRead {
		d.needDefinitions = true
		return true
	}
	if !ok {
		return false
	}
	if d.definitionChanged = !cachedPlanOf(p).matches(d.Task.Plan); d.definitionChanged {
		return false
	}
	d.program = p
	return true
}

func (d *decider) definitionError() *events.Error {
	what := "is gone; apply it again and resubmit"
	if d.definitionChanged {
		what = "is another than the task began with; undo or cancel the task"
	}
	return &events.Error{Code: events.CodeNoSuchWorkflow, Message: fmt.Sprintf("the definition %s/%d %s", d.Task.Workflow, d.Task.Version, what)}
}

// nestsTooDeep: each step may nest what it was given a little deeper, so the bound of
// what can be read back is checked where a value is made.
func nestsTooDeep(what string) *events.Error {
	return &events.Error{Code: events.CodeExpressionFailed, Message: fmt.Sprintf("%s nests deeper than %d levels", what, events.MaxJSONDepth)}
}

func expressionFailed(err error) *events.Error {
	return &events.Error{Code: events.CodeExpressionFailed, Message: shortened(err.Error())}
}

// evaluationScope is what expressions can see now.
func (d *decider) evaluationScope() workflow.Scope {
	if d.derived.hasScope {
		return d.derived.scope
	}
	t := d.Task
	s := workflow.Scope{TaskID: t.ID, Workflow: t.Workflow, Version: t.Version, Priority: t.Priority, Labels: t.Labels, Input: t.Input,
		Steps: make([]workflow.StepScope, len(t.Steps)), Work: &d.derived.work}
	for i := range t.Steps {
		s.Steps[i] = stepScope(t.Steps[i])
	}
	d.derived.scope, d.derived.hasScope = s, true
	return s
}
