package events

import (
	"encoding/json"
	"slices"

	"github.com/waybill-run/waybill/internal/jsonscan"
)

// ItemsView says where the items of a step are, in a StepView.
type ItemsView struct {
	Count     int `json:"count" jsonschema:"The number of items."`
	Running   int `json:"running" jsonschema:"Items whose task runs."`
	Completed int `json:"completed" jsonschema:"Items that have completed, and aren't being undone."`
	Failed    int `json:"failed" jsonschema:"Items that ended in error."`
	Undoing   int `json:"undoing" jsonschema:"Items whose task is being undone, because the step is."`
	Undone    int `json:"undone" jsonschema:"Items whose task was undone, because the step was."`
	Held      int `json:"held" jsonschema:"Running or undoing items whose task is held for an operator."`
}

func (it *Items) view() *ItemsView {
	if it == nil {
		return nil
	}
	return &ItemsView{it.Count, it.Running, it.Completed, it.Failed, it.Undoing, it.Undone, it.Held}
}

// ItemView is an item of a step.
type ItemView struct {
	Index   int       `json:"index" jsonschema:"The place of the item in the list, from 0."`
	State   StepState `json:"state" jsonschema:"pending, running, completed, error, undoing or undone."`
	Task    string    `json:"task,omitempty" jsonschema:"The item's task. Absent: it hasn't started; or the definition gives the tasks ids of its own, and isn't known any more."`
	Attempt int       `json:"attempt" jsonschema:"The attempt of the step that started the item. 0: none has."`
	Error   *Error    `json:"error" jsonschema:"Why the item failed, or why its task is held. null: neither."`
}

// ItemViews returns up to limit items of a step from an index on, in their order. It returns those in a state, or all if
// state is empty; held ones have the state "held". next is the index to go on from; -1: there are no more. ids returns the
// id of an item's task (ItemTaskIDOf, or what the definition says).
func (t *Task) ItemViews(step, from, limit int, state string, ids func(step, item int) string) (list []ItemView, next int) {
	it, list := t.Steps[step].Items, []ItemView{}
	if it == nil {
		return list, -1
	}
	var outputs []json.RawMessage // of a completed step: it keeps the errors of items there
	for i := max(0, from); i < it.Count; i++ {
		x := it.Item(i)
		if state != "" && string(x.State) != state && (state != "held" || !x.held()) {
			continue
		}
		if len(list) == limit {
			return list, i
		}
		v := ItemView{Index: i, State: x.State, Attempt: x.Attempt, Error: x.Error}
		if x.State == StepError && x.Error == nil {
			if outputs == nil {
				outputs = t.Steps[step].itemOutputs()
			}
			v.Error = errorInOutput(outputs[i])
		}
		if x.Attempt > 0 {
			v.Task = ids(step, i)
		}
		list = append(list, v)
	}
	return list, -1
}

// itemOutputs returns the output of each item of a completed step, nil where there is none.
func (s *Step) itemOutputs() []json.RawMessage {
	list := make([]json.RawMessage, 0, s.Items.Count)
	_, _ = jsonscan.EachElement(s.Output, jsonscan.SkipSpace(s.Output, 0), 0, func(el []byte) error { // an operator may have released the step with any output
		if len(list) < s.Items.Count {
			list = append(list, el)
		}
		return nil
	})
	return append(list, make([]json.RawMessage, s.Items.Count-len(list))...)
}

// errorInOutput returns the error that an output has in place of an item's output; nil: none.
func errorInOutput(output json.RawMessage) *Error {
	var x struct {
		Error *Error `json:"error"`
	}
	if json.Unmarshal(output, &x) != nil {
		return nil
	}
	return x.Error
}

// IsOfItem reports whether a fact about items (VerbItem) is about an item.
func IsOfItem(f Fact, item int) bool {
	about, is := f.(interface{ about(item int) bool })
	return is && about.about(item)
}

func (f *ItemsStarted) about(item int) bool   { return f.From <= item && item < f.To }
func (f *ItemsWithdrawn) about(item int) bool { return slices.Contains(f.Items, item) }
func (f *ItemEnded) about(item int) bool      { return f.Item == item }
func (f *ItemHeld) about(item int) bool       { return f.Item == item }
func (f *ItemResumed) about(item int) bool    { return f.Item == item }
func (f *ItemUndone) about(item int) bool     { return f.Item == item }
