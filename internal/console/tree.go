package console

import (
	"bytes"
	"cmp"
	"errors"
	"net/http"
	"slices"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/consoleapi"
)

const (
	// treeLinesMaxBytes bounds the events of a tree, as JSON. One event may have 1 MiB.
	treeLinesMaxBytes = 16 << 20
	// treesMax bounds the concurrent requests for trees with events. Each holds them in memory until it is answered.
	treesMax = 4
)

type (
	treeRequest struct {
		taskRequest
		Lines    bool      `query:"lines" jsonschema:"true: with the events of the tasks, at most 10,000 and 16 MiB."`
		Items    treeItems `query:"items" jsonschema:"The maximum number of items of each step."`
		PageSize pageSize  `query:"page_size" jsonschema:"The maximum number of tasks."`
	}
	treeItems int
)

var _ = addParameter[treeItems](sizeSchema(consoleapi.TreeItemsDefault, pageMax))

func (n *treeItems) UnmarshalText(text []byte) error { return parseSize((*int)(n), text, pageMax) }

// treeNode is a task of a tree.
type treeNode struct {
	consoleapi.TreeTask
	lines    []events.Line
	children []*treeNode
}

// treeMaker makes a tree: the tasks of a depth before those below them, so that a bound leaves out the deepest ones.
type treeMaker struct {
	c         *call
	in        *treeRequest
	minOffset taskOffset // of children
	tree      consoleapi.TaskTree
	tasks     int
	lines     int
	bytes     int  // of the lines
	full      bool // no more lines fit
}

// tree returns a task with its children.
func (c *call) tree(in *treeRequest) (*consoleapi.TaskTree, error) {
	if in.Lines {
		if err := c.acquireSlot(c.treeSlots, "trees with events"); err != nil {
			return nil, err
		}
	}
	m := &treeMaker{c: c, in: in, tree: consoleapi.TaskTree{Task: string(in.Task), Tasks: []consoleapi.TreeTask{}, Lines: []events.Line{}, More: []consoleapi.TreeMore{}}}
	h, err := c.history(&in.taskRequest)
	if err != nil {
		return nil, err
	}
	m.tree.AsOf = h.reflectedOffset()
	if in.MinOffset == consoleapi.LogEnd {
		m.minOffset = consoleapi.LogEnd
	}
	root := &treeNode{TreeTask: consoleapi.TreeTask{Task: h.id}}
	if err := m.add(root, h); err != nil {
		return nil, err
	}
	for level := root.children; len(level) > 0; {
		var below []*treeNode
		for _, n := range level {
			if err := m.read(n); err != nil {
				return nil, err
			}
			below = append(below, n.children...)
		}
		level = below
	}
	m.list(root)
	m.tree.Lines = mergeLines(root)
	return &m.tree, nil
}

// read reads a child. An unknown child has no events. The error is that of the tree if the child can't be read now.
func (m *treeMaker) read(n *treeNode) error {
	h, err := m.c.history(&taskRequest{taskPath{taskID(n.Task)}, m.minOffset})
	if err == nil {
		err = m.add(n, h)
	}
	if problem, is := errors.AsType[*consoleapi.Problem](err); is && problem.Status != http.StatusServiceUnavailable {
		n.Missing, err = problem.Detail, nil
	}
	return err
}

// add adds a task's state, lines and children to its node.
func (m *treeMaker) add(n *treeNode, h *history) error {
	task, _, err := h.fold()
	if err != nil {
		return err
	}
	if n.Parent != "" && (task.Parent == nil || task.Parent.Task != n.Parent) {
		n.Missing = "the submission was refused: another task has the id"
		return nil
	}
	n.Workflow, n.Version, n.State, n.Error, n.Events = task.Workflow, task.Version, task.State, task.Error, len(h.records)
	m.addChildren(n, h, task)
	if m.in.Lines {
		m.addLines(n, h)
	}
	return nil
}

// addLines adds the readable events of a task, as far as the bounds of the tree allow. Events of items that aren't in the
// tree are left out, since a task can have 10,000 of them.
func (m *treeMaker) addLines(n *treeNode, h *history) {
	for i := range h.records {
		line, err := h.line(&h.records[i])
		if err != nil || !n.shows(&h.records[i]) || !m.fits(h.id, &line) {
			n.LeftOut++
			continue
		}
		line.Task, line.Data = h.id, bytes.Clone(line.Data) // it shares memory with other records of its batch
		n.lines = append(n.lines, line)
	}
}

// fits counts a line that the bounds of the tree allow. After the first one that they don't allow, none fits.
func (m *treeMaker) fits(task string, line *events.Line) bool {
	size := noticeBaseBytes + jsonBytes(task, line.Type, line.Step) + len(line.Data)
	if m.full = m.full || m.lines == consoleapi.TreeLinesMax || m.bytes+size > treeLinesMaxBytes; m.full {
		return false
	}
	m.lines++
	m.bytes += size
	return true
}

// shows reports whether an event is about the task, or about one of the items below it.
func (n *treeNode) shows(r *events.Record) bool {
	e, err := events.ReadEvent(r)
	if err != nil || e.Fact.About().Verb != events.VerbItem {
		return true
	}
	step := e.Fact.About().Step
	return slices.ContainsFunc(n.children, func(child *treeNode) bool {
		return child.Item != nil && child.Step == step && events.IsOfItem(e.Fact, *child.Item)
	})
}

// addChildren adds the children of a task, as far as the bounds of the tree allow.
func (m *treeMaker) addChildren(n *treeNode, h *history, task *events.Task) {
	seen := map[string]bool{}
	for i := range h.records {
		e, err := events.ReadEvent(&h.records[i])
		if err != nil {
			continue
		}
		if f, is := e.Fact.(*events.ChildStarted); is {
			m.addChild(n, f.Child, f.Step, nil)
		}
		if f, is := e.Fact.(*events.ItemsBegan); is && !seen[f.Step] {
			seen[f.Step] = true
			m.addItems(n, f.Step, task)
		}
	}
}

// addChild adds a child, or counts it.
func (m *treeMaker) addChild(n *treeNode, id, step string, item *int) {
	if m.tasks+1 >= m.in.PageSize.orDefault() || n.Depth == events.MaxDepth { // the first task counts
		m.leaveOut(consoleapi.TreeMore{Task: n.Task, Step: step, Count: 1, Items: item != nil})
		return
	}
	m.tasks++
	n.children = append(n.children, &treeNode{TreeTask: consoleapi.TreeTask{Task: id, Depth: n.Depth + 1, Parent: n.Task, Step: step, Item: item}})
}

// addItems adds the tasks of items of a step: those that failed or are held first, then those that run.
func (m *treeMaker) addItems(n *treeNode, step string, task *events.Task) {
	i, _ := task.Plan.Step(step)
	it := task.Steps[i].Items
	if it == nil {
		return
	}
	var started []int
	for item := range it.Next {
		if it.Item(item).Attempt > 0 {
			started = append(started, item)
		}
	}
	slices.SortStableFunc(started, func(a, b int) int { return cmp.Compare(itemRank(it.Item(a)), itemRank(it.Item(b))) })
	ids, most := m.c.itemIDs(task), cmp.Or(int(m.in.Items), consoleapi.TreeItemsDefault)
	shown := started[:min(len(started), most)]
	slices.Sort(shown)
	for _, item := range shown {
		if id := ids(i, item); id != "" {
			m.addChild(n, id, step, &item)
		} else {
			m.leaveOut(consoleapi.TreeMore{Task: n.Task, Step: step, Count: 1, Items: true})
		}
	}
	if left := len(started) - len(shown); left > 0 {
		m.leaveOut(consoleapi.TreeMore{Task: n.Task, Step: step, Count: left, Items: true})
	}
}

// itemRank orders items by how much they say about why a task doesn't advance.
func itemRank(x events.Item) int {
	switch {
	case x.Error != nil || x.State == events.StepError:
		return 0
	case x.State == events.StepRunning || x.State == events.StepUndoing:
		return 1
	}
	return 2
}

// leaveOut counts children that aren't in the tree.
func (m *treeMaker) leaveOut(more consoleapi.TreeMore) {
	m.tree.Left += more.Count
	for i := range m.tree.More {
		if at := &m.tree.More[i]; at.Task == more.Task && at.Step == more.Step {
			at.Count += more.Count
			return
		}
	}
	m.tree.More = append(m.tree.More, more)
}

// list lists the tasks of a tree, each before its children.
func (m *treeMaker) list(n *treeNode) {
	m.tree.Tasks = append(m.tree.Tasks, n.TreeTask)
	for _, child := range n.children {
		m.list(child)
	}
}

// mergeLines merges the events of a task and of those below it by time. Those of a task stay in their order. At the same
// instant a task comes before its children.
func mergeLines(n *treeNode) []events.Line {
	merged := n.lines
	for _, child := range n.children {
		merged = mergeTwo(merged, mergeLines(child))
	}
	if merged == nil {
		merged = []events.Line{}
	}
	return merged
}

func mergeTwo(a, b []events.Line) []events.Line {
	out := make([]events.Line, 0, len(a)+len(b))
	for len(a) > 0 && len(b) > 0 {
		if b[0].At < a[0].At { // TimeLayout orders as time does
			out, b = append(out, b[0]), b[1:]
		} else {
			out, a = append(out, a[0]), a[1:]
		}
	}
	return append(append(out, a...), b...)
}
