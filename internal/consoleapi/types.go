package consoleapi

import (
	"encoding/json"
	"net/url"
	"strings"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/redrive"
)

// Prefix is the path of the API.
const Prefix = "/api/v1"

// LogEnd, as min_offset, is the end of the log at the time of the request.
const LogEnd = "end"

// LastEventID is the header of a request for a stream that continues after an event.
const LastEventID = "Last-Event-ID"

// UnreadableEvent is the type of a stream's event for a record that is no event.
const UnreadableEvent = "unreadable"

// TaskPath is the path of a task below Prefix. PathEscape keeps dots, so the ids "." and ".." would be relative
// path segments.
func TaskPath(id string) string {
	name := url.PathEscape(id)
	if id == "." || id == ".." {
		name = strings.ReplaceAll(id, ".", "%2E")
	}
	return "/tasks/" + name
}

// Task is a task. If its history isn't readable to the end, it is the task as of the last readable event.
type Task struct {
	events.TaskView
	// Prediction and ErrorGroup are of the task as it is now.
	Prediction *Prediction `json:"prediction,omitempty" jsonschema:"An estimate of when the task will be processed. Absent: it isn't being processed, a child or an item is held, or no duration of its remaining steps is known."`
	ErrorGroup string      `json:"error_group,omitempty" jsonschema:"The id of the error group of a held task. Absent: the task isn't held."`
	Unreadable *Unreadable `json:"unreadable,omitempty" jsonschema:"The first event that can't be read. The task is shown as of the event before it. Absent: all events can be read."`
}

// Unreadable names a record that can't be used, such as one that is no event, and says why.
type Unreadable struct {
	Seq       uint64 `json:"seq,omitempty" jsonschema:"The number of the event, by the record's headers. Absent if they have none."`
	At        string `json:"at,omitempty" jsonschema:"The timestamp of the record. Absent if the record is lost."`
	Partition int32  `json:"partition" jsonschema:"The partition of waybill.events."`
	Offset    string `json:"offset" jsonschema:"The offset of the record, as a string."`
	Error     string `json:"error" jsonschema:"Why the record can't be read."`
}

// TaskPage is a page of tasks.
type TaskPage struct {
	Tasks         []events.SummaryView `json:"tasks" jsonschema:"The tasks, the newest first."`
	NextPageToken string               `json:"next_page_token" jsonschema:"The page_token of the next page. Empty: this is the last one."`
	AsOf          []events.AsOf        `json:"as_of" jsonschema:"The part of each partition that the answer reflects."`
	Incomplete    []Incomplete         `json:"incomplete" jsonschema:"What the answer lacks. Empty: nothing."`
}

// Timeline is the timeline of a task.
type Timeline struct {
	Task       string        `json:"task" jsonschema:"The task's id."`
	Lines      []events.Line `json:"lines" jsonschema:"The events."`
	Unreadable []Unreadable  `json:"unreadable" jsonschema:"The records of the task that can't be read."`
	AsOf       events.AsOf   `json:"as_of" jsonschema:"The part of the log that the answer reflects."`
}

// Submitted is the answer to a submission.
type Submitted struct {
	ID         string           `json:"id" jsonschema:"The task's id."`
	State      events.TaskState `json:"state,omitempty" jsonschema:"The state of the task. Absent: no scheduler has accepted the submission yet."`
	AsOf       *events.AsOf     `json:"as_of" jsonschema:"A min_offset with this offset waits until an answer reflects the task. null: no scheduler has accepted the submission yet."`
	Deprecated string           `json:"deprecated,omitempty" jsonschema:"Why the version that the submission names is deprecated. Absent: it isn't."`
}

// CommandBody has the fields of all commands.
type CommandBody struct {
	Reason    string `json:"reason" jsonschema:"Why. It is written to the log."`
	RequestID string `json:"request_id,omitempty" jsonschema:"A repeated command with the same id has no second effect and gets the same answer. Absent: the console makes an id."`
}

// Bodies of operators' commands.
type (
	MigrateCommand struct {
		CommandBody
		Version int  `json:"version" jsonschema:"The version of the workflow to migrate to."`
		DryRun  bool `json:"dry_run,omitempty" jsonschema:"true: the scheduler only answers whether it would migrate the task."`
	}
	CancelCommand struct {
		CommandBody
		Keep bool `json:"keep,omitempty" jsonschema:"true: don't undo the completed steps."`
	}
	ResubmitCommand struct {
		CommandBody
		Step string `json:"step,omitempty" jsonschema:"Resubmit only if this step is held."`
	}
	UndoCommand struct {
		CommandBody
		Processed bool `json:"processed,omitempty" jsonschema:"true: undo the task even if it has ended as processed. It needs a token of the role undo_processed."`
	}
	ReleaseCommand struct {
		CommandBody
		Step   string           `json:"step" jsonschema:"The held step."`
		As     events.StepState `json:"as" enum:"completed,undone" jsonschema:"What the step's state becomes."`
		Output json.RawMessage  `json:"output,omitempty" jsonschema:"The step's output, which later steps read: any JSON. With as completed it is required, and null if the step has none."`
	}
)

// SignalBody is the body of a signal.
type SignalBody struct {
	Data json.RawMessage `json:"data,omitempty" jsonschema:"The data of the signal, which later steps read: any JSON. Absent: null."`
	ID   string          `json:"id,omitempty" jsonschema:"A repeated signal with the same task, name and id has no effect. Absent: the console makes an id."`
	By   string          `json:"by,omitempty" jsonschema:"Who sends the signal. It is written to the log as by_claimed. A console with tokens also writes the name of the token, as by."`
}

// SignalResult is the answer to a signal.
type SignalResult struct {
	Task string `json:"task" jsonschema:"The task's id."`
	Name string `json:"name" jsonschema:"The name of the signal."`
	ID   string `json:"id" jsonschema:"The id of the signal."`
}

// CommandResult is the answer to an operator's command.
type CommandResult struct {
	Task      string           `json:"task" jsonschema:"The task's id."`
	Command   events.Command   `json:"command" jsonschema:"The command."`
	RequestID string           `json:"request_id" jsonschema:"The id of the command."`
	Seq       uint64           `json:"seq" jsonschema:"The seq of the event that the command led to."`
	State     events.TaskState `json:"state" jsonschema:"The state of the task after that event."`
	AsOf      *events.AsOf     `json:"as_of" jsonschema:"A min_offset with this offset waits until an answer reflects the event. null: the index hasn't applied the event yet."`
}

// Alert is an alert. With a Seq it belongs to an event of its task, and Partition and Offset are those of the
// event; otherwise they are those of the record in the topic of alerts.
type Alert struct {
	At        *string `json:"at" format:"date-time" jsonschema:"When the alert was raised."`
	Task      string  `json:"task,omitempty" jsonschema:"The held task. Absent: the alert is not about a task."`
	Seq       uint64  `json:"seq,omitempty" jsonschema:"The seq of the event that the alert belongs to. Absent: it belongs to no event, and its end isn't known."`
	Code      string  `json:"code" jsonschema:"The code of the alert."`
	Step      string  `json:"step,omitempty" jsonschema:"The held step. Absent: none."`
	Message   string  `json:"message" jsonschema:"What is wrong, for people."`
	Partition int32   `json:"partition" jsonschema:"The partition of the event. Without seq, that of the record in waybill.alerts."`
	Offset    string  `json:"offset" jsonschema:"The offset of the event, as a string. Without seq, that of the record in waybill.alerts."`
	EndedAt   *string `json:"ended_at,omitempty" format:"date-time" jsonschema:"When the hold ended. Absent: the task is still held, or the end isn't known."`
	EndedBy   string  `json:"ended_by,omitempty" jsonschema:"The type of the event that ended the hold."`
}

// AlertPage is a page of alerts, newest first.
type AlertPage struct {
	Alerts        []Alert       `json:"alerts" jsonschema:"The alerts, the newest first."`
	Left          int64         `json:"left_off" jsonschema:"The number of alerts after this page."`
	NextPageToken string        `json:"next_page_token" jsonschema:"The page_token of the next page. Empty: this is the last one."`
	AsOf          []events.AsOf `json:"as_of" jsonschema:"The part of each partition that the answer reflects."`
	Incomplete    []Incomplete  `json:"incomplete" jsonschema:"What the answer lacks. Empty: nothing."`
}

// Deadletter is a record that could not be used. Value is the original, which may have been cut: UTF-8 text,
// or else base64, according to Encoding.
type Deadletter struct {
	At        *string           `json:"at" format:"date-time" jsonschema:"When the record was rejected."`
	Reason    string            `json:"reason" jsonschema:"The reason, as a code."`
	Detail    string            `json:"detail" jsonschema:"What is wrong with the record, for people."`
	Origin    string            `json:"origin" jsonschema:"Where the record was: TOPIC/PARTITION/OFFSET."`
	Key       string            `json:"key" jsonschema:"The key of the record."`
	Size      int64             `json:"size" jsonschema:"The size of the record's value, in bytes."`
	SHA256    string            `json:"sha256" jsonschema:"The SHA-256 of the record's value."`
	Partition int32             `json:"partition" jsonschema:"The partition of waybill.deadletters."`
	Offset    string            `json:"offset" jsonschema:"The offset in waybill.deadletters, as a string."`
	Headers   map[string]string `json:"headers" jsonschema:"The headers of the dead letter."`
	Encoding  string            `json:"encoding" enum:"utf8,base64" jsonschema:"How value has the bytes: as they are (utf8), or encoded (base64)."`
	Value     string            `json:"value" jsonschema:"The record's value. A large one is cut."`
	Fate      DeadletterFate    `json:"fate" jsonschema:"What became of it."`
}

// DeadletterFate is what became of a dead letter.
type DeadletterFate struct {
	State      string `json:"state" enum:"open,redriven,task" jsonschema:"redriven: it was written again, and became a later dead letter. task: there is a task of its id. open: neither is known, also if the record was written again and accepted."`
	Deadletter string `json:"deadletter,omitempty" jsonschema:"The later dead letter, as PARTITION/OFFSET."`
	Task       string `json:"task,omitempty" jsonschema:"The id of the task."`
}

// The values of DeadletterFate.State.
const (
	FateOpen     = "open"
	FateRedriven = "redriven"
	FateTask     = "task"
)

// RedriveCommand selects dead letters whose original records are written again.
type RedriveCommand struct {
	Deadletters []string `json:"deadletters,omitempty" jsonschema:"Only these dead letters, as PARTITION/OFFSET."`
	Reasons     []string `json:"reasons,omitempty" jsonschema:"Only dead letters with one of these reasons."`
	Intake      string   `json:"intake,omitempty" jsonschema:"Only dead letters of this intake: records that it couldn't map, and its submissions and signals that a scheduler couldn't use."`
	Since       string   `json:"since,omitempty" jsonschema:"Only later dead letters: a duration before now (10m), or an instant. Absent: all that the topic has."`
	Preview     bool     `json:"preview,omitempty" jsonschema:"true: write nothing, and show what would be written."`
}

// Redriven is what was done with the selected dead letters.
type Redriven struct {
	Selected    int              `json:"selected" jsonschema:"The number of selected dead letters."`
	Refused     int              `json:"refused" jsonschema:"The number of those that can't be written again."`
	Deadletters []redrive.Letter `json:"deadletters" jsonschema:"The selected dead letters by partition and offset, at most 1,000."`
	Incomplete  []Incomplete     `json:"incomplete" jsonschema:"Partitions of waybill.deadletters that can't be read, so that none of theirs were selected. Empty: none."`
}

// DeadletterPage is a page of dead letters, newest first.
type DeadletterPage struct {
	Deadletters   []Deadletter `json:"deadletters" jsonschema:"The dead letters, the newest first."`
	Left          int64        `json:"left_off" jsonschema:"The number of dead letters after this page."`
	NextPageToken string       `json:"next_page_token" jsonschema:"The page_token of the next page. Empty: this is the last one."`
	Incomplete    []Incomplete `json:"incomplete" jsonschema:"What the list lacks, by partitions of waybill.deadletters. Empty: nothing."`
}

// Workflow is a version of a workflow, with counts of its tasks.
type Workflow struct {
	Workflow   string                     `json:"workflow" jsonschema:"The name of the workflow."`
	Version    int                        `json:"version" jsonschema:"The version."`
	Steps      []string                   `json:"steps" jsonschema:"The steps, in the order of the definition."`
	Agents     []string                   `json:"agents" jsonschema:"The agents that the steps use."`
	Tasks      map[events.TaskState]int64 `json:"tasks" jsonschema:"The number of tasks by state."`
	Deprecated *events.DeprecationView    `json:"deprecated,omitempty" jsonschema:"Why and by whom the version was deprecated: new tasks get it only if they name it. Absent: it isn't deprecated."`
}

// WorkflowList lists workflows.
type WorkflowList struct {
	Workflows  []Workflow    `json:"workflows" jsonschema:"The workflow versions."`
	AsOf       []events.AsOf `json:"as_of" jsonschema:"The part of each partition that the counts reflect."`
	Incomplete []Incomplete  `json:"incomplete" jsonschema:"What the counts lack. Empty: nothing."`
}

// Changes is a message of the stream of changes.
type Changes struct {
	What  []string `json:"what" jsonschema:"What changed, sorted. tasks: tasks have new events. holds: holds began or ended. index: which partitions the console's answers lack. agents, batches, partitions, alerts, deadletters, workflows: the list of that name, apart from what tasks change in it."`
	Tasks []string `json:"tasks" jsonschema:"The ids of tasks with new events, at most 100."`
	More  bool     `json:"more" jsonschema:"Other tasks have new events, too."`
}

// The names of changes.
const (
	ChangedTasks       = "tasks"
	ChangedHolds       = "holds"
	ChangedIndex       = "index"
	ChangedAgents      = "agents"
	ChangedBatches     = "batches"
	ChangedPartitions  = "partitions"
	ChangedAlerts      = "alerts"
	ChangedDeadletters = "deadletters"
	ChangedWorkflows   = "workflows"
)

// The types of events of the stream of changes.
const (
	ChangesEvent = "changes"
	BeatEvent    = "beat"
)

// Agent is an agent.
type Agent struct {
	Agent      string `json:"agent" jsonschema:"The name of the agent."`
	Partitions int32  `json:"partitions" jsonschema:"The number of partitions of its request topic."`
	Members    int    `json:"members" jsonschema:"The number of processes that read its requests."`
	Lag        int64  `json:"lag" jsonschema:"The number of offsets of its request topic that its members haven't committed: unfinished requests and transaction markers."`
	InFlight   int64  `json:"in_flight" jsonschema:"The number of tasks with a running attempt of this agent, according to events."`
	Circuit    string `json:"circuit" enum:"closed,half-open,open,unknown" jsonschema:"The worst state of the circuit breakers of all members, as their commits report it. unknown: none reports it. Members that haven't handled a request yet don't report it, nor do agents that don't use Waybill's library."`
}

// AgentList lists agents.
type AgentList struct {
	Agents     []Agent       `json:"agents" jsonschema:"The agents."`
	SampledAt  *string       `json:"sampled_at" format:"date-time" jsonschema:"When the console asked Kafka for members, lag and circuits. It asks once for all callers, and not again within 2 s."`
	AsOf       []events.AsOf `json:"as_of" jsonschema:"The part of each partition that in_flight reflects."`
	Incomplete []Incomplete  `json:"incomplete" jsonschema:"What in_flight lacks. Empty: nothing."`
}

// Partition is a partition.
type Partition struct {
	Partition         int32    `json:"partition" jsonschema:"The number of the partition."`
	Owner             *string  `json:"owner" jsonschema:"The scheduler that owns the partition, according to its last claim. null: none has claimed it."`
	Epoch             uint64   `json:"epoch" jsonschema:"The epoch of the last claim."`
	Scheduler         *string  `json:"scheduler" jsonschema:"The scheduler to which Kafka has assigned the partition. null: none. It owns the partition once it has written to it."`
	SchedulerRestored *float64 `json:"scheduler_restored" jsonschema:"How much that scheduler has read of what it must read before it acts, from 0 to 1."`

	Lag       int64       `json:"lag" jsonschema:"The number of inputs that no scheduler has consumed."`
	Tasks     int64       `json:"tasks" jsonschema:"The number of tasks, open and ended."`
	OpenTasks int64       `json:"open_tasks" jsonschema:"The number of open tasks."`
	OldestDue *string     `json:"oldest_due" format:"date-time" jsonschema:"When the earliest timer is due. null: no timer is armed."`
	Restored  float64     `json:"restored" jsonschema:"How much of the partition the console has read, from 0 to 1."`
	AsOf      events.AsOf `json:"as_of" jsonschema:"The part of the partition that the answer reflects."`
	End       string      `json:"end" jsonschema:"The end of the partition of waybill.events, as a string."`
}

// PartitionList lists partitions.
type PartitionList struct {
	Partitions []Partition  `json:"partitions" jsonschema:"The partitions."`
	SampledAt  *string      `json:"sampled_at" format:"date-time" jsonschema:"When the console asked Kafka for schedulers and lag. It asks once for all callers, and not again within 2 s."`
	Incomplete []Incomplete `json:"incomplete" jsonschema:"What the answer lacks. Empty: nothing."`
}
