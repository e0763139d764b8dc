package replay

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/waybill-run/waybill/events"
)

const (
	heldItemsNamed   = 3 // tasks of held items that an explanation names
	itemErrorsListed = 3 // different errors of items
)

// ItemIDs returns the id of the task of a step's item; empty: it isn't known, or the item never started.
type ItemIDs func(step, item int) string

// ItemsWhy says where the items of a step are that doesn't advance.
type ItemsWhy struct {
	Count     int          `json:"count" jsonschema:"The number of items."`
	Waiting   int          `json:"waiting" jsonschema:"Items that haven't started. In an undo: items that are still to be undone."`
	Running   int          `json:"running" jsonschema:"Items whose task runs. In an undo: items whose task is being undone."`
	Held      int          `json:"held" jsonschema:"Those of the running items whose task is held for an operator."`
	Completed int          `json:"completed" jsonschema:"Items that have completed. In an undo: items whose task was undone."`
	Failed    int          `json:"failed" jsonschema:"Items that ended in error."`
	Errors    []ItemsError `json:"errors,omitempty" jsonschema:"The errors of failed and held items, the most frequent first, at most 3. Absent: none."`
}

// ItemsError is an error that items of a step have in common.
type ItemsError struct {
	Code    string `json:"code" jsonschema:"The code of the error."`
	Count   int    `json:"count" jsonschema:"The number of items with this code."`
	Item    int    `json:"item" jsonschema:"The first of these items."`
	Task    string `json:"task,omitempty" jsonschema:"The task of that item. Absent: it never started, or its id isn't known."`
	Message string `json:"message,omitempty" jsonschema:"The message of that item's error."`
}

// waitingItems explains a step that waits for the ends of its items, or of their undos. nameItems adds the ids.
func (s *StepWhy) waitingItems(t *events.Task, _ *events.Run, _ map[string]AgentState, _ time.Time) {
	s.Reason = ReasonWaitingItems
}

// nameItems explains a step that waits for items.
func (s *StepWhy) nameItems(t *events.Task, ids ItemIDs) {
	i, _ := t.Plan.Step(s.Step)
	it := t.Steps[i].Items
	w := &ItemsWhy{Count: it.Count, Waiting: it.Count - it.Ended() - it.Running - it.Undoing - it.Undone, Running: it.Running, Held: it.Held, Completed: it.Completed, Failed: it.Failed}
	s.Items = w
	s.Moves = fmt.Sprintf("the ends of its items: %d of %d have ended, %d of them failed, and %d run", it.Ended(), it.Count, it.Failed, it.Running)
	if s.Kind == events.Undo {
		w.Waiting, w.Running, w.Completed = it.ToUndo(), it.Undoing, it.Undone
		s.Moves = fmt.Sprintf("the undos of its items: %d are undone, %d are being undone, and %d follow", it.Undone, it.Undoing, it.ToUndo())
	}
	w.Errors = itemErrors(t, i, ids)
	if it.Held == 0 {
		return
	}
	var held []string
	for n := 0; n < it.Count && len(held) < min(it.Held, heldItemsNamed); n++ {
		x := it.Item(n)
		if x.Error == nil || x.State != events.StepRunning && x.State != events.StepUndoing {
			continue
		}
		if held = append(held, cmp.Or(ids(i, n), fmt.Sprintf("that of item %d", n))); s.err == nil {
			s.Reason, s.Child, s.err = ReasonChildHeld, ids(i, n), x.Error
		}
	}
	more := ""
	if n := it.Held - len(held); n > 0 {
		more = fmt.Sprintf(" and %d more", n)
	}
	s.Moves = fmt.Sprintf("an operator, since the tasks of %d of %d items are held: %s%s", it.Held, it.Count, strings.Join(held, ", "), more)
}

// itemErrors groups the errors of a step's items by their codes.
func itemErrors(t *events.Task, step int, ids ItemIDs) (list []ItemsError) {
	it, at := t.Steps[step].Items, map[string]int{}
	for n := range it.Next {
		x := it.Item(n)
		if x.Error == nil {
			continue
		}
		i, known := at[x.Error.Code]
		if !known {
			i, at[x.Error.Code] = len(list), len(list)
			list = append(list, ItemsError{Code: x.Error.Code, Item: n, Message: x.Error.Message})
		}
		list[i].Count++
	}
	slices.SortStableFunc(list, func(a, b ItemsError) int { return cmp.Compare(b.Count, a.Count) })
	list = list[:min(len(list), itemErrorsListed)]
	for i := range list {
		list[i].Task = ids(step, list[i].Item)
	}
	return list
}

// failedItem returns the item whose error is that of its step; -1: none is known.
func failedItem(it *events.Items, err *events.Error) int {
	var details struct {
		Item *int `json:"item"`
	}
	if json.Unmarshal(err.Details, &details) == nil && details.Item != nil && *details.Item >= 0 && *details.Item < it.Count {
		return *details.Item
	}
	for n := range it.Next {
		if it.Item(n).State == events.StepError {
			return n
		}
	}
	return -1
}
