package events

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// drawItemsStep returns a step of a plan that runs for each item of a list.
func drawItemsStep(t *rapid.T, s PlanStep) PlanStep {
	return PlanStep{ID: s.ID, Needs: s.Needs, StepKind: ItemsStep, Undo: &PlanUndo{},
		Items: &PlanItems{Parallel: 2, Collects: rapid.Bool().Draw(t, "collects"), Summary: rapid.Bool().Draw(t, "summary"), Undoes: rapid.Bool().Draw(t, "undoes")}}
}

// drawItems returns the items of a step in any states.
func drawItems(t *rapid.T) *Items {
	n := rapid.IntRange(0, 3*itemsPerChunk).Draw(t, "items")
	list := []byte{'['}
	for i := range n {
		list = fmt.Append(list, map[bool]string{true: "", false: ","}[i == 0], i)
	}
	it, err := newItems("", append(list, ']'))
	if err != nil {
		t.Fatal(err)
	}
	it.Next = rapid.IntRange(0, n).Draw(t, "next")
	it.Attempts, it.UndoToken = []ItemsAttempt{{1, "a"}, {3, "b"}}, "c"
	it.KeepsCompleted = rapid.Bool().Draw(t, "keeps")
	s := &Step{Items: it}
	for i := range it.Next {
		state := rapid.SampledFrom([]StepState{StepPending, StepRunning, StepCompleted, StepError, StepUndoing, StepUndone}).Draw(t, "state")
		s.setItem(i, func(x *Item) {
			if x.State = state; state == StepPending {
				return
			}
			x.Attempt = rapid.IntRange(0, 3).Draw(t, "attempt")
			if state == StepCompleted || state == StepError {
				x.Seq = uint64(10*n - i)
			}
			if state == StepCompleted {
				x.Output = json.RawMessage(rapid.SampledFrom([]string{"null", `{"a":[1,2]}`, `"]"`}).Draw(t, "output"))
			}
			if state == StepError || state == StepRunning && i%2 == 0 {
				x.Error = &Error{Code: "gone", Message: rapid.SampledFrom([]string{"", "none \"left\""}).Draw(t, "message")}
			}
		})
	}
	return it
}

// itemCandidates returns facts about the items of a step.
func (w *walker) itemCandidates(i int) []Fact {
	s, p := w.live.Steps[i], &w.live.Plan.Steps[i]
	if p.StepKind != ItemsStep {
		return nil
	}
	began := &ItemsBegan{Step: p.ID, Attempt: s.Attempt + 1, Count: 5, Items: json.RawMessage(`[1,"two",[3],{"four":4},null]`), Token: "t"}
	if s.Items == nil {
		return []Fact{began, &ItemsStarted{Step: p.ID, Attempt: 1, To: 1}, &ItemsCompleted{Step: p.ID, Attempt: s.Attempt}}
	}
	began.Items, began.Count = nil, s.Items.Count
	next, _ := s.Items.NextPending()
	n, undo := rapid.IntRange(0, 5).Draw(w.T, "item"), 0
	if s.Undo != nil {
		undo = s.Undo.Attempt
	}
	fs := []Fact{began, &ItemsStarted{Step: p.ID, Attempt: s.Attempt, From: next, To: next + 1}, &ItemsStarted{Step: p.ID, Attempt: s.Attempt, From: next, To: next + 2},
		&ItemEnded{Step: p.ID, Item: n, Output: drawRaw(w.T)}, &ItemEnded{Step: p.ID, Item: n, Error: drawError(w.T)},
		&ItemEnded{Step: p.ID, Item: n, Error: drawError(w.T), Effect: EffectUnknown}, &ItemEnded{Step: p.ID, Item: next, Error: drawError(w.T)},
		&ItemUndone{Step: p.ID, Item: n}, &ItemsCompleted{Step: p.ID, Attempt: s.Attempt}, &ItemsUndone{Step: p.ID, Attempt: undo},
		&ItemsUndoStarted{Step: p.ID, Attempt: undo + 1, KeepsCompleted: !p.Items.Undoes, Token: "u"}}
	for _, k := range []Kind{Do, Undo} {
		fs = append(fs, &ItemHeld{Kind: k, Step: p.ID, Item: n, Error: &Error{Code: "gone"}, Rejected: k == Undo && n%2 == 0}, &ItemResumed{Kind: k, Step: p.ID, Item: n})
	}
	if undo > 0 {
		fs = append(fs, &ItemsWithdrawn{Step: p.ID, Items: s.Items.NextUndo(2, true)}, &ItemsWithdrawn{Step: p.ID, Items: s.Items.NextUndo(1, false)})
	}
	return fs
}

// isOfItems reports whether a fact may be refused for the states of items, which a Summary doesn't have.
func isOfItems(t *Task, f Fact) bool {
	a := f.About()
	i, ok := t.Plan.Step(a.Step)
	return ok && t.Plan.Steps[i].StepKind == ItemsStep && a.StepKind == ItemsStep
}

// TestItemsAreShared checks that a clone keeps its items when the original's change, and that a change copies one chunk.
func TestItemsAreShared(t *testing.T) {
	task := itemsTask(t, 3000)
	before := task.Clone()
	evolved(t, task, &ItemEnded{Step: "pick", Item: 70, Output: json.RawMessage(`7`)})
	is, was := task.Steps[0].Items, before.Steps[0].Items
	if is.Item(70).State != StepCompleted || was.Item(70).State != StepRunning || was.Completed != 0 || is.Completed != 1 {
		t.Errorf("is %+v, was %+v", is.Item(70), was.Item(70))
	}
	copied := 0
	for g := range is.groups {
		for c := range is.groups[g].chunks {
			if is.groups[g].chunks[c] != was.groups[g].chunks[c] {
				copied++
			}
		}
	}
	if copied != 1 {
		t.Errorf("%d chunks were copied", copied)
	}
}

// itemsTask returns a task with a step of n items, which have all started.
func itemsTask(t testing.TB, n int) *Task {
	list := []byte(`{"items":[`)
	for i := range n {
		if i > 0 {
			list = append(list, ',')
		}
		list = fmt.Appendf(list, `{"n":%d}`, i)
	}
	plan := NewPlan(OnErrorUndo, time.Hour, []PlanStep{{ID: "pick", StepKind: ItemsStep, Undo: &PlanUndo{}, Items: &PlanItems{Parallel: n, Undoes: true}}})
	task := evolved(t, nil, &TaskReceived{Workflow: "w", Version: 1, Input: append(list, "]}"...), Plan: plan})
	task = evolved(t, task, &TaskStarted{})
	task = evolved(t, task, &ItemsBegan{Step: "pick", Attempt: 1, Count: n, At: "#/items", Token: "t"})
	return evolved(t, task, &ItemsStarted{Step: "pick", Attempt: 1, To: n})
}

func evolved(t testing.TB, task *Task, f Fact) *Task {
	t.Helper()
	e := &Event{Task: "order-7", Seq: 1, At: epochStart, Cause: Cause{Replies, 3, 17}, Epoch: 2, Fact: f}
	if task != nil {
		e.Seq, e.Prev = task.Seq+1, task.Prev
	}
	if _, ok := f.(*TaskStarted); ok {
		e.Due, e.Policy = epochStart.Add(time.Hour), &Policy{Timer: TimerTask, OnError: OnErrorUndo, CompleteBy: epochStart.Add(time.Hour)}
	}
	next, err := Evolve(task, e, "h")
	if err != nil {
		t.Fatal(err)
	}
	return next
}

// TestItemsAreUndoneInReverse checks the order of NextUndo: running items, then completed ones, the last completed first.
func TestItemsAreUndoneInReverse(t *testing.T) {
	task := itemsTask(t, 5)
	for _, n := range []int{3, 0, 4} {
		evolved(t, task, &ItemEnded{Step: "pick", Item: n, Output: json.RawMessage(`1`)})
	}
	evolved(t, task, &TaskUndoing{Ending: StateUndone, Error: &Error{Code: "x"}})
	evolved(t, task, &ItemsUndoStarted{Step: "pick", Attempt: 1, Token: "u"})
	if got := task.Steps[0].Items.NextUndo(4, true); !slices.Equal(got, []int{2, 1, 4, 0}) {
		t.Errorf("first %v", got)
	}
	evolved(t, task, &ItemsWithdrawn{Step: "pick", Items: []int{2, 1, 4, 0}})
	if got := task.Steps[0].Items.NextUndo(4, false); !slices.Equal(got, []int{3}) {
		t.Errorf("then %v", got)
	}
}

// BenchmarkItemEnded measures the fold of one item's end, with the clone that a decision makes. It must not grow with the
// number of items.
func BenchmarkItemEnded(b *testing.B) {
	for _, n := range []int{100, 1000, 10_000} {
		b.Run(fmt.Sprint("items=", n), func(b *testing.B) {
			first := itemsTask(b, n)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				evolved(b, first.Clone(), &ItemEnded{Step: "pick", Item: i % n, Output: json.RawMessage(`{"ok":true}`)})
			}
		})
	}
}
