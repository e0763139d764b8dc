package events

func init() {
	described["waybill.task.undoing.v1/processed"] = fieldSchema{typ: "object",
		text: "The whole state of a processed task that is undone, as of the event before: what Waybill stores of a task. Absent if the task had not ended."}
	described["processed"] = fieldSchema{typ: "boolean", text: "The command may undo a processed task."}
}
