package console

import (
	"net/http"
)

const openAPIPath = api + "/openapi.json"

// routes are all operations.
var routes = []route{
	getRoute("/tasks", "List tasks, the newest first", (*call).tasks),
	postRoute("/tasks", Submitter, "Submit a task", (*call).submit).
		succeeds(http.StatusCreated, "A scheduler has accepted the submission, now or at an earlier request.").
		succeeds(http.StatusAccepted, "The submission is written. No scheduler has accepted it yet."),
	getRoute("/tasks/{id}", "Get a task", (*call).task),
	getRoute("/tasks/{id}/timeline", "List all events of a task", (*call).timeline),
	getRoute("/tasks/{id}/why", "Explain why a task doesn't advance, since when, and what would unblock it", (*call).why),
	getRoute("/tasks/{id}/export", "Export the events of a task, in the format of `waybill export`", (*call).export),
	getRoute("/tasks/{id}/events", "Stream the events of a task, from its first one to its end", (*call).taskEvents).
		succeeds(http.StatusOK, "Server-Sent Events. The data of each is a Line. The data of an event `unreadable` is an Unreadable: "+
			"a record of the task that can't be read.").
		succeeds(http.StatusNoContent, "The task has ended, and the client has all of its events.").
		fails(http.StatusConflict),
	commandRoute("cancel", "Cancel a task: start no more steps, undo the completed ones, and end it", (*call).cancel),
	commandRoute("resubmit", "Run a held step again, with a failure count of 0", (*call).resubmit),
	commandRoute("undo", "Undo a task's completed steps", (*call).undo),
	commandRoute("release", "Record that a held step was completed or undone by hand", (*call).release),
	getRoute("/events", "Stream the events of all tasks, from now on", (*call).events).
		succeeds(http.StatusOK, "Server-Sent Events. The data of each is a Line."),
	getRoute("/workflows", "List the workflow versions, with their tasks by state", (*call).workflows),
	getRoute("/agents", "List the agents", (*call).agents),
	getRoute("/partitions", "List the partitions, with owner, lag, open tasks and progress of the index", (*call).partitions),
	getRoute("/alerts", "List alerts, the newest first", (*call).alerts),
	getRoute("/deadletters", "List dead letters, which are records that could not be used, the newest first", (*call).deadletters),
	getRoute("/openapi.json", "Get this document", (*call).describeAPI),
}

// commandRoute declares the route of an operator's command.
func commandRoute[B any](verb, summary string, handle func(*call, *commandRequest[B]) (*commandResult, error)) route {
	return postRoute("/tasks/{id}/"+verb, Operator, summary, handle).fails(http.StatusGatewayTimeout)
}

func (c *call) describeAPI(*noParameters) (*openAPIDocument, error) { return c.document(), nil }
