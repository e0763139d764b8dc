package consoleapi

import (
	"context"
	"net/url"
	"strconv"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/batch"
)

// BatchCommand orders a batch: one command to many tasks.
type BatchCommand struct {
	ID           string         `json:"id,omitempty" jsonschema:"The id of the batch. A repeated request with the same id has no second effect. Absent: the console makes an id."`
	Command      events.Command `json:"command" enum:"resubmit,undo,cancel,migrate" jsonschema:"The command that each task gets."`
	Step         string         `json:"step,omitempty" jsonschema:"With resubmit: only if this step is held."`
	Keep         bool           `json:"keep,omitempty" jsonschema:"With cancel: don't undo the completed steps."`
	Processed    bool           `json:"processed,omitempty" jsonschema:"With undo: also undo tasks that have ended as processed. It needs a token of the role undo_processed."`
	Version      int            `json:"version,omitempty" jsonschema:"With migrate: the version of the workflow to migrate to. A filter must then name the workflow."`
	DryRun       bool           `json:"dry_run,omitempty" jsonschema:"With migrate: the schedulers answer whether each task would be migrated, and change nothing."`
	Filter       string         `json:"filter,omitempty" jsonschema:"All tasks that match these terms, as in GET /tasks. Without a term state, those whose state may allow the command. Either filter or tasks is required."`
	Tasks        []string       `json:"tasks,omitempty" jsonschema:"These tasks, at most 10,000."`
	Reason       string         `json:"reason,omitempty" jsonschema:"Why. It is written to the log, with each command. It is required, except with preview."`
	By           string         `json:"by,omitempty" jsonschema:"Who claims to create it. A console with tokens records the name of the token instead."`
	Rate         *float64       `json:"rate,omitempty" jsonschema:"The maximum number of commands per second. 0: no limit. Absent: 50."`
	Canary       *int           `json:"canary,omitempty" jsonschema:"The number of tasks that get the command first. The others wait until these have passed. 0: none. Absent: 1."`
	CanaryWithin string         `json:"canary_within,omitempty" jsonschema:"The maximum wait for the canary, as a duration. Absent: 1m."`
	Preview      bool           `json:"preview,omitempty" jsonschema:"true: create nothing, and show the tasks of the batch."`
}

// BatchAnswer is the answer to the order of a batch.
type BatchAnswer struct {
	Selected int           `json:"selected" jsonschema:"The number of tasks that get the command."`
	Left     int           `json:"left" jsonschema:"The number of tasks that are left out, because their state doesn't allow the command, or because there is no such task."`
	Groups   []batch.Group `json:"groups" jsonschema:"The selected tasks by workflow, state, held step and error, the largest group first."`
	First    []string      `json:"first" jsonschema:"The ids of the first tasks, in the order of the commands. The oldest comes first."`
	Refused  []BatchLeft   `json:"refused" jsonschema:"The first tasks that are left out."`
	Batch    *Batch        `json:"batch,omitempty" jsonschema:"The batch. Absent: none was created."`
}

// BatchLeft is a task that a batch leaves out.
type BatchLeft struct {
	Task  string           `json:"task" jsonschema:"The task's id."`
	State events.TaskState `json:"state,omitempty" jsonschema:"The state of the task. Absent: there is no such task."`
}

// The states of a batch.
const (
	BatchRunning  = "running"
	BatchStopping = "stopping" // it waits for the answers to its last commands
	BatchDone     = "done"
	BatchStopped  = "stopped" // before all tasks had the command
)

// Batch is a batch.
type Batch struct {
	ID           string               `json:"id" jsonschema:"The id of the batch."`
	State        string               `json:"state" enum:"running,stopping,done,stopped" jsonschema:"The state of the batch. stopping: it waits for the answers to its last commands. stopped: it ended before all tasks had the command."`
	Why          string               `json:"why,omitempty" jsonschema:"Why it was stopped."`
	TimedOut     bool                 `json:"timed_out,omitempty" jsonschema:"true: it was stopped because the canary hadn't passed in time."`
	Trouble      string               `json:"trouble,omitempty" jsonschema:"What is wrong at the moment: the last command wasn't answered, or the state of a task can't be read. Both are tried again. Absent: nothing."`
	Command      events.Command       `json:"command" jsonschema:"The command that each task gets."`
	Step         string               `json:"step,omitempty" jsonschema:"The held step that a resubmit is for."`
	Keep         bool                 `json:"keep,omitempty" jsonschema:"Completed steps are not undone."`
	Processed    bool                 `json:"processed,omitempty" jsonschema:"Tasks that have ended as processed are undone, too."`
	Version      int                  `json:"version,omitempty" jsonschema:"The version that tasks are migrated to."`
	DryRun       bool                 `json:"dry_run,omitempty" jsonschema:"true: the commands have no effect."`
	Filter       string               `json:"filter,omitempty" jsonschema:"The filter that selected the tasks. Absent: they were named."`
	By           string               `json:"by,omitempty" jsonschema:"Who created it: the name of a token."`
	Claimed      string               `json:"by_claimed,omitempty" jsonschema:"Who claims to have created it; it isn't verified."`
	Reason       string               `json:"reason" jsonschema:"Why it was created."`
	Rate         float64              `json:"rate" jsonschema:"The maximum number of commands per second. 0: no limit."`
	Canary       int                  `json:"canary" jsonschema:"The number of tasks that get the command first."`
	CanaryWithin string               `json:"canary_within" jsonschema:"The maximum wait for the canary."`
	CreatedAt    *string              `json:"created_at" format:"date-time" jsonschema:"When it was created."`
	EndedAt      *string              `json:"ended_at" format:"date-time" jsonschema:"When it ended. null: it hasn't."`
	Tasks        int                  `json:"tasks" jsonschema:"The number of its tasks."`
	Counts       map[batch.Status]int `json:"counts" jsonschema:"The number of tasks by status."`
	Dropped      bool                 `json:"results_dropped,omitempty" jsonschema:"true: the results of its tasks are no longer kept."`
}

// BatchList lists batches.
type BatchList struct {
	Batches []Batch `json:"batches" jsonschema:"The batches, the newest first."`
	Left    int     `json:"left_off" jsonschema:"The number of older batches that are left out because of limit."`
}

// BatchResults is a page of the results of a batch.
type BatchResults struct {
	Results       []batch.Result `json:"results" jsonschema:"The results, in the order of the commands."`
	NextPageToken string         `json:"next_page_token" jsonschema:"Continues the list. Empty: this is the last page."`
}

// StopCommand stops a batch.
type StopCommand struct {
	Reason string `json:"reason" jsonschema:"Why. It is written to the topic of batches."`
}

// BatchPath is the path of a batch, after Prefix.
func BatchPath(id string) string { return "/batches/" + url.PathEscape(id) }

// OrderBatch orders a batch, or previews it.
func (c *Client) OrderBatch(ctx context.Context, b *BatchCommand) (a BatchAnswer, err error) {
	return a, c.Post(ctx, "/batches", b, &a)
}

// StopBatch stops a batch.
func (c *Client) StopBatch(ctx context.Context, id, reason string) (b Batch, err error) {
	return b, c.Post(ctx, BatchPath(id)+"/stop", &StopCommand{reason}, &b)
}

// Batch returns a batch.
func (c *Client) Batch(ctx context.Context, id string) (b Batch, err error) {
	return b, c.Get(ctx, BatchPath(id), nil, &b)
}

// Batches lists the newest batches.
func (c *Client) Batches(ctx context.Context, limit int) (l BatchList, err error) {
	return l, c.Get(ctx, "/batches", url.Values{"limit": {strconv.Itoa(limit)}}, &l)
}

// BatchResults returns all results of a batch.
func (c *Client) BatchResults(ctx context.Context, id string) (all []batch.Result, err error) {
	q := url.Values{"page_size": {strconv.Itoa(PageSizeMax)}}
	for {
		var p BatchResults
		if err := c.Get(ctx, BatchPath(id)+"/results", q, &p); err != nil {
			return nil, err
		}
		all = append(all, p.Results...)
		if p.NextPageToken == "" {
			return all, nil
		}
		if err := c.NextPage(q, p.NextPageToken); err != nil {
			return nil, err
		}
	}
}
