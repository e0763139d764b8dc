package console

import (
	"github.com/waybill-run/waybill/internal/consoleapi"
	"net/http"
)

const openAPIPath = api + "/openapi.json"

// routes are all operations.
var routes = []route{
	getRoute("listTasks", "/tasks", "List tasks, the newest first", (*call).tasks),
	postRoute("submitTask", "/tasks", Submitter, "Submit a task", (*call).submit).
		succeeds(http.StatusCreated, "A scheduler has accepted the submission, now or at an earlier request.").
		succeeds(http.StatusAccepted, "The submission is written. No scheduler has accepted it yet."),
	getRoute("getTask", "/tasks/{id}", "Get a task", (*call).task),
	getRoute("getTimeline", "/tasks/{id}/timeline", "List all events of a task", (*call).timeline),
	getRoute("explainTask", "/tasks/{id}/why", "Explain why a task doesn't advance, since when, and what would unblock it", (*call).why),
	getRoute("exportTask", "/tasks/{id}/export", "Export the events of a task, in the format of `waybill export`", (*call).export),
	getRoute("streamTaskEvents", "/tasks/{id}/events", "Stream the events of a task, from its first one to its end", (*call).taskEvents).
		succeeds(http.StatusOK, "Server-Sent Events. The data of each is a Line. The data of an event `unreadable` is an Unreadable: "+
			"a record of the task that can't be read.").
		succeeds(http.StatusNoContent, "The task has ended, and the client has all of its events.").
		fails(http.StatusConflict),
	getRoute("getTaskState", "/tasks/{id}/states", "Get a task as of one of its events, and what the event changed", (*call).taskState),
	getRoute("checkTaskChain", "/tasks/{id}/chain", "Check that a task's history is unbroken", (*call).chain),
	getRoute("listTaskCommands", "/tasks/{id}/commands", "List which commands to a task are allowed, and why not the others", (*call).commands),
	getRoute("getTaskGraph", "/tasks/{id}/graph", "Get the graph of a task's steps, with a layout to draw it", (*call).taskGraph),
	commandRoute("cancel", "Cancel a task: start no more steps, undo the completed ones, and end it", (*call).cancel),
	commandRoute("resubmit", "Run a held step again, with a failure count of 0", (*call).resubmit),
	commandRoute("undo", "Undo a task's completed steps", (*call).undo),
	commandRoute("release", "Record that a held step was completed or undone by hand", (*call).release),
	postRoute("signalTask", "/tasks/{id}/signals/{name}", signalRole, "Send a signal to a task", (*call).signal).
		succeeds(http.StatusAccepted, "The signal is written. A step takes it, or the task keeps it until one does; if none can, it becomes a dead letter."),
	getRoute("streamEvents", "/events", "Stream the events of all tasks, from now on", (*call).events).
		succeeds(http.StatusOK, "Server-Sent Events. The data of each is a Line."),
	getRoute("listWorkflows", "/workflows", "List the workflow versions, with their tasks by state", (*call).workflows),
	getRoute("getWorkflow", "/workflows/{name}/{version}", "Get a workflow version: its source and the graph of its steps", (*call).definition),
	getRoute("diffWorkflow", "/workflows/{name}/{version}/diff", "Compare two versions of a workflow", (*call).definitionDiff),
	getRoute("listAgents", "/agents", "List the agents", (*call).agents),
	getRoute("listPartitions", "/partitions", "List the partitions, with owner, lag, open tasks and progress of the index", (*call).partitions),
	getRoute("listAlerts", "/alerts", "List alerts, the newest first", (*call).alerts),
	getRoute("getStats", "/stats", "Get what happened to tasks by time: counts, and how long they took", (*call).stats),
	getRoute("listErrorGroups", "/error-groups", "List what holds tasks: held tasks with the same error are a group", (*call).errorGroups),
	getRoute("listDeadletters", "/deadletters", "List dead letters, which are records that could not be used, the newest first", (*call).deadletters),
	postRoute("redriveDeadletters", "/deadletters/redrive", commandRole, "Write the original records of dead letters again", (*call).redrive),
	getRoute("whoAmI", "/whoami", "Get who sends the request, and his role", (*call).whoAmI),
	getRoute("getOpenAPI", "/openapi.json", "Get this document", (*call).describeAPI),
}

// commandRoute declares the route of an operator's command.
func commandRoute[B any](verb, summary string, handle func(*call, *commandRequest[B]) (*consoleapi.CommandResult, error)) route {
	return postRoute(verb+"Task", "/tasks/{id}/"+verb, commandRole, summary, handle).fails(http.StatusGatewayTimeout)
}

func (c *call) describeAPI(*noParameters) (*openAPIDocument, error) { return c.document(), nil }
