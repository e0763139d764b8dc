package console

import "github.com/waybill-run/waybill/internal/consoleapi"

// The types of requests and answers. Package consoleapi has them, because its Client decodes the same types.
type (
	System     = consoleapi.System
	Problem    = consoleapi.Problem
	Incomplete = consoleapi.Incomplete
	Unreadable = consoleapi.Unreadable

	taskView      = consoleapi.Task
	taskList      = consoleapi.TaskPage
	timelineView  = consoleapi.Timeline
	submitResult  = consoleapi.Submitted
	commandResult = consoleapi.CommandResult

	AlertView      = consoleapi.Alert
	alertList      = consoleapi.AlertPage
	DeadletterView = consoleapi.Deadletter
	deadletterList = consoleapi.DeadletterPage

	WorkflowView  = consoleapi.Workflow
	workflowList  = consoleapi.WorkflowList
	AgentView     = consoleapi.Agent
	agentList     = consoleapi.AgentList
	PartitionView = consoleapi.Partition
	partitionList = consoleapi.PartitionList
)

const (
	NoLeader  = consoleapi.NoLeader
	Restoring = consoleapi.Restoring
	Behind    = consoleapi.Behind

	logEnd       = consoleapi.LogEnd
	noTaskAdvice = consoleapi.NoTaskAdvice
	// UnreadableEvent names the event of a stream that tells of a record of the task that is no event.
	UnreadableEvent = consoleapi.UnreadableEvent
)

// TaskPath is the path of a task below the API's own.
func TaskPath(id string) string { return consoleapi.TaskPath(id) }

// SystemOf returns the system that headers name; zero: none.
var SystemOf = consoleapi.SystemOf

// Term writes a term of a filter. It quotes the value.
func Term(name, value string) string { return consoleapi.Term(name, value) }

func printable(s string) string { return consoleapi.Printable(s) }
