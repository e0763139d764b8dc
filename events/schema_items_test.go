package events

// The descriptions of steps that run for each item of a list.
func init() {
	texts := func(typ, text string, required ...string) {
		schemaTexts[typ] = struct {
			text     string
			required []string
		}{text, required}
	}
	texts("waybill.items.began.v1", "A step runs for each item of a list. Only the first attempt has the list. A later attempt runs the failed items again.", "step", "attempt", "token")
	texts("waybill.items.started.v1", "The tasks of some items were submitted, in the same transaction.", "step", "attempt", "from", "to")
	texts("waybill.item.ended.v1", "An item has its result: the output of its task, or an error.", "step", "item")
	texts("waybill.item.held.v1", "The task of an item is held. The step continues.", "step", "item", "error")
	texts("waybill.item.resumed.v1", "The task of an item is no longer held.", "step", "item")
	texts("waybill.items.completed.v1", "All items have ended. The output of the step is the list of their outputs, in the order of the items.", "step", "attempt")
	texts("waybill.items.undo.started.v1", "The undo of the items begins: those that run are withdrawn, then completed ones are undone, the last completed first.", "step", "attempt", "token")
	texts("waybill.items.withdrawn.v1", "The tasks of some items were withdrawn, in this order and in the same transaction.", "step", "items")
	texts("waybill.item.undone.v1", "The task of an item was undone.", "step", "item")
	texts("waybill.item.undo.held.v1", "The task of an item is held during its undo, or can't be undone at all.", "step", "item", "error")
	texts("waybill.item.undo.resumed.v1", "The task of an item is no longer held during its undo.", "step", "item")
	texts("waybill.items.undone.v1", "The undo of the items has ended.", "step", "attempt")
	for name, d := range map[string]fieldSchema{
		"count":                         {typ: "integer", text: "The number of items."},
		"items":                         {text: "The list, or the indexes of the withdrawn items."},
		"items_at":                      {typ: "string", text: "The place of the list in the task's input, as a JSON Pointer in a fragment. Absent: items has the list."},
		"from":                          {typ: "integer", text: "The first item, from 0."},
		"to":                            {typ: "integer", text: "The item after the last one."},
		"keeps_completed":               {typ: "boolean", text: "Completed items stay as they are."},
		"rejected":                      {typ: "boolean", text: "The task of the item can't be undone. The other items are undone, then the step's undo fails."},
		"step_alone":                    {typ: "boolean", text: "The task runs one step of its workflow, for an item."},
		"plan.steps.items":              {typ: "object", text: "How the step runs for each item of a list. Absent: it runs once."},
		"plan.steps.items.max_parallel": {typ: "integer", text: "The number of items that run at the same time."},
		"plan.steps.items.collects":     {typ: "boolean", text: "The error of an item becomes its output."},
		"plan.steps.items.undoes":       {typ: "boolean", text: "Completed items are undone with the task."},
		"plan.steps.items.own_ids":      {typ: "boolean", text: "The definition gives the items' tasks their ids."},
		"headers.waybill_step_alone":    {typ: "string", text: "Of the task of an item: it runs one step of its parent's workflow."},
	} {
		described[name] = d
	}
	kind := described["plan.steps.kind"]
	kind.enum = append([]string{"items"}, kind.enum...)
	described["plan.steps.kind"] = kind
}
