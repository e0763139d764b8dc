package scheduler

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/workflow"
)

// cachedPlan is the plan of a program. It is kept with the program, so that the tasks of a definition share it. Tasks that
// are read from the log share plans, too.
type cachedPlan struct {
	*events.Plan
	// lastMatch is the last plan that was found to match. Tasks that are read from a log share a plan, so it usually
	// matches the next task, too.
	lastMatch atomic.Pointer[events.Plan]
}

// PlanOf returns the plan of a definition, in the form that events.Evolve needs.
func PlanOf(p *workflow.Program) *events.Plan { return cachedPlanOf(p).Plan }

func cachedPlanOf(p *workflow.Program) *cachedPlan {
	return p.Derived(func(d *workflow.Definition) any { return &cachedPlan{Plan: PlanOfDefinition(d)} }).(*cachedPlan)
}

// matches reports whether tasks with this plan can be evaluated with the program.
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

// sameStep compares two steps without attempts and times, since a task uses those of its own plan. It doesn't compare
// encoded forms either, since another build may encode them differently.
func sameStep(a, b events.PlanStep) bool {
	if a.ID != b.ID || a.StepKind != b.StepKind || a.Agent != b.Agent || a.Operation != b.Operation || a.Signal != b.Signal || a.Workflow != b.Workflow || a.Version != b.Version || !slices.Equal(a.Needs, b.Needs) {
		return false
	}
	if (a.Items == nil) != (b.Items == nil) || (a.Repeat == nil) != (b.Repeat == nil) || !sameOther(a.Check, b.Check) {
		return false
	}
	return sameOther(a.Undo, b.Undo)
}

// sameOther compares the undos or the checks of two steps.
func sameOther(a, b *events.PlanUndo) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Agent == b.Agent && a.Operation == b.Operation
}

// PlanOfDefinition is PlanOf of a definition that isn't compiled. It keeps nothing.
func PlanOfDefinition(def *workflow.Definition) *events.Plan {
	index := make(map[string]int, len(def.Steps))
	for i := range def.Steps {
		index[def.Steps[i].ID] = i
	}
	steps := make([]events.PlanStep, len(def.Steps))
	for i := range def.Steps {
		s := &def.Steps[i]
		if s.ForEach != "" {
			steps[i] = itemsPlan(def, i, index)
			continue
		}
		steps[i] = events.PlanStep{ID: s.ID, StepKind: s.StepKind(), Agent: s.Agent, Operation: s.Operation, Catch: slices.Clone(s.Catch), Pivot: s.Pivot, Signal: s.Signal}
		switch within, retry := def.Effective(i); {
		case steps[i].StepKind.CallsAgent():
			steps[i].Attempts, steps[i].RetryCodes = attempts(within, retry), retryCodes(retry)
			steps[i].Attempts.Heartbeat, _ = def.Heartbeats(i)
		case s.CompleteWithin != nil:
			steps[i].Attempts.CompleteWithin = within
		}
		if steps[i].StepKind == events.WorkflowStep {
			steps[i].Workflow, steps[i].Version, steps[i].Undo = s.Workflow, s.Version, &events.PlanUndo{}
		}
		if r := s.Repeat; r != nil {
			steps[i].Repeat = &events.PlanRepeat{Every: r.Wait(), Max: r.Max}
		}
		for _, n := range s.Needs {
			steps[i].Needs = append(steps[i].Needs, index[n])
		}
		if u := s.Undo; u != nil {
			agent := u.Agent
			if agent == "" {
				agent = s.Agent
			}
			within, retry := def.EffectiveUndo(i)
			steps[i].Undo = &events.PlanUndo{Agent: agent, Operation: u.Operation, Attempts: attempts(within, retry), RetryCodes: retryCodes(retry)}
			_, steps[i].Undo.Attempts.Heartbeat = def.Heartbeats(i)
		}
		if c := s.Check; c != nil {
			within, retry := def.EffectiveCheck(i)
			steps[i].Check = &events.PlanUndo{Agent: cmp.Or(c.Agent, s.Agent), Operation: c.Operation, Attempts: attempts(within, retry), RetryCodes: retryCodes(retry)}
		}
	}
	plan := events.NewPlan(def.OnError, time.Duration(def.CompleteWithin), steps)
	if def.DedupeFor == 0 {
		return plan
	}
	return plan.WithDedupeFor(time.Duration(def.DedupeFor))
}

// itemsPlan returns the plan of a step that runs for each item. Its operation is in the plans of the items' tasks.
func itemsPlan(def *workflow.Definition, i int, index map[string]int) events.PlanStep {
	s := &def.Steps[i]
	p := events.PlanStep{ID: s.ID, StepKind: events.ItemsStep, Workflow: s.Workflow, Version: s.Version, Catch: slices.Clone(s.Catch), Pivot: s.Pivot,
		Items: &events.PlanItems{Parallel: s.Parallel(), Collects: s.Collects(), Summary: s.Summarizes(), Undoes: s.Undo != nil || s.Workflow != "", OwnIDs: s.ChildID != ""}, Undo: &events.PlanUndo{}}
	if s.Workflow != "" && s.CompleteWithin != nil {
		p.Attempts.CompleteWithin = time.Duration(*s.CompleteWithin)
	}
	for _, n := range s.Needs {
		p.Needs = append(p.Needs, index[n])
	}
	return p
}

func attempts(within time.Duration, r workflow.Retry) events.Attempts {
	return events.Attempts{CompleteWithin: within, MaxAttempts: r.MaxAttempts, Backoff: time.Duration(r.Backoff),
		Factor: r.Factor, Max: time.Duration(r.Max), CoolDown: time.Duration(r.CoolDown)}
}

func retryCodes(r workflow.Retry) events.RetryCodes {
	return events.RetryCodes{Only: slices.Clone(r.Only), Except: slices.Clone(r.Except)}
}

// Advance decides what a task's state allows without an input. After Decide there is nothing to do. internal/replay
// uses it for tasks with a changed plan. Like Decide it changes t, which must be the caller's own copy.
func Advance(t *events.Task, cause events.Cause, env *Env) Decision {
	d := newDecider(t, cause, env)
	d.advance()
	return d.decision()
}

// advance starts the steps that are ready, completes the task, or continues its undo. Nothing starts while the task is
// held.
func (d *decider) advance() {
	switch d.Task.State {
	case events.StateProcessing:
		d.advanceSteps()
	case events.StateUndoing:
		d.advanceUndo()
	default: // nothing starts
	}
}

// advanceSteps starts every step that is ready, in the plan's order. A step that is skipped or caught, or takes a signal
// that is there already, may make others ready. After the task's complete-by no step starts: an agent would drop the
// request, and its effect would count as unknown. The task's timer is due then and decides.
func (d *decider) advanceSteps() {
	if d.advancing {
		return // a step was caught as it started: the loop below goes on
	}
	d.advancing = true
	defer func() { d.advancing = false }()
	d.resumeCatches()
	d.resumeItems()
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
				progress = progress || isDone(d.Task.Steps[i].State)
			}
		}
	}
	if d.Task.State == events.StateProcessing && !d.needDefinitions && stepsDone(d.Task) {
		d.completeTask()
	}
}

// doneAncestors caches which steps are done, together with all their ancestors. No step that is done is undone while
// others start, so the cache stays valid for a decision.
type doneAncestors [workflow.MaxSteps]bool

// allDone reports whether all ancestors of a step are done. Checking its direct needs isn't enough: an operator may
// release a step as completed before its own needs have run.
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

func isDone(s events.StepState) bool {
	return s == events.StepCompleted || s == events.StepSkipped || s == events.StepCaught
}

func stepsDone(t *events.Task) bool {
	for i := range t.Steps {
		if !isDone(t.Steps[i].State) {
			return false
		}
	}
	return true
}

// startOrSkip starts a step, or skips it. held caches the conditions that evaluated to true in this decision.
func (d *decider) startOrSkip(i int, held *[workflow.MaxSteps]bool) {
	if d.Task.Steps[i].IsChecking() { // resubmitted meanwhile: the answer decides
		return
	}
	if !d.loadProgram() {
		d.failRun(i, events.Do, d.definitionError())
		return
	}
	// The condition of a queued step was true when it was queued, and its inputs can't change. Evaluating it again for
	// each input would be expensive.
	if d.needDefinitions || d.env.Slots != nil && d.env.Slots.Waits(d.Task, i, events.Do) {
		return
	}
	// A step with an earlier attempt may have had an effect. It isn't skipped, since a skipped step is never undone.
	if d.Task.Steps[i].Attempt == 0 && !d.conditionHolds(i, held) {
		return
	}
	d.kindOf(i, events.Do).start(d, i)
}

// conditionHolds evaluates a step's condition. If it is false, the step is skipped. If it can't be evaluated, the step
// ends in error.
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

// startAttempt starts the next attempt of a run. The request is written in the same transaction as the event.
func (d *decider) startAttempt(i int, k events.Kind) {
	if kind := d.Task.Plan.StepKindOf(i, k); kind == events.ItemsStep {
		d.withdrawItems(i)
		return
	} else if kind == events.WorkflowStep {
		d.withdrawChild(i)
		return
	}
	if d.needsCheck(i, k) {
		k = events.Check
	}
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
	key := events.IdempotencyKey(d.env.Namespace, d.Task.KeyName(), step, k, generation)
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
	by, rule := d.attemptDeadline(i, k), d.Task.Plan.AttemptsOf(i, k)
	if rule.Heartbeat > 0 {
		f.CompleteBy = by
	}
	d.emit(f, rule.SilenceEnds(d.now, by), d.policyOf(i, f))
	q := &events.Request{Task: d.Task.ID, Ref: ref, Token: token, Operation: operation,
		CompleteBy: by, IdempotencyKey: key, Traceparent: d.Task.Traceparent, Heartbeat: rule.Heartbeat, Value: value}
	if run != nil {
		q.Progress = run.Interim().Progress
	}
	d.Records = append(d.Records, q.RecordIn(d.env.Arena, d.env.Namespace, d.env.Source, agent, requestPartition(d.Task.ID, number, partitions, d.env.Leaderless[agent])))
}

// noSuchAgent returns the error of an attempt whose agent can't receive requests.
func (d *decider) noSuchAgent(agent string) *events.Error {
	topic := d.env.Namespace.Requests(agent)
	if why, barred := d.env.Unwritable[agent]; barred {
		return &events.Error{Code: events.CodeNoSuchAgent, Message: shortened(fmt.Sprintf("topic %s can't be written to: %s", topic, why))}
	}
	return &events.Error{Code: events.CodeNoSuchAgent, Message: fmt.Sprintf("there is no topic %s", topic)}
}

// RequestPartition returns the partition of an attempt's request while all partitions have a leader.
func RequestPartition(task string, attempt int, partitions int32) int32 {
	return requestPartition(task, attempt, partitions, nil)
}

// requestPartition spreads tasks over an agent's partitions. Each retry goes to another partition than the previous
// attempt, to avoid a faulty instance. Instances tend to own adjacent partitions, or every k-th one. The stride is
// about n divided by the golden ratio, so it leaves both kinds of sets. The stride and n are coprime, so every
// partition is used. Partitions without a leader are used only if no partition has one.
func requestPartition(task string, attempt int, partitions int32, leaderless []int32) int32 {
	if len(leaderless) >= int(partitions) {
		leaderless = nil
	}
	first, n := int64(events.Partition([]byte(task), partitions)), int64(partitions)-int64(len(leaderless))
	p := int32((first + int64(attempt-1)*stride(n)) % n) // among those with a leader
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

// attemptDeadline returns the complete-by of an attempt. It is limited by the attempt's complete_within and by the
// task's complete-by. An undo, and a check before it, are limited by their complete_within only.
func (d *decider) attemptDeadline(i int, k events.Kind) time.Time {
	by := events.Millis(d.now.Add(d.Task.Plan.AttemptsOf(i, k).CompleteWithin))
	if (k == events.Do || k == events.Check && !d.precedesUndo(i)) && d.Task.CompleteBy.Before(by) {
		by = d.Task.CompleteBy
	}
	return by
}

// runInput returns a run's input. It comes from the log, or for the first attempt from the definition's expressions
// (fresh).
func (d *decider) runInput(i int, k events.Kind, run *events.Run) (input json.RawMessage, fresh bool, err *events.Error) {
	// The log has no input of an undo without undo.input, nor of an attempt whose agent didn't exist. StartedSeq shows
	// that a request was sent.
	if k == events.Check { // its value names the operation
		return nil, false, nil
	}
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

// minSharedBytes is the minimum size of an input that the event of its step omits because it equals the task's input. A
// smaller input is repeated, so that the event is readable on its own.
const minSharedBytes = 256

// isTaskInput reports whether a step's input is the task's input. Such an input is counted and stored once.
func isTaskInput(t *events.Task, input json.RawMessage) bool {
	return len(input) >= minSharedBytes && bytes.Equal(input, t.Input)
}

// requestValue returns the value of a request: the input, or for an undo the step to undo.
func (d *decider) requestValue(i int, k events.Kind, input json.RawMessage) (json.RawMessage, *events.Error) {
	switch k {
	case events.Do:
		return input, nil
	case events.Check:
		return d.checkValue(i)
	case events.Undo:
	}
	s := d.Task.Steps[i]
	u := events.UndoOf{IdempotencyKey: s.Key, Outcome: "unknown", Input: s.Input, Output: s.Output}
	if s.CompletedSeq != 0 {
		u.Outcome = "completed"
	}
	value, err := events.UndoValue(u, input)
	if err != nil {
		return nil, &events.Error{Code: events.CodeExpressionFailed, Message: "undo.input is not an object: " + err.Error()}
	}
	if n := len(value); n > MaxRequestBytes {
		return nil, &events.Error{Code: events.CodeTooLarge, Message: fmt.Sprintf("the request has %d bytes; at most %d", n, MaxRequestBytes)}
	}
	return value, nil
}

// advanceUndo continues an undo. It begins when no attempt is running, and undoes one step at a time. Undos that have
// begun come first: resubmitted ones, and those of steps that were being caught.
func (d *decider) advanceUndo() {
	d.withdrawRunning()
	d.resumeItems()
	if d.Task.State != events.StateUndoing || d.needDefinitions {
		return // no item was to be undone, so the undo of the step ended at once, and with it that of the task
	}
	begun := -1
	for i, s := range d.Task.Steps {
		switch {
		case s.State == events.StepRunning, s.IsChecking():
			return
		case s.Undo == nil:
		case s.Undo.State == events.StepRunning, s.Undo.State == events.StepFailed, s.Undo.State == events.StepWaiting:
			return
		case s.Undo.State == events.StepPending && begun < 0:
			begun = i
		}
	}
	if begun >= 0 {
		d.startAttempt(begun, events.Undo)
		return
	}
	if i, ok := nextUndo(d.Task); ok {
		d.startAttempt(i, events.Undo)
		return
	}
	if d.Task.Ending == events.StateCancelled {
		d.emit(&events.TaskCancelled{ForgetAt: d.forgetAt()}, time.Time{}, nil)
	} else {
		d.emit(&events.TaskUndone{ForgetAt: d.forgetAt()}, time.Time{}, nil)
	}
}

// nextUndo chooses the next step to undo: first the steps with an unknown effect, the last started first; then the
// completed steps, the last completed first. Steps without an undo are ignored, and
// so are skipped steps: only a step without an attempt is skipped.
func nextUndo(t *events.Task) (int, bool) {
	best, unknown, order := -1, false, uint64(0)
	for i := range t.Steps {
		s := t.Steps[i]
		if !hasUndo(t, i) || s.State == events.StepUndone || s.State == events.StepCaught || s.Undo != nil && s.Undo.State == events.StepCompleted {
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

// hasUndo reports whether a step has an undo. A step that would have had children, and that an operator released before it
// had any, has none.
func hasUndo(t *events.Task, i int) bool {
	s, p := t.Steps[i], &t.Plan.Steps[i]
	switch p.StepKind {
	case events.ItemsStep:
		return p.Undo != nil && s.Items != nil
	case events.WorkflowStep:
		return p.Undo != nil && s.KindState().Child != ""
	case events.CallStep, events.SignalStep, events.WaitStep:
	}
	return p.Undo != nil
}

// completeTask ends a task whose steps are all done.
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
	d.emit(&events.TaskProcessed{Output: out, ForgetAt: d.forgetAt()}, time.Time{}, nil)
}

// loadProgram finds the definition of the task. It returns false if the definition doesn't exist, or if its steps
// differ from the task's plan. If the definitions haven't been read to their end, it sets needDefinitions instead.
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
	if step := d.Task.ItemOf(); step != "" {
		if p = p.ItemOfStep(step); p == nil {
			d.definitionChanged = true
			return false
		}
	}
	if d.definitionChanged = !cachedPlanOf(p).matches(d.Task.Plan); d.definitionChanged {
		return false
	}
	d.program = p
	return true
}

func (d *decider) definitionError() *events.Error {
	what := "doesn't exist any more; apply it again and resubmit"
	if d.definitionChanged {
		what = "differs from the one that the task began with; undo or cancel the task"
	}
	return &events.Error{Code: events.CodeNoSuchWorkflow, Message: fmt.Sprintf("the definition %s/%d %s", d.Task.Workflow, d.Task.Version, what)}
}

// nestsTooDeep returns the error of a value that nests too deep. Each step may nest its input a little deeper, so the
// depth is checked wherever a value is created.
func nestsTooDeep(what string) *events.Error {
	return &events.Error{Code: events.CodeExpressionFailed, Message: fmt.Sprintf("%s nests deeper than %d levels", what, events.MaxJSONDepth)}
}

func expressionFailed(err error) *events.Error {
	return &events.Error{Code: events.CodeExpressionFailed, Message: shortened(err.Error())}
}

// evaluationScope returns the values that expressions can refer to.
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
	if t.ItemOf() != "" {
		s.Item, s.Index = events.ItemOfInput(t.Input)
	}
	d.derived.scope, d.derived.hasScope = s, true
	return s
}
