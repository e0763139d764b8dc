package events

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// factOf makes the fact of a row of a table; nil if the row has no event of its own.
func factOf(k Kind, verb Verb, attempt int) Fact {
	switch verb {
	case "started":
		return &AttemptStarted{Kind: k, Step: "s0", Attempt: attempt + 1}
	case "skipped":
		return &RunSkipped{Step: "s0"}
	case "completed":
		if k == Check {
			return &CheckCompleted{Step: "s0", Attempt: attempt, Became: BecameUnknown}
		}
		return &AttemptCompleted{Kind: k, Step: "s0", Attempt: attempt}
	case "failed":
		return &AttemptFailed{Kind: k, Step: "s0", Attempt: attempt}
	case "progressed":
		return &AttemptProgressed{Kind: k, Step: "s0", Attempt: attempt}
	case "expired":
		return &AttemptExpired{Kind: k, Step: "s0", Attempt: attempt}
	case "waiting":
		return &AttemptWaiting{Kind: k, Step: "s0", Attempt: attempt}
	case "rejected":
		return &AttemptRejected{Kind: k, Step: "s0", Attempt: attempt}
	case "errored":
		return &RunErrored{Kind: k, Step: "s0"}
	case "caught":
		return &RunCaught{Step: "s0"}
	case "repeated":
		if k == Do {
			return &CallRepeated{Step: "s0", Attempt: attempt}
		}
	case "released":
		return &RunReleased{Step: "s0", As: StepUndone}
	case VerbChildHeld:
		return &ChildHeld{Kind: k, Step: "s0", Attempt: attempt, Error: &Error{Code: "busy"}}
	case VerbItem:
		if k != Check {
			return &ItemHeld{Kind: k, Step: "s0", Error: &Error{Code: "busy"}}
		}
	case VerbChildResumed:
		return &ChildResumed{Kind: k, Step: "s0", Attempt: attempt}
	}
	return nil
}

func taskFactOf(verb Verb) Fact {
	switch verb {
	case "received":
		return &TaskReceived{Plan: onePlan()}
	case "started":
		return &TaskStarted{}
	case "processed":
		return &TaskProcessed{}
	case "undoing":
		return &TaskUndoing{Ending: StateUndone}
	case "undone":
		return &TaskUndone{}
	case "cancelled":
		return &TaskCancelled{}
	case "held":
		return &TaskHeld{}
	case "resumed":
		return &TaskResumed{}
	}
	return nil
}

// try folds a fact into a task, and checks that a refusal leaves the task unchanged.
func try(t *testing.T, task *Task, f Fact, allowed bool, what string) *Task {
	t.Helper()
	before := ""
	if task != nil {
		before = string(task.Encode())
	}
	e := next(task, f)
	got, err := Evolve(task, e, "h2")
	if allowed != (err == nil) {
		t.Errorf("%s: allowed by the table: %v; Evolve: %v", what, allowed, err)
	}
	if err != nil && task != nil && string(task.Encode()) != before {
		t.Errorf("%s: refused (%v) and yet changed\nfrom %s\nto   %s", what, err, before, task.Encode())
	}
	if err != nil {
		return nil
	}
	return got
}

// TestTaskTable tries every verb in every state of a task.
func TestTaskTable(t *testing.T) {
	for _, r := range TaskTransitions {
		for _, from := range append([]TaskState{""}, TaskStates...) {
			for _, ending := range []TaskState{"", StateUndone, StateCancelled} {
				var task *Task
				if from != "" {
					task = after(t)
					task.State, task.Ending = from, ending
				} else if ending != "" {
					continue
				}
				fact := taskFactOf(r.Verb)
				if f, ok := fact.(*TaskUndoing); ok && from == StateProcessed {
					f.Processed = task.Encode()
				}
				got := try(t, task, fact, slices.Contains(r.From, from), fmt.Sprintf("task.%s in %q", r.Verb, from))
				if got == nil {
					continue
				}
				want := r.To
				if want == "" {
					want = map[bool]TaskState{true: StateProcessing, false: StateUndoing}[ending == ""]
				}
				if got.State != want || want != r.To && !slices.Contains(r.Either, want) || got.StatusSeq != got.Seq {
					t.Errorf("task.%s in %q makes %q (status seq %d of %d), want %q", r.Verb, from, got.State, got.StatusSeq, got.Seq, want)
				}
			}
		}
	}
}

// TestStepTable tries every verb of a step and of its undo in every combination of the states of task, step and undo,
// possible or not.
func TestStepTable(t *testing.T) {
	tried, allowed := 0, 0
	for _, k := range []Kind{Do, Undo} {
		for _, r := range StepTransitions {
			verb, prefix := r.Verb, Verb("")
			if k == Undo {
				prefix = "undo."
			}
			if len(verb) > 5 && verb[:5] == "undo." {
				verb = verb[5:]
			}
			f := factOf(k, verb, 1)
			if f == nil || prefix+verb != r.Verb {
				continue
			}
			var u Transition[StepState]
			if r, _ := row(UndoTransitions, verb, ""); r != nil {
				u = *r
			}
			for _, during := range TaskStates {
				for _, step := range StepStates {
					for _, undo := range append([]StepState{""}, StepStates...) {
						ok := stepAllowed(k, r, u, during, step, undo)
						tried++
						if ok {
							allowed++
						}
						walkStep(t, k, r, u, during, step, undo, ok)
					}
				}
			}
		}
	}
	if allowed == 0 || tried < 10_000 {
		t.Errorf("%d pairs, %d allowed: the walk is too short to prove anything", tried, allowed)
	}
}

func stepAllowed(k Kind, r, u Transition[StepState], during TaskState, step, undo StepState) bool {
	ok := slices.Contains(r.During, during) && slices.Contains(r.From, step)
	if k == Undo || r.Verb == "released" && undo != "" {
		ok = ok && slices.Contains(u.From, undo)
	}
	if r.Verb == "caught" {
		ok = ok && (undo == "" || undo == StepCompleted)
	}
	return ok
}

func walkStep(t *testing.T, k Kind, r, u Transition[StepState], during TaskState, step, undo StepState, ok bool) {
	if strings.HasSuffix(string(r.Verb), string(VerbItem)) { // it needs items: items_random_test.go has them
		return
	}
	task := after(t)
	task.State = during
	if strings.Contains(string(r.Verb), "child_") {
		task.Plan = NewPlan(OnErrorUndo, time.Hour, []PlanStep{{ID: "s0", StepKind: WorkflowStep, Workflow: "w", Undo: &PlanUndo{}}})
	}
	s := task.OwnStep(0)
	s.State, s.Attempt, s.Timer = step, 1, Timer{Seq: 1, Due: epochStart}
	if undo != "" {
		s.Undo = &Run{State: undo, Attempt: 1, Timer: Timer{Seq: 1, Due: epochStart}}
	}
	attempt := 1
	running := step == StepRunning
	if k == Undo {
		running = undo == StepRunning
		if undo == "" {
			attempt = 0
		}
	}
	verb := r.Verb
	if k == Undo {
		verb = verb[5:]
	}
	if verb == "failed" && !running {
		attempt++
	}
	got := try(t, task, factOf(k, verb, attempt), ok, fmt.Sprintf("%s in task %s, step %s, undo %q", r.Verb, during, step, undo))
	if got == nil {
		return
	}
	want := r.To
	if want == "" {
		want = StepUndone // factOf releases as undone
		if verb == "repeated" {
			want = afterCall(during)
		}
	}
	s = got.Steps[0]
	if s.State != want || (k == Undo && s.Undo.State != u.To) || (verb == "released" && s.Undo != nil && s.Undo.State != u.To) {
		t.Errorf("%s in task %s makes step %s, undo %v; want %s, %s", r.Verb, during, s.State, s.Undo, want, u.To)
	}
	if verb == "released" && (s.Timer.Armed() || s.Undo != nil && s.Undo.Timer.Armed()) {
		t.Errorf("released leaves a timer armed")
	}
}

// TestTablesAreWhole checks that every type of event about a task has a row (those of a kind of step the row of their
// verb), every row with an event has a type, no
// verb has two rows, every state is reachable, and every state that isn't terminal can be left.
func TestTablesAreWhole(t *testing.T) {
	rows := map[string]bool{"waybill.partition.claimed.v1": true, "waybill.partition.forgot.v1": true, "waybill.task.signalled.v1": true, "waybill.task.withdrawn.v1": true, "waybill.task.migrated.v1": true} // none changes a state
	for _, r := range TaskTransitions {
		rows[taskFactOf(r.Verb).Type()] = true
	}
	for _, r := range StepTransitions {
		k, verb := Do, r.Verb
		if len(verb) > 5 && verb[:5] == "undo." {
			k, verb = Undo, verb[5:]
		}
		if len(verb) > 6 && verb[:6] == "check." {
			k, verb = Check, verb[6:]
		}
		f := factOf(k, verb, 1)
		if (f == nil) != (r.During == nil) {
			t.Errorf("row %s: with During it needs an event, without it none", r.Verb)
		}
		if f != nil {
			rows[f.Type()] = true
		}
	}
	for _, typ := range Types() {
		if a := facts[typ].newFact().About(); a.OfStep() && a.StepKind != CallStep {
			if _, ok := row(StepTransitions, a.Verb, StepPending); !ok && a.Phase.Begins() {
				t.Errorf("type %s begins a run, and the table has no row %s for a pending step", typ, a.Verb)
			}
			if _, ok := row(StepTransitions, a.Verb, StepRunning); !ok && a.Phase.Ends() {
				t.Errorf("type %s ends a run, and the table has no row %s for a running step", typ, a.Verb)
			}
			continue
		}
		if !rows[typ] {
			t.Errorf("type %s has no row in the tables of transitions.go", typ)
		}
	}
	once(t, "task", TaskTransitions)
	once(t, "step", StepTransitions)
	once(t, "undo", UndoTransitions)
	once(t, "check", CheckTransitions)
	reachable(t, "task", TaskTransitions, TaskStates, TaskState.Terminal)
	ends := func(s StepState) bool { return s == StepSkipped || s == StepCaught }
	reachable(t, "step", StepTransitions, StepStates, ends)
}

func once[S ~string](t *testing.T, name string, table []Transition[S]) {
	seen := map[Verb]bool{}
	for _, r := range table {
		if seen[r.Verb] {
			t.Errorf("the table of %s has two rows %q: the second is never read", name, r.Verb)
		}
		seen[r.Verb] = true
		if (r.To == "") != (len(r.Either) > 0) {
			t.Errorf("%s.%s: to %q, either %v: one of them", name, r.Verb, r.To, r.Either)
		}
	}
}

func reachable[S ~string](t *testing.T, name string, table []Transition[S], states []S, end func(S) bool) {
	in, out := map[S]bool{}, map[S]bool{}
	for _, r := range table {
		for _, to := range append([]S{r.To}, r.Either...) {
			in[to] = true
		}
		for _, from := range r.From {
			out[from] = true
		}
	}
	for _, s := range states {
		if !in[s] && s != S(StepPending) {
			t.Errorf("nothing comes to %s %s", name, s)
		}
		if s == S(StateProcessed) && end(s) {
			continue // an operator's undo can follow
		}
		if out[s] == end(s) {
			t.Errorf("%s %s: an end is %v, can be left is %v", name, s, end(s), out[s])
		}
	}
}

// TestInstantsAreMillis checks that instants are written in UTC and milliseconds.
func TestInstantsAreMillis(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 6_789_000, time.FixedZone("x", 3600))
	if got := Millis(at); got.Format(TimeLayout) != "2026-01-02T02:04:05.006Z" || !Millis(time.Time{}).IsZero() {
		t.Errorf("Millis(%s) = %s", at, got)
	}
}

// TestAppendInstantAgreesWithTimeFormat checks that an instant is written as time.Format writes it.
func TestAppendInstantAgreesWithTimeFormat(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		at := time.Unix(rapid.Int64Range(-62167219200, 253402300799).Draw(t, "second"), rapid.Int64Range(0, 999_999_999).Draw(t, "nanosecond")).
			In(time.FixedZone("x", rapid.IntRange(-50_000, 50_000).Draw(t, "zone")))
		if got, want := string(appendInstant(nil, at)), at.UTC().Format(TimeLayout); got != want {
			t.Fatalf("%s, want %s", got, want)
		}
	})
}
