package console

import (
	"slices"
	"strings"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/consoleapi"
	"github.com/waybill-run/waybill/internal/replay"
	"github.com/waybill-run/waybill/scheduler"
	"github.com/waybill-run/waybill/workflow"
)

type (
	itemsRequest struct {
		taskRequest
		Step      string   `path:"step" jsonschema:"The step."`
		State     string   `query:"state" jsonschema:"Only items in this state: pending, running, completed, error, undoing, undone, or held."`
		PageSize  pageSize `query:"page_size" jsonschema:"The maximum number of items on the page."`
		PageToken string   `query:"page_token" jsonschema:"next_page_token of the previous page, with the same state."`
	}
	// itemsToken continues a list of items.
	itemsToken struct {
		Task  string `json:"t"`
		Step  string `json:"s"`
		State string `json:"w,omitempty"`
		From  int    `json:"f"`
	}
)

// items returns a page of the items of a step.
func (c *call) items(in *itemsRequest) (*consoleapi.ItemPage, error) {
	h, task, _, err := c.foldTask(&in.taskRequest)
	if err != nil {
		return nil, err
	}
	step, ok := task.Plan.Step(in.Step)
	if !ok {
		return nil, notFound("task %q has no step %q", consoleapi.Printable(h.id), consoleapi.Printable(in.Step))
	}
	if in.State != "" && !slices.Contains(consoleapi.ItemStates, in.State) {
		return nil, badRequest("state %q: must be one of %s", consoleapi.Printable(in.State), strings.Join(consoleapi.ItemStates, ", "))
	}
	at := itemsToken{Task: h.id, Step: in.Step, State: in.State}
	if in.PageToken != "" {
		var t itemsToken
		if err := decodeToken(in.PageToken, &t); err != nil || (itemsToken{t.Task, t.Step, t.State, 0}) != at || t.From < 0 {
			return nil, badRequest("page_token: it doesn't belong to this list: pass next_page_token of the previous page, with the same state")
		}
		at.From = t.From
	}
	list, next := task.ItemViews(step, at.From, in.PageSize.orDefault(), in.State, c.itemIDs(task))
	page := &consoleapi.ItemPage{Task: h.id, Step: in.Step, Items: list, AsOf: h.reflectedOffset()}
	if at.From = next; next >= 0 {
		page.NextPageToken = encodeToken(at)
	}
	return page, nil
}

// itemIDs returns a function for the ids of the tasks of items. Those that the definition chose are evaluated again; they are
// empty if the definition isn't known any more.
func (c *call) itemIDs(t *events.Task) replay.ItemIDs {
	var own replay.ItemIDs
	return func(step, item int) string {
		switch p := t.Plan.Steps[step].Items; {
		case t.Steps[step].Items.Item(item).Attempt == 0:
			return ""
		case p == nil || !p.OwnIDs:
			return events.ItemTaskIDOf(t, step, item)
		case own == nil:
			own = c.ownItemIDs(t)
		}
		return own(step, item)
	}
}

func (c *call) ownItemIDs(t *events.Task) replay.ItemIDs {
	if d, _ := c.cfg.Cluster.Definition(t.Workflow, t.Version); d != nil {
		if program, err := workflow.Compile(d); err == nil {
			return scheduler.OwnItemIDs(program, t)
		}
	}
	return func(int, int) string { return "" }
}
