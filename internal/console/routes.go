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
		succeeds(http.StatusAccepted, "The submission is written. No scheduler has accepted it yet, or the id is one that a workflow with `dedupe_for` may have forgotten, and no second task with it has appeared within 5 s."),
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
	getRoute("listItems", "/tasks/{id}/steps/{step}/items", "List the items of a step with for_each, in their order", (*call).items),
	getRoute("getTaskTree", "/tasks/{id}/tree", "Get a task with its children, their children, and so on", (*call).tree),
	getRoute("getTaskGraph", "/tasks/{id}/graph", "Get the graph of a task's steps, with a layout to draw it", (*call).taskGraph),
	forkRoute(),
	commandRoute("cancel", "Cancel a task: start no more steps, undo the completed ones, and end it", (*call).cancel),
	commandRoute("resubmit", "Run a held step again, with a failure count of 0", (*call).resubmit),
	commandRoute("undo", "Undo a task's completed steps", (*call).undo),
	commandRoute("release", "Record that a held step was completed or undone by hand", (*call).release),
	commandRoute("migrate", "Move a task to another version of its workflow, if its history fits it", (*call).migrate),
	postRoute("signalTask", "/tasks/{id}/signals/{name}", signalRole, "Send a signal to a task", (*call).signal).
		succeeds(http.StatusAccepted, "The signal is written. A step takes it, or the task keeps it until one does; if none can, it becomes a dead letter."),
	getRoute("streamEvents", "/events", "Stream the events of all tasks, from now on", (*call).events).
		succeeds(http.StatusOK, "Server-Sent Events. The data of each is a Line."),
	getRoute("streamChanges", "/changes", "Stream what changed, so that clients request lists again only then", (*call).changes).
		succeeds(http.StatusOK, "Server-Sent Events. The data of each is a Changes. An event `changes` comes at most every second, an event `beat` says that nothing changed for 5 s. "+
			"Ask for your lists once the answer has begun: what changed before isn't reported."),
	getRoute("listWorkflows", "/workflows", "List the workflow versions, with their tasks by state", (*call).workflows),
	postRoute("applyWorkflow", "/workflows", commandRole, "Apply a definition: write it to the log, and create the request topics of its agents", (*call).apply).
		succeeds(http.StatusOK, "The version existed with this body.").
		succeeds(http.StatusCreated, "The definition is applied. New tasks get the newest version of their workflow."),
	postRoute("validateWorkflow", "/workflows/validate", Viewer, "Check a definition without applying it, and compare it with the newest version", (*call).validate),
	postRoute("dryRunWorkflow", "/workflows/dry-run", Viewer, "Simulate recent tasks under a definition, and say which would take another course; nothing is executed", (*call).dryRun),
	getRoute("getWorkflow", "/workflows/{name}/{version}", "Get a workflow version: its source and the graph of its steps", (*call).definition),
	getRoute("diffWorkflow", "/workflows/{name}/{version}/diff", "Compare two versions of a workflow", (*call).definitionDiff),
	getRoute("getWorkflowSteps", "/workflows/{name}/{version}/steps", "Get what happens at the steps of a workflow version: where tasks are, attempts, results and durations", (*call).steps),
	getRoute("listPredictions", "/predictions", "List tasks that must end soon, the soonest first, and estimate whether they will miss their deadline", (*call).predictions),
	getRoute("listAgents", "/agents", "List the agents", (*call).agents),
	getRoute("listPartitions", "/partitions", "List the partitions, with owner, lag, open tasks and progress of the index", (*call).partitions),
	getRoute("listLag", "/lag", "List the lag of the schedulers and of each agent by time, as this console has sampled it in the last hour", (*call).lag),
	getRoute("listAlerts", "/alerts", "List alerts, the newest first", (*call).alerts),
	getRoute("getSystemAsOf", "/as-of", "Get the whole system at a past instant: tasks by state, and those that were open", (*call).systemAsOf).
		fails(http.StatusUnprocessableEntity),
	getRoute("getStats", "/stats", "Get what happened to tasks, or to the requests of agents, by time: counts, and how long they took", (*call).stats),
	getRoute("listErrorGroups", "/error-groups", "List the errors of held tasks: held tasks with the same error are a group", (*call).errorGroups),
	getRoute("listDeadletters", "/deadletters", "List dead letters, which are records that could not be processed, the newest first", (*call).deadletters),
	postRoute("redriveDeadletters", "/deadletters/redrive", commandRole, "Write the original records of dead letters again", (*call).redrive),
	getRoute("listBatches", "/batches", "List batches, the newest first", (*call).batches),
	postRoute("createBatch", "/batches", commandRole, "Create a batch, which sends one command to many tasks, or preview it", (*call).createBatch).
		succeeds(http.StatusOK, "A preview, or the existing batch with this id.").
		succeeds(http.StatusCreated, "The batch is created. It continues if this console ends."),
	getRoute("getBatch", "/batches/{id}", "Get a batch", (*call).batch),
	getRoute("listBatchResults", "/batches/{id}/results", "List the result of each task of a batch", (*call).batchResults),
	postRoute("stopBatch", "/batches/{id}/stop", commandRole, "Stop a batch: it sends no more commands", (*call).stopBatch),
	getRoute("listSchedules", "/schedules", "List schedules, with their next and last instants", (*call).schedules),
	postRoute("applySchedule", "/schedules", commandRole, "Write a schedule to the log", (*call).applySchedule),
	getRoute("getSchedule", "/schedules/{id}", "Get a schedule with its last instants", (*call).schedule),
	postRoute("pauseSchedule", "/schedules/{id}/pause", commandRole, "Pause a schedule: its instants start no tasks until it is resumed", changeSchedule(Schedules.Pause)),
	postRoute("resumeSchedule", "/schedules/{id}/resume", commandRole, "Resume a schedule: instants count from now on", changeSchedule(Schedules.Resume)),
	postRoute("deleteSchedule", "/schedules/{id}/delete", commandRole, "Delete a schedule: its tasks continue", changeSchedule(Schedules.Delete)),
	postRoute("triggerSchedule", "/schedules/{id}/trigger", commandRole, "Start a task of a schedule now", (*call).triggerSchedule),
	postRoute("backfillSchedule", "/schedules/{id}/backfill", commandRole, "Start the tasks of past instants of a schedule", (*call).backfillSchedule),
	getRoute("listIntakes", "/intakes", "List intakes, with their states, positions, lags and dead letters", (*call).intakes),
	postRoute("applyIntake", "/intakes", commandRole, "Write an intake to the log", (*call).applyIntake),
	getRoute("getIntake", "/intakes/{id}", "Get an intake", (*call).intake),
	postRoute("pauseIntake", "/intakes/{id}/pause", commandRole, "Pause an intake: it consumes nothing until it is resumed", changeIntake(Intakes.Pause)),
	postRoute("resumeIntake", "/intakes/{id}/resume", commandRole, "Resume an intake: it continues after the last record that it consumed", changeIntake(Intakes.Resume)),
	postRoute("deleteIntake", "/intakes/{id}/delete", commandRole, "Delete an intake: its tasks continue", changeIntake(Intakes.Delete)),
	getRoute("whoAmI", "/whoami", "Get the caller and its role", (*call).whoAmI),
	getRoute("getOpenAPI", "/openapi.json", "Get this document", (*call).describeAPI),
}

// commandRoute declares the route of an operator's command.
func commandRoute[B any](verb, summary string, handle func(*call, *commandRequest[B]) (*consoleapi.CommandResult, error)) route {
	return postRoute(verb+"Task", "/tasks/{id}/"+verb, commandRole, summary, handle).fails(http.StatusGatewayTimeout)
}

func (c *call) describeAPI(*noParameters) (*openAPIDocument, error) { return c.document(), nil }
