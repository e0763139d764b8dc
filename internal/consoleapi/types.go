package consoleapi

import (
	"encoding/json"
	"net/url"
	"strings"

	"github.com/waybill-run/waybill/events"
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
	// Unreadable is the first record of its history that can't be used; nil: none.
	Unreadable *Unreadable `json:"unreadable,omitempty"`
}

// Unreadable names a record that can't be used, such as one that is no event, and says why.
type Unreadable struct {
	Partition int32  `json:"partition"`
	Offset    string `json:"offset"`
	Error     string `json:"error"`
}

// TaskPage is a page of tasks.
type TaskPage struct {
	Tasks []events.SummaryView `json:"tasks"`
	// NextPageToken continues the list; empty: there is no more. A page can be short or empty without being the
	// last: the work for a page is bounded.
	NextPageToken string        `json:"next_page_token"`
	AsOf          []events.AsOf `json:"as_of"`
	Incomplete    []Incomplete  `json:"incomplete"`
}

// Timeline is the timeline of a task.
type Timeline struct {
	Task  string        `json:"task"`
	Lines []events.Line `json:"lines"`
	// Unreadable are the records of the task that are no events, or can't be read, in the order of the log.
	Unreadable []Unreadable `json:"unreadable"`
	AsOf       events.AsOf  `json:"as_of"`
}

// Submitted is the answer to a submission.
type Submitted struct {
	ID    string           `json:"id"`
	State events.TaskState `json:"state,omitempty"` // absent: no scheduler has consumed it yet
	AsOf  *events.AsOf     `json:"as_of"`           // null: likewise
}

// Command is the body of an operator's command. Which fields a command has depends on its path.
type Command struct {
	Reason    string          `json:"reason"`
	RequestID string          `json:"request_id"`
	Keep      bool            `json:"keep"`
	Step      string          `json:"step"`
	As        string          `json:"as"`
	Output    json.RawMessage `json:"output"`
}

// CommandResult is the answer to an operator's command.
type CommandResult struct {
	Task      string           `json:"task"`
	Command   events.Command   `json:"command"`
	RequestID string           `json:"request_id"`
	Seq       uint64           `json:"seq"` // of the resulting event
	State     events.TaskState `json:"state"`
	AsOf      *events.AsOf     `json:"as_of"` // null: the index hasn't applied it yet
}

// Alert is an alert. With a Seq it belongs to an event of its task, and Partition and Offset are those of the
// event; otherwise they are those of the record in the topic of alerts.
type Alert struct {
	At        *string `json:"at"`
	Task      string  `json:"task,omitempty"`
	Seq       uint64  `json:"seq,omitempty"`
	Code      string  `json:"code"`
	Step      string  `json:"step,omitempty"`
	Message   string  `json:"message"`
	Partition int32   `json:"partition"`
	Offset    string  `json:"offset"`
	// EndedAt is when the hold ended, and EndedBy the type of the event that ended it. Absent: the task is still
	// held, or no end is known.
	EndedAt *string `json:"ended_at,omitempty"`
	EndedBy string  `json:"ended_by,omitempty"`
}

// AlertPage is a page of alerts, newest first.
type AlertPage struct {
	Alerts []Alert `json:"alerts"`
	Left   int64   `json:"left_off"` // how many more there are
	// NextPageToken continues the list; empty: there is no more.
	NextPageToken string        `json:"next_page_token"`
	AsOf          []events.AsOf `json:"as_of"`
	Incomplete    []Incomplete  `json:"incomplete"`
}

// Deadletter is a record that could not be used. Value is the original, which may have been cut: UTF-8 text,
// or else base64, according to Encoding.
type Deadletter struct {
	At        *string           `json:"at"`
	Reason    string            `json:"reason"`
	Detail    string            `json:"detail"`
	Origin    string            `json:"origin"` // topic/partition/offset
	Key       string            `json:"key"`
	Size      int64             `json:"size"` // of the original, in bytes
	SHA256    string            `json:"sha256"`
	Partition int32             `json:"partition"`
	Offset    string            `json:"offset"`
	Headers   map[string]string `json:"headers"`
	Encoding  string            `json:"encoding"` // utf8 or base64
	Value     string            `json:"value"`
}

// DeadletterPage is a page of dead letters, newest first.
type DeadletterPage struct {
	Deadletters   []Deadletter `json:"deadletters"`
	Left          int64        `json:"left_off"`
	NextPageToken string       `json:"next_page_token"`
	Incomplete    []Incomplete `json:"incomplete"` // of partitions of the topic of dead letters
}

// Workflow is a version of a workflow, with counts of its tasks.
type Workflow struct {
	Workflow string                     `json:"workflow"`
	Version  int                        `json:"version"`
	Steps    []string                   `json:"steps"`
	Agents   []string                   `json:"agents"`
	Tasks    map[events.TaskState]int64 `json:"tasks"` // by state
}

// WorkflowList lists workflows.
type WorkflowList struct {
	Workflows  []Workflow    `json:"workflows"`
	AsOf       []events.AsOf `json:"as_of"`
	Incomplete []Incomplete  `json:"incomplete"`
}

// Agent is an agent.
type Agent struct {
	Agent      string `json:"agent"`
	Partitions int32  `json:"partitions"` // of its request topic
	Members    int    `json:"members"`    // processes that read its requests
	Lag        int64  `json:"lag"`        // offsets: requests that aren't finished, taken or not, and the markers between
	InFlight   int64  `json:"in_flight"`  // tasks with a running attempt of this agent, according to events
	// Circuit is the worst circuit of all downstreams of all members: closed, half-open or open, as their commits
	// report it. It is unknown if none reports it: members that haven't worked yet, or that aren't Waybill's.
	Circuit string `json:"circuit"`
}

// AgentList lists agents.
type AgentList struct {
	Agents     []Agent       `json:"agents"`
	AsOf       []events.AsOf `json:"as_of"`      // of in_flight
	Incomplete []Incomplete  `json:"incomplete"` // likewise
}

// Partition is a partition.
type Partition struct {
	Partition int32   `json:"partition"`
	Owner     *string `json:"owner"` // according to the latest claim
	Epoch     uint64  `json:"epoch"`
	// Scheduler is the member to which Kafka has assigned the partition; null: none. It isn't the owner until it
	// has written something. SchedulerRestored is how much it has read of what it must read before it acts, from 0
	// to 1.
	Scheduler         *string  `json:"scheduler"`
	SchedulerRestored *float64 `json:"scheduler_restored"`

	Lag       int64   `json:"lag"`   // inputs that the scheduler hasn't consumed
	Tasks     int64   `json:"tasks"` // ever
	OpenTasks int64   `json:"open_tasks"`
	OldestDue *string `json:"oldest_due"` // the earliest armed timer
	// Restored is how much of the partition the index has read, from 0 to 1.
	Restored float64     `json:"restored"`
	AsOf     events.AsOf `json:"as_of"`
	End      string      `json:"end"` // where events of the partition end
}

// PartitionList lists partitions.
type PartitionList struct {
	Partitions []Partition  `json:"partitions"`
	Incomplete []Incomplete `json:"incomplete"`
}
