package console

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/google/uuid"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/batch"
	"github.com/waybill-run/waybill/internal/consoleapi"
	"github.com/waybill-run/waybill/internal/text"
	"github.com/waybill-run/waybill/projections"
)

const (
	// batchTasksMax bounds the tasks that an order names.
	batchTasksMax = 10_000
	// batchShownMax bounds the ids that the answer to an order has.
	batchShownMax = 20
	// The plan of a batch, if the order doesn't say it.
	batchRate         = 50.0
	batchCanary       = 1
	batchCanaryWithin = time.Minute
	// batchPlanMax bounds the time that a batch takes by its rate.
	batchPlanMax = 7 * 24 * time.Hour
)

// batchID is the id of a batch.
type batchID string

func (id *batchID) UnmarshalText(text []byte) error {
	*id = batchID(text)
	if err := events.CheckTaskID(string(text)); err != nil {
		return fmt.Errorf("batch %w", err)
	}
	return nil
}

// batchStatus is the status of results; empty: any.
type batchStatus batch.Status

func (s *batchStatus) UnmarshalText(text []byte) error {
	if *s = batchStatus(text); !slices.Contains(batch.Statuses, batch.Status(text)) {
		return fmt.Errorf("must be one of %v", batch.Statuses)
	}
	return nil
}

var (
	_ = addParameter[batchID](&jsonschema.Schema{Type: "string", MinLength: jsonschema.Ptr(1)})
	_ = addParameter[batchStatus](&jsonschema.Schema{Ref: "#/components/schemas/Status"})
)

type (
	batchesRequest struct {
		Limit pageSize `query:"limit" jsonschema:"The maximum number of batches."`
	}
	batchPath struct {
		Batch batchID `path:"id" jsonschema:"The id of the batch, percent-encoded."`
	}
	batchResultsRequest struct {
		batchPath
		Status    batchStatus `query:"status" jsonschema:"Only results with this status."`
		PageSize  pageSize    `query:"page_size" jsonschema:"The maximum number of results on the page."`
		PageToken string      `query:"page_token" jsonschema:"next_page_token of the previous page, with the same status."`
	}
	createBatchRequest struct{ Body consoleapi.BatchCommand }
	stopBatchRequest   struct {
		batchPath
		Body consoleapi.StopCommand
	}
	// resultsToken continues a list of results.
	resultsToken struct {
		Batch  string      `json:"b"`
		Status batchStatus `json:"s,omitempty"`
		From   int         `json:"f"`
	}
)

// batchError returns the problem of an error of Config.Batches.
func batchError(err error) error {
	switch {
	case errors.Is(err, batch.ErrOther), errors.Is(err, batch.ErrTooMany), errors.Is(err, batch.ErrEnded):
		return refused("%v", err)
	case err != nil:
		return unavailable("can't read the batches: %v; `waybill doctor` shows what is wrong", err)
	}
	return nil
}

func (c *call) batches(in *batchesRequest) (*consoleapi.BatchList, error) {
	l := &consoleapi.BatchList{Batches: []consoleapi.Batch{}}
	if c.cfg.Batches == nil {
		return l, nil
	}
	all, err := c.cfg.Batches.List()
	if err != nil {
		return nil, batchError(err)
	}
	for _, v := range all[:min(len(all), in.Limit.orDefault())] {
		l.Batches = append(l.Batches, *batchView(v))
	}
	l.Left = len(all) - len(l.Batches)
	return l, nil
}

// findBatch returns the batch that a request is about.
func (c *call) findBatch(id batchID) (*batch.View, error) {
	if c.cfg.Batches == nil {
		return nil, noBatch(id)
	}
	v, err := c.cfg.Batches.Find(string(id))
	if err != nil {
		return nil, batchError(err)
	}
	if v == nil {
		return nil, noBatch(id)
	}
	return v, nil
}

func noBatch(id batchID) error {
	return notFound("there is no batch %q; %s/batches lists them", consoleapi.Printable(string(id)), api)
}

func (c *call) batch(in *batchPath) (*consoleapi.Batch, error) {
	v, err := c.findBatch(in.Batch)
	if err != nil {
		return nil, err
	}
	return batchView(v), nil
}

func batchView(v *batch.View) *consoleapi.Batch {
	b := &consoleapi.Batch{ID: v.ID, State: consoleapi.BatchRunning, Trouble: v.Trouble, Command: v.Command, Step: v.Step, Keep: v.Keep, Processed: v.Processed, Version: v.Version, DryRun: v.DryRun, Filter: v.Filter,
		By: v.By, Claimed: v.Claimed, Reason: v.Why, Rate: v.Rate, Canary: v.Canary, CanaryWithin: v.Plan().CanaryWithin.String(),
		CreatedAt: events.InstantText(v.At), EndedAt: events.InstantText(v.EndedAt), Tasks: v.Tasks, Counts: v.Counts, Dropped: v.Dropped}
	maps.DeleteFunc(b.Counts, func(_ batch.Status, n int) bool { return n == 0 })
	switch {
	case v.Ended != nil && v.Ended.Why != "":
		b.State, b.Why, b.TimedOut = consoleapi.BatchStopped, v.Ended.Why, v.Ended.TimedOut
	case v.Ended != nil:
		b.State = consoleapi.BatchDone
	case v.Stop != nil:
		b.State = consoleapi.BatchStopping
	}
	return b
}

func (c *call) batchResults(in *batchResultsRequest) (*consoleapi.BatchResults, error) {
	if _, err := c.findBatch(in.Batch); err != nil {
		return nil, err
	}
	at := resultsToken{Batch: string(in.Batch), Status: in.Status}
	if in.PageToken != "" {
		var t resultsToken
		if err := decodeToken(in.PageToken, &t); err != nil || t.Batch != at.Batch || t.Status != at.Status || t.From < 0 {
			return nil, badRequest("page_token: it doesn't belong to this list: pass next_page_token of the previous page, with the same status")
		}
		at.From = t.From
	}
	list, next, err := c.cfg.Batches.Results(at.Batch, at.From, batch.Status(at.Status), in.PageSize.orDefault())
	if err != nil {
		return nil, batchError(err)
	}
	page := &consoleapi.BatchResults{Results: append([]batch.Result{}, list...)}
	if at.From = next; next >= 0 {
		page.NextPageToken = encodeToken(at)
	}
	return page, nil
}

func (c *call) stopBatch(in *stopBatchRequest) (*consoleapi.Batch, error) {
	if in.Body.Reason == "" || len(in.Body.Reason) > events.MaxWhyBytes {
		return nil, badRequest(`"reason" is missing or has more than %d bytes: it is written to the log`, events.MaxWhyBytes)
	}
	if _, err := c.findBatch(in.Batch); err != nil {
		return nil, err
	}
	by := c.operatorOf(&consoleapi.CommandBody{Reason: in.Body.Reason})
	v, err := c.cfg.Batches.Stop(c.r.Context(), string(in.Batch), batch.StopRequest{By: by.Who, Claimed: by.Claimed, Why: by.Why})
	switch {
	case err != nil:
		return nil, batchError(err)
	case v == nil:
		return nil, noBatch(in.Batch)
	}
	return batchView(v), nil
}

// createBatch orders a batch, or shows what it would be about.
func (c *call) createBatch(in *createBatchRequest) (*consoleapi.BatchAnswer, error) {
	b := &in.Body
	order, err := c.batchOrder(b)
	if err != nil {
		return nil, err
	}
	if c.cfg.Batches == nil {
		return nil, unavailable("this console has no batches")
	}
	if v, err := c.repeatedBatch(b, order); v != nil || err != nil {
		return v, err
	}
	targets, answer, err := c.selectTargets(b, order)
	if err != nil || b.Preview {
		return answer, err
	}
	if answer.Selected == 0 {
		return nil, unprocessable("no selected task allows the command; %s left out", text.Count(answer.Left, "task"))
	}
	if took := float64(len(targets)) / order.Rate; order.Rate > 0 && took > batchPlanMax.Seconds() {
		return nil, unprocessable("%d tasks at %v a second would take more than %d days: give a higher rate or select fewer tasks", len(targets), order.Rate, int(batchPlanMax.Hours()/24))
	}
	v, created, err := c.cfg.Batches.Create(c.r.Context(), *order, targets)
	if err != nil {
		if p := new(consoleapi.Problem); !errors.As(batchError(err), &p) || p.Status != http.StatusConflict {
			return nil, unavailable("the batch may not have been written; send it again with the id %s: %v; `waybill doctor` shows what is wrong", order.ID, err)
		}
		return nil, batchError(err)
	}
	if created {
		c.status = http.StatusCreated
		c.w.Header().Set("Location", api+consoleapi.BatchPath(v.ID))
	}
	answer.Batch = batchView(v)
	return answer, nil
}

// repeatedBatch returns the answer to an order that was given before.
func (c *call) repeatedBatch(b *consoleapi.BatchCommand, order *batch.Order) (*consoleapi.BatchAnswer, error) {
	if b.ID == "" || b.Preview {
		return nil, nil
	}
	v, err := c.cfg.Batches.Find(b.ID)
	switch {
	case err != nil:
		return nil, batchError(err)
	case v == nil:
		return nil, nil
	case !v.Same(order):
		return nil, batchError(batch.ErrOther)
	}
	return &consoleapi.BatchAnswer{Selected: v.Tasks, Groups: []batch.Group{}, First: []string{}, Refused: []consoleapi.BatchLeft{}, Batch: batchView(v)}, nil
}

// batchOrder checks an order.
func (c *call) batchOrder(b *consoleapi.BatchCommand) (*batch.Order, error) {
	o := &batch.Order{ID: b.ID, Command: b.Command, Step: b.Step, Keep: b.Keep, Processed: b.Processed, Version: b.Version, DryRun: b.DryRun, Why: b.Reason, Filter: b.Filter, Rate: batchRate, Canary: batchCanary}
	switch b.Command {
	case events.Resubmit, events.UndoTask, events.Cancel, events.Migrate:
	default:
		return nil, badRequest(`"command": resubmit, undo, cancel or migrate`)
	}
	if err := checkMigration(b); err != nil {
		return nil, err
	}
	switch {
	case b.Step != "" && b.Command != events.Resubmit, b.Keep && b.Command != events.Cancel, b.Processed && b.Command != events.UndoTask:
		return nil, badRequest(`"step" is only for resubmit, "keep" for cancel, "processed" for undo`)
	case b.Processed && c.who.role < UndoProcessed:
		return nil, c.roleError(c.who, UndoProcessed)
	case (b.Filter == "") == (len(b.Tasks) == 0):
		return nil, badRequest(`select tasks, by "filter" or by "tasks"`)
	case len(b.Tasks) > batchTasksMax:
		return nil, unprocessable("%d tasks are named; at most %d", len(b.Tasks), batchTasksMax)
	case b.Reason == "" && !b.Preview:
		return nil, badRequest(`"reason" is missing: it is written to the log`)
	}
	within := batchCanaryWithin
	if b.CanaryWithin != "" {
		var err error
		if within, err = time.ParseDuration(b.CanaryWithin); err != nil || within > batch.LifeMax {
			return nil, badRequest("canary_within %q: must be a duration (1m), at most %d days", consoleapi.Printable(b.CanaryWithin), int(batch.LifeMax.Hours()/24))
		}
	}
	o.CanaryWithin = within.Milliseconds()
	if b.Rate != nil {
		o.Rate = *b.Rate
	}
	if b.Canary != nil {
		o.Canary = *b.Canary
	}
	plan := o.Plan()
	if err := plan.Check(); err != nil {
		return nil, badRequest("%v", err)
	}
	return o, c.identifyBatch(o, b)
}

// checkMigration checks what only a migration has.
func checkMigration(b *consoleapi.BatchCommand) error {
	switch {
	case b.Command != events.Migrate && (b.Version != 0 || b.DryRun):
		return badRequest(`"version" and "dry_run" are only for migrate`)
	case b.Command == events.Migrate && b.Version < 1:
		return badRequest(`migrate needs "version", to migrate to`)
	}
	return nil
}

// identifyBatch sets who orders a batch, and its id.
func (c *call) identifyBatch(o *batch.Order, b *consoleapi.BatchCommand) error {
	if o.ID == "" {
		id, err := uuid.NewV7()
		if err != nil {
			return err
		}
		o.ID = id.String()
	}
	if err := events.CheckTaskID(o.ID); err != nil {
		return badRequest("batch %v", err)
	}
	by := c.operatorOf(&consoleapi.CommandBody{Reason: cmp.Or(b.Reason, "a preview")})
	o.By, o.Claimed, o.Why = by.Who, by.Claimed, by.Why
	if c.cfg.Tokens == nil {
		o.Claimed = cmp.Or(b.By, o.Claimed)
	}
	sample := o.Control()
	sample.Task, sample.RequestID = "sample", batch.RequestID(o.ID, "sample")
	record := sample.Record(c.cfg.Namespace, c.cfg.Source)
	if _, _, err := events.DecodeInput(events.Controls, &record); err != nil {
		return unprocessable("%v", err)
	}
	return nil
}

// selectTargets selects the tasks of a batch, the oldest first.
func (c *call) selectTargets(b *consoleapi.BatchCommand, o *batch.Order) ([]batch.Target, *consoleapi.BatchAnswer, error) {
	a := &consoleapi.BatchAnswer{First: []string{}, Refused: []consoleapi.BatchLeft{}}
	var listed []batch.Target
	var err error
	if len(b.Tasks) > 0 {
		listed, err = c.namedTargets(b.Tasks, a)
	} else {
		listed, err = c.listTargets(b.Filter, o)
	}
	if err != nil {
		return nil, nil, err
	}
	x := o.Control()
	targets, left := batch.Select(&x, listed)
	for i := range listed {
		if len(a.Refused) < batchShownMax && !batch.Takes(&x, listed[i].State) {
			a.Refused = append(a.Refused, consoleapi.BatchLeft{Task: listed[i].Task, State: listed[i].State})
		}
	}
	for i := range targets[:min(len(targets), batchShownMax)] {
		a.First = append(a.First, targets[i].Task)
	}
	a.Selected, a.Left, a.Groups = len(targets), a.Left+left, append([]batch.Group{}, batch.Preview(targets)...)
	return targets, a, nil
}

// namedTargets returns the named tasks, as of the end of the log. Those that don't exist are added to what is left out.
func (c *call) namedTargets(ids []string, a *consoleapi.BatchAnswer) (listed []batch.Target, err error) {
	var unique []string
	seen, partitions := map[string]bool{}, map[int32]bool{}
	for _, id := range ids {
		if err := events.CheckTaskID(id); err != nil {
			return nil, badRequest("task %v", err)
		}
		if !seen[id] {
			seen[id], partitions[events.Partition([]byte(id), c.cfg.Partitions)] = true, true
			unique = append(unique, id)
		}
	}
	if err := c.awaitEnds(slices.Sorted(maps.Keys(partitions))); err != nil {
		return nil, err
	}
	for _, id := range unique {
		p := events.Partition([]byte(id), c.cfg.Partitions)
		found, begun := c.cfg.Index.Find(p, id)
		switch {
		case !begun:
			return nil, c.notReadError(p)
		case found.Summary != nil:
			v := found.Summary.View()
			listed = append(listed, batch.TargetOf(&v))
			continue
		}
		if a.Left++; len(a.Refused) < batchShownMax {
			a.Refused = append(a.Refused, consoleapi.BatchLeft{Task: id})
		}
	}
	return listed, nil
}

// listTargets returns the tasks that match a filter, as of the end of the log. Without a term state it lists those whose
// state may allow the command.
func (c *call) listTargets(text string, o *batch.Order) (listed []batch.Target, err error) {
	filter, err := parseFilter(text, c.cfg.Now())
	if err != nil {
		return nil, badRequest("filter: %s", consoleapi.Printable(err.Error()))
	}
	if o.Command == events.Migrate && filter.Workflow == "" {
		return nil, badRequest("filter: a migration needs the term workflow:NAME, since versions are those of a workflow")
	}
	if x := o.Control(); len(filter.States) == 0 {
		for _, state := range events.TaskStates {
			if batch.Takes(&x, state) {
				filter.States = append(filter.States, state)
			}
		}
	}
	progress, leaderless, err := c.awaitOffsets(c.r.Context(), consoleapi.LogEnd)
	if err != nil {
		return nil, err
	}
	lacks, err := c.incompletePartitions(progress, leaderless)
	if err != nil {
		return nil, err
	}
	if len(lacks) > 0 {
		return nil, c.incompleteError(lacks[0])
	}
	var after projections.Cursor
	for {
		page, err := c.cfg.Index.List(c.r.Context(), startedPartitions(progress), filter, after, pageMax)
		if err != nil {
			return nil, err
		}
		for i := range page.Tasks {
			v := page.Tasks[i].View()
			listed = append(listed, batch.TargetOf(&v))
		}
		if len(listed) > batch.TasksMax {
			return nil, unprocessable("the filter matches more than %d tasks: narrow it, by since: and until: for example", batch.TasksMax)
		}
		if page.Next == nil {
			break
		}
		after = *page.Next
	}
	slices.Reverse(listed)
	return listed, nil
}

// Look returns a task as of the end of the log.
func (c *Console) Look(ctx context.Context, task string) (*events.TaskView, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, api+consoleapi.TaskPath(strings.ToValidUTF8(task, "")), nil)
	if err != nil {
		return nil, err
	}
	asked := &call{Console: c, r: r}
	v, err := asked.task(&taskRequest{taskPath: taskPath{taskID(task)}, MinOffset: consoleapi.LogEnd})
	if err != nil {
		return nil, err
	}
	return &v.TaskView, nil
}
