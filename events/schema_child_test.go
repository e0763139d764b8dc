package events

// The descriptions of child tasks.
func init() {
	texts := func(typ, text string, required ...string) {
		schemaTexts[typ] = struct {
			text     string
			required []string
		}{text, required}
	}
	texts("waybill.child.started.v1", "A step runs a child task. Its submission is written in the same transaction. Only the first attempt has the input.", "step", "attempt", "child", "workflow", "token_hash")
	texts("waybill.child.completed.v1", "The child was processed.", "step", "attempt")
	texts("waybill.child.rejected.v1", "The child ended without a result: it was undone or cancelled, or its submission was refused. It has left no effect, unless unknown is set.", "step", "attempt")
	texts("waybill.child.held.v1", "The child is held. The step continues.", "step", "attempt", "error")
	texts("waybill.child.resumed.v1", "The child is no longer held.", "step", "attempt")
	texts("waybill.withdrawal.started.v1", "The undo of a step withdraws its child: the child is cancelled, or undone if it was processed. The withdrawal is written in the same transaction.", "step", "attempt", "child", "token_hash")
	texts("waybill.withdrawal.completed.v1", "The child has ended, and what it did is undone.", "step", "attempt")
	texts("waybill.withdrawal.rejected.v1", "The child can't be undone.", "step", "attempt")
	texts("waybill.withdrawal.held.v1", "The child is held during its undo. The withdrawal continues.", "step", "attempt", "error")
	texts("waybill.withdrawal.resumed.v1", "The child is no longer held.", "step", "attempt")
	texts("waybill.task.withdrawn.v1", "The parent of a child withdrew it, since the parent is being undone. The parent receives the end of the child's undo.", "undo_attempt", "token")
	texts(TypeWithdrawal, "A withdrawal: the scheduler of a parent asks for the end of a child, on the topic tasks. Headers name the parent.", "task", "started")
	for name, d := range map[string]fieldSchema{
		"child":               {typ: "string", text: "The id of the child task."},
		"unknown":             {typ: "boolean", text: "The child was processed, and its output can't be stored. It is withdrawn when the task is undone."},
		"undo_attempt":        {typ: "integer", text: "The attempt of the undo of the parent's step."},
		"token":               {typ: "string", text: "The token of the parent's attempt. The parent accepts only replies with it."},
		"started":             {typ: "string", text: "The token_hash of the attempt that started the child. It proves who withdraws it."},
		"completed":           {typ: "boolean", text: "The child had completed, so it must be known."},
		"parent":              {typ: "object", text: "The step that the task is a child of. Absent: the task is no child."},
		"depth":               {typ: "integer", text: "The number of parents above the task, at most 8."},
		"item":                {typ: "integer", text: "The index of the item that the child is for. Absent: it is for no item."},
		"known_until":         {typ: "string", pattern: instantPattern, text: "From when on the id of the child may be forgotten at the earliest, since its parent may be undone until then. Absent: never."},
		"plan.steps.workflow": {typ: "string", text: "The workflow of the child that the step runs. Absent: its kind is another one."},
		"plan.steps.version":  {typ: "integer", text: "The version of the child's workflow. Absent: the newest that isn't deprecated when the child starts."},
		"headers.waybill_item": {typ: "string", pattern: `^[0-9]+$`,
			text: "Of a child: the index of the item that it is for."},
	} {
		described[name] = d
	}
	kind := described["plan.steps.kind"]
	kind.enum = []string{"signal", "wait", "workflow"}
	described["plan.steps.kind"] = kind
	outcome := described["headers.ce_outcome"]
	outcome.enum = append(outcome.enum, "held", "resumed")
	outcome.text += " held, resumed: a child task is held, or no longer held; agents don't use them."
	described["headers.ce_outcome"] = outcome
}
