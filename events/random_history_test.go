package events

import (
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/waybill-run/waybill/internal/suite"
)

// epochStart is the instant at which the histories of these tests begin.
var epochStart = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// drawPlan draws a graph of up to five levels with parallel branches.
func drawPlan(t *rapid.T) *Plan {
	var steps []PlanStep
	var above []int // steps of the levels before
	for level, levels := 0, rapid.IntRange(1, 5).Draw(t, "levels"); level < levels; level++ {
		var here []int
		for i, n := 0, rapid.IntRange(1, 3).Draw(t, "width"); i < n; i++ {
			s := PlanStep{ID: fmt.Sprintf("s%d", len(steps)), Agent: "inventory", Operation: "reserve", Attempts: drawAttempts(t)}
			for _, a := range above {
				if rapid.Bool().Draw(t, "needs") {
					s.Needs = append(s.Needs, a)
				}
			}
			s.RetryCodes = drawRetryCodes(t)
			if rapid.Bool().Draw(t, "undo") {
				s.Undo = &PlanUndo{Agent: "storage", Operation: "release", Attempts: drawAttempts(t), RetryCodes: drawRetryCodes(t)}
			}
			if rapid.Bool().Draw(t, "check") {
				s.Check = &PlanUndo{Agent: "archive", Operation: "status", Attempts: drawAttempts(t)}
			}
			if rapid.IntRange(0, 3).Draw(t, "repeat") == 0 {
				s.Repeat = &PlanRepeat{Every: time.Second, Max: 3}
			}
			if rapid.IntRange(0, 3).Draw(t, "wait") == 0 {
				s = PlanStep{ID: s.ID, Needs: s.Needs, StepKind: WaitStep}
			} else if rapid.IntRange(0, 3).Draw(t, "signal") == 0 {
				s = PlanStep{ID: s.ID, Needs: s.Needs, StepKind: SignalStep, Signal: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "name"), Attempts: Attempts{CompleteWithin: time.Minute}}
			}
			if rapid.IntRange(0, 4).Draw(t, "each") == 0 {
				s = drawItemsStep(t, s)
			}
			if rapid.IntRange(0, 3).Draw(t, "child") == 0 {
				s = PlanStep{ID: s.ID, Needs: s.Needs, StepKind: WorkflowStep, Workflow: "invoice", Undo: &PlanUndo{}, Catch: s.Catch}
			}
			here = append(here, len(steps))
			steps = append(steps, s)
		}
		above = append(above, here...)
	}
	return NewPlan(rapid.SampledFrom([]string{OnErrorUndo, OnErrorHold}).Draw(t, "on_error"), time.Hour, steps)
}

func drawRetryCodes(t *rapid.T) RetryCodes {
	return rapid.SampledFrom([]RetryCodes{{}, {}, {Only: []string{"busy"}}, {Except: []string{CodeExpired, "card_declined"}}}).Draw(t, "codes")
}

func drawAttempts(t *rapid.T) Attempts {
	ms := func(name string, most int) time.Duration {
		return time.Duration(rapid.IntRange(0, most).Draw(t, name)) * time.Millisecond
	}
	return Attempts{
		CompleteWithin: time.Millisecond + ms("complete_within", 10_000),
		MaxAttempts:    rapid.IntRange(1, 5).Draw(t, "max_attempts"),
		Backoff:        ms("backoff", 1000),
		Factor:         rapid.Float64Range(1, 4).Draw(t, "factor"),
		Max:            ms("max", 30_000),
		CoolDown:       ms("cool_down", 300_000),
	}
}

// walker is one random history: the task of its owner (live), the task that a reader rebuilds from the log (replayed),
// and a supervisor's timers.
type walker struct {
	*rapid.T
	at       time.Time
	live     *Task
	replayed *Task
	timers   Timers
	summary  Summary
	reader   EventReader
	failures int
	states   map[TaskState]int
	written  func(*Event, []byte) // nil, or called with each event and its value
}

// candidates returns facts about the task and some of its steps, allowed or not.
func (w *walker) candidates() []Fact {
	by := By{Who: "ada", Why: "because", RequestID: "req-" + strconv.Itoa(rapid.IntRange(1, 40).Draw(w.T, "req"))}
	fs := []Fact{&TaskStarted{}, &TaskHeld{Error: drawError(w.T)}, &TaskResumed{By: by},
		&TaskUndoing{By: by, Ending: StateUndone, Error: drawError(w.T)},
		&TaskUndoing{By: by, Ending: StateCancelled, Keep: true},
		&TaskSignalled{Name: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(w.T, "name"), ID: by.RequestID, Data: drawRaw(w.T), Claimed: "ada"}, w.migrates(by)}
	for range min(3, len(w.live.Steps)) {
		fs = append(fs, w.stepCandidates(rapid.IntRange(0, len(w.live.Steps)-1).Draw(w.T, "step"), by)...)
	}
	return fs
}

// changesStatus reports whether an event changes the task's state. A walk draws such events less often, since it would
// mostly hold and resume otherwise.
func changesStatus(e *Event) bool {
	return strings.HasPrefix(e.Fact.Type(), "waybill.task.") && e.Fact.Type() != "waybill.task.started.v1" && e.Fact.Type() != "waybill.task.signalled.v1" && e.Fact.Type() != "waybill.task.migrated.v1"
}

// ends returns the facts that end a task. A walk tries them seldom, so that histories are long, and then exclusively,
// so that most tasks end.
func (w *walker) ends() []Fact {
	return []Fact{&TaskProcessed{Output: drawRaw(w.T)}, &TaskUndone{}, &TaskCancelled{By: By{Who: "ada", RequestID: "req-0"}}}
}

func (w *walker) stepCandidates(i int, by By) []Fact {
	id := w.live.Plan.Steps[i].ID
	fs := []Fact{&RunSkipped{Step: id}, &RunCaught{Step: id, Error: drawError(w.T)},
		&RunReleased{By: by, Step: id, As: StepCompleted, Output: drawRaw(w.T)}, &RunReleased{By: by, Step: id, As: StepUndone}}
	last := w.live.Steps[i].Attempt
	fs = append(fs, &WaitStarted{Step: id, Attempt: last + 1, Wait: time.Minute}, &WaitCompleted{Step: id, Attempt: last},
		&CallRepeated{Step: id, Attempt: last, Output: drawRaw(w.T)})
	fs = append(fs, &SignalStarted{Step: id, Attempt: last + 1, Signal: w.live.Plan.Steps[i].Signal})
	if kept := w.live.Signals; len(kept) > 0 {
		fs = append(fs, &SignalCompleted{Step: id, Attempt: last, Received: kept[rapid.IntRange(0, len(kept)-1).Draw(w.T, "kept")].Seq})
	}
	fs = append(append(fs, w.checkCandidates(i)...), w.childCandidates(i)...)
	fs = append(fs, w.itemCandidates(i)...)
	for _, k := range []Kind{Do, Undo, Check} {
		n, agents := 0, map[Kind]string{Do: "inventory", Undo: "storage", Check: "archive"}
		if r := w.live.Run(i, k); r != nil {
			n = r.Attempt
		}
		fs = append(fs,
			&AttemptStarted{Kind: k, Step: id, Attempt: n + 1, Agent: agents[k], Operation: "o", Key: "key", TokenHash: rapid.SampledFrom([]string{"", "q1w2e3r4t5y6u7i8o9p0aQ"}).Draw(w.T, "token"), Input: drawRaw(w.T)},
			&AttemptFailed{Kind: k, Step: id, Attempt: n, Effect: EffectUnknown, Error: drawError(w.T)},
			&AttemptFailed{Kind: k, Step: id, Attempt: n, Effect: EffectNone, RetryAfter: 5 * time.Second, Deferred: true},
			&AttemptFailed{Kind: k, Step: id, Attempt: n + 1, Effect: EffectNone, Error: &Error{Code: CodeNoSuchAgent}},
			&AttemptExpired{Kind: k, Step: id, Attempt: n, Silence: rapid.SampledFrom([]time.Duration{0, 5 * time.Second}).Draw(w.T, "silence")},
			&AttemptProgressed{Kind: k, Step: id, Attempt: n, Progress: drawRaw(w.T)},
			&AttemptRejected{Kind: k, Step: id, Attempt: n, Error: drawError(w.T)},
			&AttemptWaiting{Kind: k, Step: id, Attempt: n, CoolDown: n > 2},
			&RunErrored{Kind: k, Step: id, Error: &Error{Code: CodeTriesExhausted}},
		)
		if k != Check {
			fs = append(fs, &AttemptCompleted{Kind: k, Step: id, Attempt: n, Output: drawRaw(w.T)})
		}
	}
	return fs
}

// childCandidates returns what may happen to the child of a step.
func (w *walker) childCandidates(i int) (fs []Fact) {
	id, s := w.live.Plan.Steps[i].ID, w.live.Steps[i]
	undo := 0
	if s.Undo != nil {
		undo = s.Undo.Attempt
	}
	fs = append(fs, &ChildStarted{Step: id, Attempt: s.Attempt + 1, Child: fmt.Sprint("c/", s.Attempt+1), Workflow: "invoice", TokenHash: "q1w2e3r4t5y6u7i8o9p0aQ", Input: drawRaw(w.T)},
		&WithdrawalStarted{Step: id, Attempt: undo + 1, Child: cmp.Or(s.KindState().Child, "c/0"), TokenHash: "q1w2e3r4t5y6u7i8o9p0aQ"})
	for k, n := range map[Kind]int{Do: s.Attempt, Undo: undo} {
		fs = append(fs, &ChildRejected{Kind: k, Step: id, Attempt: n, Error: drawError(w.T)},
			&ChildHeld{Kind: k, Step: id, Attempt: n, Error: &Error{Code: "busy"}}, &ChildResumed{Kind: k, Step: id, Attempt: n})
	}
	return append(fs, &ChildCompleted{Kind: Do, Step: id, Attempt: s.Attempt, Output: drawRaw(w.T)}, &ChildCompleted{Kind: Undo, Step: id, Attempt: undo})
}

// checkCandidates returns the results of a check.
func (w *walker) checkCandidates(i int) []Fact {
	c := w.live.Steps[i].Check
	if c == nil {
		return nil
	}
	id := w.live.Plan.Steps[i].ID
	return []Fact{&CheckCompleted{Step: id, Attempt: c.Attempt, Became: BecameCompleted, Output: drawRaw(w.T)},
		&CheckCompleted{Step: id, Attempt: c.Attempt, Became: BecameNone}, &CheckCompleted{Step: id, Attempt: c.Attempt, Became: BecameUnknown, Error: drawError(w.T)}}
}

// event makes the owner's event of a fact, with the timer that it arms.
func (w *walker) event(f Fact) *Event {
	e := &Event{Task: "order-7", Seq: 1, At: w.at, Cause: Cause{Replies, 3, 17}, Epoch: 2, Fact: f}
	if w.live != nil {
		e.Seq, e.Prev = w.live.Seq+1, w.live.Prev
	}
	arm := func(k TimerKind, after time.Duration) {
		e.Due = Millis(e.At.Add(after))
		e.Policy = &Policy{Timer: k, OnError: OnErrorUndo, CompleteBy: epochStart.Add(time.Hour), FailureCount: w.failures}
	}
	switch f := f.(type) {
	case *TaskStarted:
		arm(TimerTask, time.Hour)
	case *TaskResumed:
		if w.live.Ending == "" {
			arm(TimerTask, time.Hour)
		}
	case *TaskMigrated:
		if w.live.State == StateProcessing {
			arm(TimerTask, 0)
			e.Due = w.live.CompleteByUnder(f.Plan)
		}
	case *AttemptStarted:
		arm(TimerAttempt, 10*time.Second)
		if f.Attempt%2 == 0 {
			f.CompleteBy = e.Due.Add(time.Minute)
		}
	case *AttemptProgressed:
		arm(TimerAttempt, 5*time.Second)
	case *AttemptFailed, *AttemptExpired:
		if rapid.Bool().Draw(w.T, "due") {
			arm(TimerFailed, 0)
		}
	case *AttemptWaiting:
		arm(TimerWaiting, time.Second)
	case *CallRepeated:
		if w.live.State == StateProcessing && rapid.Bool().Draw(w.T, "due") {
			arm(TimerWaiting, time.Second)
		}
	case *WaitStarted, *SignalStarted:
		arm(TimerStep, time.Minute)
	case *TaskProcessed:
		f.ForgetAt = w.forgetAt()
	case *TaskUndone:
		f.ForgetAt = w.forgetAt()
	case *TaskCancelled:
		f.ForgetAt = w.forgetAt()
	}
	return e
}

// forgetAt draws the ForgetAt of a task that ends.
func (w *walker) forgetAt() time.Time {
	return rapid.SampledFrom([]time.Time{{}, w.at.Add(time.Hour)}).Draw(w.T, "forget_at")
}

// accepted tries each fact on a clone. It returns the accepted events, and checks that a refusal changes nothing.
func (w *walker) accepted(facts []Fact) []*Event {
	before := string(w.live.Encode())
	var ok []*Event
	for _, f := range facts {
		e, trial := w.event(f), w.live.Clone()
		if _, err := Evolve(trial, e, "h"); err == nil {
			ok = append(ok, e)
		} else if got := string(trial.Encode()); got != before {
			w.Fatalf("%s was refused (%v) and yet changed the task\nfrom %s\nto   %s", f.Type(), err, before, got)
		} else if !isUndoWithoutOne(w.live, f) && !isOfKeptSignals(w.live, f) && !isOfItems(w.live, f) {
			w.refused(e)
		}
	}
	if got := string(w.live.Encode()); got != before {
		w.Fatalf("one of %d facts on a clone changed the original\nfrom %s\nto   %s", len(facts), before, got)
	}
	return ok
}

// isUndoWithoutOne reports whether a fact is about an undo that the plan doesn't have. A Summary doesn't check that.
func isUndoWithoutOne(t *Task, f Fact) bool {
	step := ""
	switch f := f.(type) {
	case *AttemptStarted:
		step = f.Step
	case *AttemptFailed:
		step = f.Step
	case *RunErrored:
		step = f.Step
	}
	i, ok := t.Plan.Step(step)
	return ok && !t.Plan.Has(i, f.About().Kind)
}

// isOfKeptSignals reports whether a fact is refused for the signals or the child that the task has. A Summary doesn't have
// them.
func isOfKeptSignals(t *Task, f Fact) bool {
	switch f := f.(type) {
	case *TaskSignalled:
		return t.TakesSignals()
	case *WithdrawalStarted:
		i, _ := t.Plan.Step(f.Step)
		return t.Steps[i].KindState().Child != f.Child
	case *SignalCompleted:
		i, _ := t.Plan.Step(f.Step)
		return !slices.ContainsFunc(t.Signals, func(k KeptSignal) bool { return k.Seq == f.Received && k.Name == t.Plan.Steps[i].Signal })
	}
	return false
}

// storedForm returns the stored form of a task; empty for nil.
func storedForm(t *Task) string {
	if t == nil {
		return ""
	}
	return string(t.Encode())
}

// step folds an event in all ways and compares the results.
func (w *walker) step(e *Event) {
	state, statusSeq, count := TaskState(""), uint64(0), 0
	if w.live != nil {
		state, statusSeq, count = w.live.State, w.live.StatusSeq, w.live.FailureCount
	}
	value := e.Seal(w.live)
	hash := Hash(e.Fact.Type(), value)
	var before *Task
	if w.live != nil && rapid.Bool().Draw(w.T, "cloned") { // otherwise no steps are shared
		before = w.live.Clone()
	}
	form := storedForm(before)
	var err error
	if w.live, err = Evolve(w.live, e, hash); err != nil {
		w.Fatalf("live: %v", err)
	}
	if got := storedForm(before); got != form {
		w.Fatalf("%s of the original changed its clone\nfrom %s\nto   %s", e.Fact.Type(), form, got)
	}
	if w.written != nil {
		w.written(e, value)
	}
	rec := e.Record("ns.", "test", 3, value)
	read, err := DecodeEvent(&rec)
	if err != nil {
		w.Fatalf("what was written can't be read: %v\n%s", err, value)
	}
	if again := string(read.Value()); again != string(value) {
		w.Fatalf("%s: decoded and encoded again\nfrom %s\nto   %s", e.Fact.Type(), value, again)
	}
	if w.replayed, err = Evolve(w.replayed, read, hash); err != nil {
		w.Fatalf("replayed: %v", err)
	}
	w.timers.Evolve(read)
	w.summarize(&rec)
	switch f := e.Fact.(type) {
	case *AttemptFailed:
		if !f.Deferred {
			w.failures++
		}
	case *AttemptExpired:
		w.failures++
	}
	w.states[w.live.State]++
	w.invariants(e, state, statusSeq, count)
}

func (w *walker) invariants(e *Event, state TaskState, statusSeq uint64, count int) {
	t := w.live
	if t.Seq != e.Seq || t.UpdatedAt != e.At {
		w.Fatalf("seq %d at %s after event %d at %s", t.Seq, t.UpdatedAt, e.Seq, e.At)
	}
	if want := map[bool]uint64{true: statusSeq, false: e.Seq}[t.State == state]; t.StatusSeq != want {
		w.Fatalf("%s: status seq %d in state %s, before %d in %s", e.Fact.Type(), t.StatusSeq, t.State, statusSeq, state)
	}
	sum := 0
	for i := range t.Steps {
		sum += t.Steps[i].FailureCount
		if u := t.Steps[i].Undo; u != nil {
			sum += u.FailureCount
		}
		if c := t.Steps[i].Check; c != nil {
			sum += c.FailureCount
		}
	}
	if t.FailureCount < count || t.FailureCount != w.failures || sum > t.FailureCount {
		w.Fatalf("failure count %d, before %d; %d failures happened, %d counted by the steps", t.FailureCount, count, w.failures, sum)
	}
	live := string(t.Encode())
	if got := string(w.replayed.Encode()); got != live {
		w.Fatalf("after %s a replay differs\nlive   %s\nreplay %s", e.Fact.Type(), live, got)
	}
	stored, err := DecodeTask([]byte(live))
	if err != nil {
		w.Fatalf("stored form: %v\n%s", err, live)
	}
	if got := string(stored.Encode()); got != live {
		w.Fatalf("stored form\nfrom %s\nto   %s", live, got)
	}
	w.replayed = stored // continue from the stored form
	kept := t.Finished()
	again, err := DecodeTask(kept.Encode())
	if err != nil || string(again.Encode()) != string(kept.Encode()) || string(again.Finished().Encode()) != string(kept.Encode()) {
		w.Fatalf("of %s is kept %s, which reads back as %v, %v", live, kept.Encode(), again, err)
	}
	whole := t.Open() || t.Parent != nil && t.State == StateProcessed
	if bare := kept.Plan == nil && kept.Steps == nil && kept.Input == nil; bare == whole {
		w.Fatalf("%s is kept as %s", live, kept.Encode())
	}
	w.agree(e)
}

// agree compares the supervisor's timers with the task's.
func (w *walker) agree(e *Event) {
	own := map[Slot]Timer{}
	add := func(s Slot, t Timer) {
		if t.Armed() {
			own[s] = t
		}
	}
	add(Slot{}, w.live.Timer)
	for i := range w.live.Steps {
		id := w.live.Plan.Steps[i].ID
		add(Slot{id, Do}, w.live.Steps[i].Timer)
		if u := w.live.Steps[i].Undo; u != nil {
			add(Slot{id, Undo}, u.Timer)
		}
		if c := w.live.Steps[i].Check; c != nil {
			add(Slot{id, Check}, c.Timer)
		}
	}
	theirs := map[Slot]Timer{}
	for _, a := range w.timers.Armed {
		if _, twice := theirs[a.Slot]; twice {
			w.Fatalf("after %s two timers are armed in slot %v", e.Fact.Type(), a.Slot)
		}
		theirs[a.Slot] = a.Timer
	}
	if fmt.Sprint(own) != fmt.Sprint(theirs) {
		w.Fatalf("after %s in state %s\nthe task's timers       %v\nthe supervisor's timers %v", e.Fact.Type(), w.live.State, own, theirs)
	}
	if !w.live.Open() && len(own) > 0 {
		w.Fatalf("a task in state %s has timers %v", w.live.State, own)
	}
	again, err := DecodeTimers(w.timers.Encode())
	if err != nil || string(again.Encode()) != string(w.timers.Encode()) {
		w.Fatalf("stored timers: %v\n%s", err, w.timers.Encode())
	}
	w.timers = *again
}

// summarize compares the Summary with the task. It checks that the Summary refuses, unchanged, what the task refuses.
func (w *walker) summarize(rec *Record) {
	e, err := w.reader.Decode(rec)
	if err != nil {
		w.Fatalf("%s: %v", rec.Value, err)
	}
	w.summary.Evolve(e)
	want := w.live.Summary()
	if f, held := e.Fact.(*TaskHeld); held && w.summary.CatchFailed(f.Error) != w.live.CatchFailed(f.Error) {
		w.Fatalf("held by %+v; the undo of a caught step failed: %v by the audit's fold, %v by the task", f.Error, w.summary.CatchFailed(f.Error), w.live.CatchFailed(f.Error))
	}
	masked := w.summary
	masked.Steps = slices.Clone(masked.Steps)
	for i := range masked.Steps {
		masked.Steps[i].Started, masked.Steps[i].Sent = 0, 0 // a task doesn't know them
	}
	if got := string(masked.Encode()); got != string(want.Encode()) {
		w.Fatalf("after %s\nthe audit's fold %s\nthe task's        %s", e.Fact.Type(), got, want.Encode())
	}
	again, err := DecodeSummary(w.summary.Encode())
	if err != nil || string(again.Encode()) != string(w.summary.Encode()) {
		w.Fatalf("stored summary: %v\n%s", err, w.summary.Encode())
	}
	if len(again.Labels) == 0 {
		again.Labels = w.summary.Labels // nil or empty
	}
	if !reflect.DeepEqual(again.View(), w.summary.View()) {
		w.Fatalf("the view of a stored summary is %+v, before %+v", again.View(), w.summary.View())
	}
	w.summary = *again
	w.heldAgainstTask()
}

// heldAgainstTask compares the fields derived for a list with the task.
func (w *walker) heldAgainstTask() {
	var inError, with []string
	due := w.live.Timer.Due
	for i := range w.live.Steps {
		s := w.live.Steps[i]
		if s.State == StepError {
			inError = append(inError, w.live.Plan.Steps[i].ID)
		}
		for _, k := range []Kind{Do, Undo, Check} {
			r := w.live.Run(i, k)
			if r == nil {
				continue
			}
			if agent, _ := w.live.Plan.Agent(i, k); r.State == StepRunning && w.live.Open() && agent != "" {
				with = append(with, agent)
			}
			if r.Timer.Armed() && (due.IsZero() || r.Timer.Due.Before(due)) {
				due = r.Timer.Due
			}
		}
	}
	slices.Sort(with)
	with = slices.Compact(with)
	if !slices.Equal(w.summary.InError(), inError) || !slices.Equal(w.summary.WaitingFor(), with) || !w.summary.Due().Equal(due) {
		w.Fatalf("in error %v, waiting for %v, due %s; the task: %v, %v, %s", w.summary.InError(), w.summary.WaitingFor(), w.summary.Due(), inError, with, due)
	}
}

// refused checks that an event which the task refuses stops the summary and changes nothing else.
func (w *walker) refused(e *Event) {
	s := w.summary
	s.Steps, s.Labels = slices.Clone(s.Steps), w.summary.Labels
	s.Evolve(e)
	if s.Stopped != e.Seq {
		w.Fatalf("the audit takes %s, which the task refuses in state %s: %s", e.Fact.Type(), w.live.State, s.Encode())
	}
	if s.Stopped = 0; string(s.Encode()) != string(w.summary.Encode()) {
		w.Fatalf("%s was refused and yet changed the summary\nfrom %s\nto   %s", e.Fact.Type(), w.summary.Encode(), s.Encode())
	}
}

// rawValues are JSON values in various forms.
var rawValues = []string{"", "null", " null\n", `{"total":12,"card":"4242"}`, ` {"a": [1, 2.50e3, true, {"b":null}]} `,
	`"line\nbreak \u0000 \ud83d\ude00 \u00e9"`, "0", "-1.5E+10", "[]", "{}", "false", `"é\/"`, `{"a":1,"a":2}`}

func drawRaw(t *rapid.T) json.RawMessage {
	return json.RawMessage(rapid.SampledFrom(rawValues).Draw(t, "raw"))
}

func drawError(t *rapid.T) *Error {
	if rapid.Bool().Draw(t, "no_error") {
		return nil
	}
	return &Error{Code: "out_of_stock", Message: rapid.String().Draw(t, "message"), Step: "s0", Details: drawRaw(t)}
}

// walk continues from a submission until the end, or up to a number of events.
func (w *walker) walk(most int) {
	t := w.T
	w.step(w.event(&TaskReceived{Workflow: "order", Version: 1, Input: drawRaw(t), Plan: drawPlan(t), Digest: "d",
		Labels: rapid.MapOfN(rapid.String(), rapid.String(), 0, 3).Draw(t, "labels"), ReplyTo: "shop.status"}))
	for n, most := 0, rapid.IntRange(min(most, 40), most).Draw(t, "events"); n < most; n++ {
		w.at = w.at.Add(time.Duration(rapid.IntRange(0, 5000).Draw(t, "ms")) * time.Millisecond)
		var ok []*Event
		if rapid.IntRange(0, 19).Draw(t, "end") == 0 {
			ok = w.accepted(w.ends())
		}
		if len(ok) == 0 {
			ok = w.accepted(w.candidates())
		}
		if !w.live.Open() {
			if len(ok) > 0 {
				t.Fatalf("%s follows the end in state %s", ok[0].Fact.Type(), w.live.State)
			}
			if ok = w.reopening(); len(ok) == 0 {
				break
			}
		}
		if len(ok) == 0 {
			continue // no fact is possible for the drawn steps
		}
		if rapid.IntRange(0, 9).Draw(t, "stay") > 0 {
			if steps := slices.DeleteFunc(slices.Clone(ok), changesStatus); len(steps) > 0 {
				ok = steps
			}
		}
		w.step(ok[rapid.IntRange(0, len(ok)-1).Draw(t, "which")])
	}
}

// reopening returns an undo of a processed task, or nothing. The replay continues from what readers keep of an ended
// task.
func (w *walker) reopening() []*Event {
	if w.live.State != StateProcessed || rapid.Bool().Draw(w.T, "ended") {
		return nil
	}
	w.replayed = w.replayed.Finished()
	by := By{Who: "ada", Why: "a refund", RequestID: "refund"}
	undoing := func(processed []byte) *TaskUndoing {
		return &TaskUndoing{By: by, Ending: StateUndone, Error: drawError(w.T), Processed: processed}
	}
	other := w.live.Clone()
	other.Seq--
	changed := w.live.Clone()
	changed.Prev = "another"
	if _, err := Evolve(w.live.Clone(), w.event(undoing(changed.Encode())), "h"); err == nil { // a Summary doesn't check hashes
		w.Fatalf("a processed task is undone with the state of another history")
	}
	if wrong := w.accepted([]Fact{undoing(nil), undoing(other.Encode()), undoing([]byte("{}")), undoing(w.live.Finished().Encode())}); len(wrong) > 0 {
		w.Fatalf("a processed task is undone with the state %s", wrong[0].Fact.(*TaskUndoing).Processed)
	}
	return []*Event{w.event(undoing(w.live.Encode()))}
}

// TestHistories walks random histories of random graphs. After every event the owner's state, a replay of the log and a
// replay from the stored form have equal bytes. The supervisor's timers equal the task's. Refused events change
// nothing. A clone shares nothing that changes.
func TestHistories(t *testing.T) {
	states := map[TaskState]int{}
	rapid.Check(t, suite.Some(t, func(t *rapid.T) {
		w := &walker{T: t, at: epochStart, states: states}
		w.walk(120)
	}))
	t.Logf("events that led to each state: %v", states)
	least := suite.Of(t, 0, 1) // of few histories none may come to a state
	for _, s := range TaskStates {
		if states[s] < least && !t.Failed() {
			t.Errorf("no history came to state %s: the walk proves less than it says", s)
		}
	}
}
