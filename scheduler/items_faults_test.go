package scheduler

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/waybill-run/waybill/events"
)

// TestItemsWithTheSameOwnID has a definition that gives two items the same id. The submission of the second is refused, and
// the undo ends.
func TestItemsWithTheSameOwnID(t *testing.T) {
	f := newFamily(t, ownIDs, leg)
	if task := f.submit("o", "pick", `{"items":["a","a","a"]}`); task.State != events.StateUndone || task.Error.Code != string(events.ReasonIDConflict) {
		t.Errorf("%s with %+v: %s", task.State, task.Error, task.Encode())
	}
	if task := f.tasks["a"]; task.Open() {
		t.Errorf("the item is %s", task.State)
	}
	f.verified()
}

const ownIDs = `
workflow: pick
version: 1
complete_within: 1h
on_error: undo
steps:
  pick: {for_each: "${ input.items }", max_parallel: 3, on_item_error: fail, workflow: leg, id: "${ item }", input: {sku: "${ item }"}}
`

const leg = `
workflow: leg
version: 1
complete_within: 1h
steps:
  pick: {agent: stock, operation: pick, complete_within: 10s, undo: {operation: put_back}}
`

// TestLastItemFailsAsItStarts ends the last item that runs during a hold. The one after it fails as it starts, so no reply
// completes the step.
func TestLastItemFailsAsItStarts(t *testing.T) {
	f := newFamily(t, strings.NewReplacer("on_error: undo", "on_error: hold", "max_parallel: 2", "max_parallel: 1", "on_item_error: fail", "on_item_error: collect",
		`sku: "${ item }", n`, `sku: "${ item.sku }", n`, "{complete_within: 10s}", "{complete_within: 10s, retry: {max_attempts: 3, backoff: 1s}}", "  ship: {needs: [pick],", "  other: {agent: stock, operation: other}\n  ship: {needs: [pick],").Replace(pickEach))
	silent := true
	f.agent = func(_, operation string, value json.RawMessage) (events.Outcome, string) {
		switch {
		case operation == "other" && silent:
			return events.Rejected, `{"code":"gone"}`
		case operation == "pick" && silent:
			return "", ""
		}
		return events.Completed, string(value)
	}
	if task := f.submit("o", "pick", `{"items":[{"sku":"a"},{"no":1}]}`); task.State != events.StateError {
		t.Fatalf("it is %s", task.State)
	}
	silent = false
	f.timeOut() // the attempt of item 0
	f.timeOut() // the wait before the next one
	if it := f.tasks["o"].Steps[0].Items; it.Completed != 1 {
		t.Fatalf("%+v", it)
	}
	if task := f.command("o", events.Resubmit); task.State != events.StateProcessed || !strings.Contains(string(task.Output), events.CodeExpressionFailed) {
		t.Errorf("%s with %s: %s", task.State, task.Output, task.Encode())
	}
	f.verified()
}

// TestWithdrawalThatFailsHoldsTheTask undoes a task with several steps that have children. Items can't be withdrawn,
// since the definition is gone, and a step with a child comes after them.
func TestWithdrawalThatFailsHoldsTheTask(t *testing.T) {
	f := newFamily(t, strings.Replace(ownIDs, "  pick:", "  call: {workflow: leg}\n  pick:", 1)+"  also: {workflow: leg}\n", leg)
	f.offline = true
	f.submit("o", "pick", `{"items":["a","b"]}`)
	f.env.Definitions = &CompiledDefinitions{}
	if task := f.command("o", events.Cancel); task.State != events.StateError {
		t.Errorf("it is %s: %+v", task.State, task.Error)
	}
}

// TestLongReasonOfAWithdrawal undoes a task for an error with a long message in characters of several bytes. The child
// takes the withdrawal.
func TestLongReasonOfAWithdrawal(t *testing.T) {
	for shift := range 3 {
		f := newFamily(t, "workflow: o\nversion: 1\ncomplete_within: 1h\non_error: undo\nsteps:\n  child: {workflow: leg}\n  fails: {agent: stock, operation: fails, complete_within: 10s}\n", leg)
		f.agent = func(_, operation string, value json.RawMessage) (events.Outcome, string) {
			if operation == "fails" {
				return events.Rejected, `{"code":"gone","message":"` + strings.Repeat("x", shift) + strings.Repeat("€", 3000) + `"}`
			}
			return events.Completed, string(value)
		}
		if task := f.submit("o", "o", `{}`); task.State != events.StateUndone {
			t.Errorf("shifted by %d bytes: it is %s", shift, task.State)
		}
		f.verified()
	}
}

// TestChildThatCannotBeDecoded gives a child, and an item, an input that nests too deep for a submission. The parent has its
// refusal.
func TestChildThatCannotBeDecoded(t *testing.T) {
	const levels = 62 // and those of the submission and its input
	deep := strings.Repeat("[", levels) + strings.Repeat("]", levels)
	for name, step := range map[string]string{
		"child": `child: {workflow: leg, input: {deep: "${ input }"}}`,
		"item":  `items: {for_each: "${ [1] }", workflow: leg, on_item_error: fail, input: {deep: "${ input }"}}`,
		"id":    `child: {workflow: leg, id: redrive/3/4}`,
	} {
		f := newFamily(t, "workflow: o\nversion: 1\ncomplete_within: 1h\non_error: undo\nsteps:\n  "+step+"\n", leg)
		task := f.submit("o", "o", `{"deep":`+deep+`}`)
		if task == nil || task.State != events.StateUndone || len(f.dead) == 0 {
			t.Errorf("%s: dead letters %q, task %s", name, f.dead, task.Encode())
		}
		f.verified()
	}
}

// TestOutputsTooLarge has a list of errors, and of outputs, that the step can't have. A rejected item stays rejected: it isn't
// undone. The output of a completed one is lost, so the step fails again after a resubmit.
func TestOutputsTooLarge(t *testing.T) {
	items := func(n int) string { return `{"items":[` + strings.Repeat(`"x",`, n-1) + `"x"]}` }
	list := items(300)
	long := strings.Repeat("m", 3000)
	collect := strings.Replace(pickEach, "on_item_error: fail", "on_item_error: collect", 1)
	f := newFamily(t, collect)
	f.agent = func(string, string, json.RawMessage) (events.Outcome, string) {
		return events.Rejected, `{"code":"gone","message":"` + long + `"}`
	}
	if task := f.submit("o", "pick", list); task.State != events.StateUndone || task.Error.Code != events.CodeTooLarge {
		t.Errorf("rejected: %s with %+v", task.State, task.Error)
	}
	f.verified()

	f = newFamily(t, strings.Replace(collect, `sku: "${ item }", n`, `sku: "${ item.sku + input.long }", n`, 1))
	if task := f.submit("o", "pick", items(5000)); task.State != events.StateUndone || task.Error.Code != events.CodeTooLarge || f.facts["waybill.item.ended.v1"] > 100 {
		t.Errorf("not started: %s with %+v: %v", task.State, task.Error, f.facts)
	}
	f.verified()

	f = newFamily(t, strings.Replace(pickEach, "on_error: undo", "on_error: hold", 1))
	f.agent = func(_, operation string, value json.RawMessage) (events.Outcome, string) {
		return events.Completed, `"` + long + `"`
	}
	if task := f.submit("o", "pick", list); task.State != events.StateError || task.Error.Code != events.CodeTooLarge {
		t.Errorf("completed: %s with %+v", task.State, task.Error)
	}
	f.agent = refuse("none", "")
	if task := f.command("o", events.Resubmit); task.State != events.StateError || task.Error.Code != events.CodeTooLarge {
		t.Errorf("after a resubmit: %s with %+v", task.State, task.Error)
	}
	if task := f.command("o", events.UndoTask); task.State != events.StateUndone {
		t.Errorf("undone: %s with %+v", task.State, task.Error)
	}
	f.verified()
}

// TestRejectedUndoStopsNoOtherItem undoes items one at a time. One that is no longer known can't be undone: all others are, then
// the step's undo fails with its error. After a resubmit it's the only one that is withdrawn.
func TestRejectedUndoStopsNoOtherItem(t *testing.T) {
	f := newFamily(t, strings.NewReplacer("max_parallel: 2", "max_parallel: 1").Replace(pickEach))
	forgotten := f.tasks["o/pick/2"]
	f.agent = func(_, operation string, value json.RawMessage) (events.Outcome, string) {
		if operation == "ship" {
			forgotten = f.tasks["o/pick/2"]
			delete(f.tasks, "o/pick/2")
			return events.Rejected, `{"code":"gone"}`
		}
		return events.Completed, string(value)
	}
	task := f.submit("o", "pick", `{"items":["a","b","c","d"]}`)
	if it := task.Steps[0].Items; task.State != events.StateError || it.Undone != 3 || task.Error.Code != events.CodeNoSuchChild || string(task.Error.Details) != `{"item":2}` {
		t.Fatalf("%s with %+v: %+v", task.State, task.Error, it)
	}
	withdrawn := f.facts[(*events.ItemsWithdrawn)(nil).Type()]
	f.tasks["o/pick/2"] = forgotten
	if task = f.command("o", events.Resubmit); task.State != events.StateUndone || task.Steps[0].Items.Undone != 4 {
		t.Errorf("after a resubmit: %s with %+v: %+v", task.State, task.Error, task.Steps[0].Items)
	}
	if n := f.facts[(*events.ItemsWithdrawn)(nil).Type()]; n != withdrawn+1 {
		t.Errorf("withdrawn %d times after %d", n, withdrawn)
	}
	f.verified()
}

// TestUndoOfAReleasedStepWithoutChildren releases a step before it had any child: the list or the id can't be evaluated, or the
// child was refused. There is nothing to undo then.
func TestUndoOfAReleasedStepWithoutChildren(t *testing.T) {
	for name, step := range map[string]string{
		"items":         `pick: {for_each: "${ input.none }", workflow: leg}`,
		"child":         `pick: {workflow: leg, id: "${ input.none }"}`,
		"refused child": `pick: {workflow: none}`,
	} {
		f := newFamily(t, "workflow: o\nversion: 1\ncomplete_within: 1h\non_error: hold\nsteps:\n  "+step+"\n  ship: {needs: [pick], agent: stock, operation: ship, complete_within: 1m}\n", leg)
		if task := f.submit("o", "o", `{}`); task.State != events.StateError {
			t.Errorf("%s: %s", name, task.State)
			continue
		}
		task := f.command("o", events.Release, func(x *events.Control) { x.Step, x.As, x.Output = "pick", events.StepCompleted, json.RawMessage("[]") })
		if task.State != events.StateProcessed {
			t.Errorf("%s: released: %s with %+v", name, task.State, task.Error)
		}
		if task = f.command("o", events.UndoTask, func(x *events.Control) { x.Processed = true }); task.State != events.StateUndone {
			t.Errorf("%s: %s with %+v", name, task.State, task.Error)
		}
		f.verified()
	}
}

// TestReleaseWhileItemsRun tries to release a step as completed while some of its items run: nobody would end them.
func TestReleaseWhileItemsRun(t *testing.T) {
	f := newFamily(t, strings.NewReplacer("on_error: undo", "on_error: hold", `sku: "${ item }", n`, `sku: "${ item.sku }", n`).Replace(pickEach))
	f.agent = func(string, string, json.RawMessage) (events.Outcome, string) { return "", "" }
	if task := f.submit("o", "pick", `{"items":[{"sku":"a"},{"no":1}]}`); task.State != events.StateError || task.Steps[0].Items.Running != 1 {
		t.Fatalf("%s: %+v", task.State, task.Steps[0].Items)
	}
	x := &events.Control{Task: "o", Command: events.Release, Step: "pick", As: events.StepCompleted, Output: json.RawMessage("[]")}
	if why := Refusal(x, f.tasks["o"]); !strings.Contains(why, `1 item of step "pick" still runs`) {
		t.Errorf("refused: %q", why)
	}
}

// TestResubmitWhileAnItemIsHeld sends the commands of a held task to one of whose items or children are held: the refusal says
// what is.
func TestResubmitWhileAnItemIsHeld(t *testing.T) {
	f := newFamily(t, strings.NewReplacer("on_error: undo", "on_error: hold").Replace(pickEach))
	f.agent = refuse("pick", "bad")
	if task := f.submit("o", "pick", `{"items":["a","bad"]}`); task.State != events.StateProcessing || task.Steps[0].Items.Held != 1 {
		t.Fatalf("%s: %+v", task.State, task.Steps[0].Items)
	}
	for command, want := range map[events.Command]string{
		events.Resubmit: "resubmit: task \"o\" is processing; 1 item of it is held, not the task itself: `waybill resubmit --filter 'parent:o state:held'` resubmits",
		events.Release:  "release: task \"o\" is processing; 1 item of it is held", events.UndoTask: "",
	} {
		if why := Refusal(&events.Control{Task: "o", Command: command}, f.tasks["o"]); !strings.HasPrefix(why, want) || want == "" && why != "" {
			t.Errorf("%s is refused: %q, want %q", command, why, want)
		}
	}
	f = newFamily(t, "workflow: o\nversion: 1\ncomplete_within: 1h\non_error: hold\nsteps: {one: {workflow: pick, input: {items: [bad]}}}\n", strings.NewReplacer("on_error: undo", "on_error: hold").Replace(pickEach))
	f.agent = refuse("ship", "")
	f.submit("o", "o", `{}`)
	if why := Refusal(&events.Control{Task: "o", Command: events.Resubmit}, f.tasks["o"]); !strings.HasSuffix(why, `; its child is held, not the task itself: send the command to task "o/one"`) {
		t.Errorf("refused: %q", why)
	}
}

// TestMigrationOfItemsWithOwnIDs migrates a task whose items have ids that the definition gives them. It is refused once they
// have begun: the other version would withdraw other tasks.
func TestMigrationOfItemsWithOwnIDs(t *testing.T) {
	second := strings.NewReplacer("version: 1", "version: 2", `id: "${ item }"`, `id: "x-${ item }"`).Replace(ownIDs)
	f := newFamily(t, ownIDs, second, leg)
	f.offline = true
	f.input(&events.Submission{ID: "o", Workflow: "pick", Version: 1, Input: json.RawMessage(`{"items":["a"]}`)})
	f.run()
	d := f.input(&events.Control{Task: "o", Command: events.Migrate, Version: 2, By: events.By{RequestID: "m"}})
	if len(d.Events) > 0 || f.tasks["o"].Version != 1 {
		t.Errorf("migrated: %v", d.Events)
	}
}
