package scheduler

import (
	"encoding/json"
	"flag"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/workflow"
)

// TestRandomHistories plays random workflows under random histories: whatever
// agents, supervisors and operators send, in any order, each decision keeps the
// promises (promises_test.go), and once all of them behave the task comes to
// its end. More of it: -rapid.checks=10000.
func TestRandomHistories(t *testing.T) {
	if f := flag.Lookup("rapid.checks"); f.Value.String() == f.DefValue && !testing.Short() {
		if err := f.Value.Set(historiesByDefault); err != nil {
			t.Fatal(err)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		w.submit(w.submission)
		for range rapid.IntRange(0, 120).Draw(t, "inputs") {
			w.input()
		}
		w.behave()
		w.finish()
		if w.task != nil {
			w.settle()
		}
		w.rebuild()
	})
}

const (
	historiesByDefault = "800" // about 10 s

	maxLevels      = 5
	maxStepsALevel = 3
	// maxSweeps bounds how often time moves on until a task whose agents answer
	// has ended: each sweep ends an attempt or a wait, of which there are few.
	maxSweeps = 400
)

// drawDefinition draws a workflow of few levels with parallel branches. Its
// budgets are small and its times of one size, so that histories exhaust them.
func drawDefinition(t *rapid.T) *workflow.Definition {
	within := drawDuration(t, "complete_within", time.Second, time.Minute)
	b := workflow.New("w", 1).
		CompleteWithin(within).
		AttemptWithin(drawDuration(t, "attempt", 100*time.Millisecond, min(within, 5*time.Second))).
		Retry(drawRetry(t)).
		OnError(rapid.SampledFrom([]string{workflow.OnErrorUndo, workflow.OnErrorHold}).Draw(t, "on_error"))
	flawed := rarely(t, "flawed")
	var above, all []string
	for range rapid.IntRange(1, maxLevels).Draw(t, "levels") {
		var level []string
		for range rapid.IntRange(1, maxStepsALevel).Draw(t, "steps") {
			id := "s" + strconv.Itoa(len(all)+len(level))
			b.Step(drawStep(t, id, above, all, flawed))
			level = append(level, id)
		}
		above, all = level, append(all, level...)
	}
	switch {
	case flawed && rarely(t, "bad output"):
		b.Output("${ input.gone }")
	case !rarely(t, "no output"):
		b.Output(map[string]any{"last": "${ steps." + all[len(all)-1] + ".output }"})
	}
	d, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// drawStep draws a step below others. A flawed one may have expressions that
// fail when they are evaluated.
func drawStep(t *rapid.T, id string, above, all []string, flawed bool) workflow.Step {
	s := workflow.Step{ID: id, Operation: "do", Agent: rapid.SampledFrom(agents).Draw(t, "agent")}
	for _, n := range above {
		if rapid.Bool().Draw(t, "needs") {
			s.Needs = append(s.Needs, n)
		}
	}
	if len(all) > len(above) && rarely(t, "needs one further up") {
		s.Needs = append(s.Needs, all[0])
	}
	switch {
	case flawed && rarely(t, "bad when"):
		s.When = "${ input.gone > 1 }"
	case rarely(t, "when"):
		s.When = "${ input.n > 2 }"
	case len(s.Needs) > 0 && rarely(t, "when the one before"):
		s.When = "${ steps." + s.Needs[0] + ".output != null }"
	}
	switch {
	case flawed && rarely(t, "bad input"):
		s.Input = map[string]any{"x": "${ input.gone }"}
	case len(s.Needs) > 0:
		s.Input = map[string]any{"order": "${ task.id }", "of": "${ steps." + s.Needs[0] + ".output }"}
	}
	if rarely(t, "own rule") {
		r := drawRetry(t)
		s.Retry = &r
	}
	if rapid.IntRange(0, 3).Draw(t, "undo") > 0 {
		s.Undo = &workflow.Undo{Operation: "undo"}
		switch {
		case flawed && rarely(t, "bad undo.input"):
			s.Undo.Input = map[string]any{"x": "${ steps." + id + ".output.gone }"}
		case rapid.Bool().Draw(t, "undo.input"):
			s.Undo.Input = map[string]any{"of": "${ steps." + id + ".output }"}
		}
		if rarely(t, "another undoes") {
			s.Undo.Agent = rapid.SampledFrom(agents).Draw(t, "agent")
		}
	}
	return s
}

func drawRetry(t *rapid.T) workflow.Retry {
	r := workflow.Retry{MaxAttempts: rapid.IntRange(1, 3).Draw(t, "max_attempts"),
		Backoff: workflow.Duration(drawDuration(t, "backoff", time.Millisecond, time.Second)), Factor: 2}
	if rapid.Bool().Draw(t, "cool_down") {
		r.CoolDown = workflow.Duration(drawDuration(t, "cool_down", time.Second, 20*time.Second))
	}
	return r
}

// drawDuration draws small ones as often as large ones.
func drawDuration(t *rapid.T, label string, from, to time.Duration) time.Duration {
	d := from
	for d < to && rapid.Bool().Draw(t, label+" doubles") {
		d *= 2
	}
	return min(to, d)
}

// rarely is one time in about ten. Draws lean to the least, so it isn't that.
func rarely(t *rapid.T, label string) bool { return rapid.IntRange(0, 31).Draw(t, label)%8 == 5 }

var agents = []string{"inventory", "payments", "shipping"}

// input is one thing that happens to the task.
func (w *world) input() {
	switch rapid.SampledFrom(inputs).Draw(w.t, "input") {
	case "reply":
		w.reply(w.current())
	case "stray reply":
		w.strayReply()
	case "due":
		w.sweep(0)
	case "due, by another clock":
		w.sweep(drawDuration(w.t, "ahead", time.Millisecond, 2*time.Second) - drawDuration(w.t, "behind", time.Millisecond, 2*time.Second))
	case "jump":
		w.jump()
	case "wait":
		w.now = w.now.Add(drawDuration(w.t, "wait", time.Millisecond, 2*time.Minute))
	case "any recovery":
		w.anyRecovery()
	case "recovery again":
		if n := len(w.asked); n > 0 {
			w.decide(events.Recoveries, w.asked[rapid.IntRange(0, n-1).Draw(w.t, "which")])
		}
	case "control":
		w.control(w.drawControl())
	case "control again":
		if n := len(w.controls); n > 0 {
			w.control(w.controls[rapid.IntRange(0, n-1).Draw(w.t, "which")])
		}
	case "submit again":
		s := *w.submission
		if rapid.Bool().Draw(w.t, "another body") {
			s.Input = json.RawMessage(`{"n":7}`)
		}
		w.submit(&s)
	case "agent goes or comes":
		w.toggleAgent()
	case "definition goes or comes":
		w.gone = !w.gone
	}
}

// inputs are drawn from; what is here more often happens more often.
var inputs = strings.Split("reply|reply|reply|reply|reply|reply|stray reply|due|due|due|due|due, by another clock|jump|jump|jump|"+
	"wait|any recovery|recovery again|control|control again|submit again|agent goes or comes|definition goes or comes", "|")

// current is the request of an attempt that runs; mostly there is one.
func (w *world) current() *events.Request {
	var running []*events.Request
	for _, q := range w.sent {
		if w.isCurrent(q) {
			running = append(running, q)
		}
	}
	if len(running) == 0 {
		return nil
	}
	return running[rapid.IntRange(0, len(running)-1).Draw(w.t, "which")]
}

func (w *world) isCurrent(q *events.Request) bool {
	if w.task == nil {
		return false
	}
	i, _ := w.task.Plan.Step(q.Ref.Step)
	r := w.task.Run(i, q.Ref.Kind)
	return r != nil && r.State == events.StepRunning && r.Attempt == q.Ref.Attempt
}

// reply answers a request, well or badly.
func (w *world) reply(q *events.Request) {
	if q == nil {
		return
	}
	r := &events.Reply{Task: q.Task, Ref: q.Ref, Effect: events.EffectUnknown, Body: w.drawBody(),
		Outcome: rapid.SampledFrom([]events.Outcome{events.Completed, events.Completed, events.Failed, events.Failed, events.Rejected}).Draw(w.t, "outcome")}
	if rapid.Bool().Draw(w.t, "no effect") {
		r.Effect = events.EffectNone
	}
	w.replied(r)
}

// replied: a reply that isn't of a current attempt changes nothing.
func (w *world) replied(r *events.Reply) {
	current := w.isCurrent(&events.Request{Ref: r.Ref})
	d := w.decide(events.Replies, r)
	if !current && (d.Ignored != IgnoredStaleReply || len(d.Records) > 0) {
		w.t.Fatalf("a reply to %v, which isn't current: %+v", r.Ref, d)
	}
	if current && len(d.Events) == 0 {
		w.t.Fatalf("a reply to %v, which is current, led to nothing: %+v", r.Ref, d)
	}
}

func (w *world) drawBody() json.RawMessage {
	if w.bodyBytes > 0 {
		return json.RawMessage(`{"ref":"` + strings.Repeat("x", w.bodyBytes) + `"}`)
	}
	return json.RawMessage(rapid.SampledFrom([]string{`{"ref":"r-1"}`, `null`, `3`, `{"code":"busy","message":"later"}`}).Draw(w.t, "body"))
}

// strayReply is late, doubled, or names what was never asked.
func (w *world) strayReply() {
	if len(w.sent) == 0 {
		return
	}
	q := *w.sent[rapid.IntRange(0, len(w.sent)-1).Draw(w.t, "which")]
	switch rapid.IntRange(0, 3).Draw(w.t, "stray") {
	case 0:
		w.reply(&q)
	case 1:
		q.Ref.Attempt += rapid.IntRange(1, 3).Draw(w.t, "attempts on")
		w.reply(&q)
	case 2:
		q.Ref.Kind = map[events.Kind]events.Kind{events.Do: events.Undo, events.Undo: events.Do}[q.Ref.Kind]
		w.reply(&q)
	case 3:
		d := w.decide(events.Replies, &events.Reply{Task: q.Task, Ref: events.RequestRef{Step: "nowhere", Kind: events.Do, Attempt: 1}, Outcome: events.Completed, Body: json.RawMessage("1")})
		if d.Unusable == nil || d.Unusable.Reason != events.ReasonUnknownStep || len(d.Events) > 0 {
			w.t.Fatalf("a reply to a step that isn't there: %+v", d)
		}
	}
}

// sweep is the supervisor: it asks for what is due by its clock, the earliest
// first. Where its clock is the scheduler's, what it asks for is done.
func (w *world) sweep(ahead time.Duration) {
	now := events.Millis(w.clock().Add(ahead))
	for _, a := range w.armed() {
		if a.Timer.Due.After(now) {
			continue
		}
		r := a.Recovery("t", a.Policy.Next("t", a.Slot.Step, a.Slot.Kind, a.Attempt, a.Timer.Due, now))
		w.asked = append(w.asked, r)
		still := slices.ContainsFunc(w.timers.Armed, func(b events.Armed) bool { return a.Timer == b.Timer })
		d := w.decide(events.Recoveries, r)
		if ahead == 0 && still && len(d.Events) == 0 && !w.outOfTime(r) {
			w.t.Fatalf("the supervisor asked for what the policy calls for, %+v, and got %q", *r, d.Ignored)
		}
		if !still && d.Ignored != IgnoredNotArmed {
			w.t.Fatalf("a recovery of a timer that isn't armed: %+v", d)
		}
	}
}

// outOfTime: a retry is refused when the task's own timer is due; that one
// decides.
func (w *world) outOfTime(r *events.Recovery) bool {
	return r.Action == events.ActionRetry && r.Kind == events.Do && w.task.Timer.Armed() && !w.clock().Before(w.task.Timer.Due)
}

// armed are the timers, the earliest first.
func (w *world) armed() []events.Armed {
	return slices.SortedStableFunc(slices.Values(w.timers.Armed), func(a, b events.Armed) int { return a.Timer.Due.Compare(b.Timer.Due) })
}

// jump moves time to the next timer, or close to it.
func (w *world) jump() {
	armed := w.armed()
	if len(armed) == 0 {
		return
	}
	at := armed[rapid.IntRange(0, len(armed)-1).Draw(w.t, "which")].Timer.Due
	at = at.Add(time.Duration(rapid.SampledFrom([]int{-150, -50, -1, 0, 0, 0, 1, 500}).Draw(w.t, "ms after")) * time.Millisecond)
	if at.After(w.now) {
		w.now = at
	}
}

// anyRecovery is what no supervisor would ask for: early, for another timer, by
// another action.
func (w *world) anyRecovery() {
	r := &events.Recovery{Task: "t", Timer: uint64(rapid.IntRange(1, 40).Draw(w.t, "timer")), Kind: events.Do,
		Action: rapid.SampledFrom([]events.Action{events.ActionRetry, events.ActionWait, events.ActionUndo, events.ActionHold}).Draw(w.t, "action")}
	if armed := w.armed(); len(armed) > 0 && rapid.IntRange(0, 3).Draw(w.t, "of an armed timer") > 0 {
		a := armed[rapid.IntRange(0, len(armed)-1).Draw(w.t, "which")]
		r.Timer, r.Step, r.Kind = a.Timer.Seq, a.Slot.Step, a.Slot.Kind
	} else if rapid.Bool().Draw(w.t, "of a step") {
		r.Step = rapid.SampledFrom([]string{"s0", "s1", "nowhere"}).Draw(w.t, "step")
	}
	w.decide(events.Recoveries, r)
}

func (w *world) drawControl() *events.Control {
	id := "req-" + strconv.FormatInt(w.offset, 10)
	x := &events.Control{Task: "t", ID: id, By: events.By{Who: "op", Why: "test", RequestID: id},
		Command: rapid.SampledFrom([]events.Command{events.Resubmit, events.Resubmit, events.Release, events.Release, events.UndoTask, events.Cancel}).Draw(w.t, "command")}
	step := rapid.SampledFrom(append(w.stepsInError(), "nowhere")).Draw(w.t, "step")
	switch x.Command {
	case events.Cancel:
		x.Keep = rapid.Bool().Draw(w.t, "keep")
	case events.Resubmit:
		if rarely(w.t, "one step") {
			x.Step = step
		}
	case events.Release:
		x.Step, x.Output = step, w.drawBody()
		x.As = rapid.SampledFrom([]events.StepState{events.StepCompleted, events.StepUndone}).Draw(w.t, "as")
	}
	w.controls = append(w.controls, x)
	return x
}

// stepsInError come first, so that they are drawn most; the others follow.
func (w *world) stepsInError() []string {
	var in, others []string
	for i := range w.definition.Steps {
		if id := w.definition.Steps[i].ID; w.task != nil && w.task.Steps[i].State == events.StepError {
			in = append(in, id)
		} else {
			others = append(others, id)
		}
	}
	return append(in, others...)
}

func (w *world) toggleAgent() {
	a := rapid.SampledFrom(agents).Draw(w.t, "agent")
	if _, ok := w.requests[a]; ok {
		delete(w.requests, a)
	} else {
		w.requests[a] = rapid.Int32Range(1, 7).Draw(w.t, "partitions")
	}
}

// behave: from here on everyone does as he should.
func (w *world) behave() {
	w.gone, w.bodyBytes = false, 0
	for _, a := range agents {
		if w.requests[a] == 0 {
			w.requests[a] = 4
		}
	}
}

// finish brings the task to its end or a hold: agents answer, the supervisor
// asks for what is due, time passes. It fails if that doesn't come about.
func (w *world) finish() {
	for range maxSweeps {
		if w.task == nil || w.task.State.Terminal() || w.task.State == events.StateError {
			return
		}
		answered := false
		for _, q := range slices.Clone(w.sent) {
			if w.isCurrent(q) && w.clock().Before(q.CompleteBy) {
				w.replied(&events.Reply{Task: "t", Ref: q.Ref, Outcome: events.Completed, Effect: events.EffectUnknown, Body: json.RawMessage(`{"ref":"r-1"}`)})
				answered = true
			}
		}
		if answered {
			continue
		}
		armed := w.armed()
		if len(armed) == 0 {
			w.t.Fatalf("the task is %s, and nothing will ever happen: %s", w.task.State, w.task.Encode())
		}
		if at := armed[0].Timer.Due; at.After(w.now) {
			w.now = at
		}
		w.sweep(0)
	}
	w.t.Fatalf("the task is %s after %d sweeps: %s", w.task.State, maxSweeps, w.task.Encode())
}

// settle: an operator can always end a task that is held.
func (w *world) settle() {
	if w.task.State == events.StateError && rapid.Bool().Draw(w.t, "resubmit first") {
		w.operator(&events.Control{Command: events.Resubmit})
	}
	for _, keep := range []bool{false, true} {
		if w.task.State == events.StateError {
			w.operator(&events.Control{Command: events.Cancel, Keep: keep || w.task.Ending != ""})
		}
	}
	if !w.task.State.Terminal() {
		w.t.Fatalf("the task is %s: %s", w.task.State, w.task.Encode())
	}
}

func (w *world) operator(x *events.Control) {
	x.Task, x.ID = "t", fmt.Sprint("op-", w.offset)
	x.By = events.By{Who: "op", RequestID: x.ID}
	if d := w.control(x); d.Ignored != "" {
		w.t.Fatalf("%s of a task in state %s was %s", x.Command, w.fold.State, d.Ignored)
	}
	w.finish()
}
