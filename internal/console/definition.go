package console

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/consoleapi"
	"github.com/waybill-run/waybill/internal/graph"
	"github.com/waybill-run/waybill/internal/graph/steps"
	"github.com/waybill-run/waybill/workflow"
)

type (
	definitionPath struct {
		Name    workflowName    `path:"name" jsonschema:"The name of the workflow, percent-encoded."`
		Version workflowVersion `path:"version" jsonschema:"The version."`
	}
	definitionRequest struct {
		definitionPath
		Unfolded bool `query:"unfolded" jsonschema:"true: the layout has a box for each step, also past 200 steps."`
	}
	diffRequest struct {
		definitionPath
		To workflowVersion `query:"to" jsonschema:"The version to compare with. It is required."`
	}
	taskGraphRequest struct {
		taskRequest
		Unfolded bool `query:"unfolded" jsonschema:"true: the layout has a box for each step, also past 200 steps."`
	}
)

// workflowName is the name of a workflow.
type workflowName string

func (n *workflowName) UnmarshalText(text []byte) error {
	*n = workflowName(text)
	if len(text) == 0 || len(text) > events.MaxNameBytes {
		return fmt.Errorf("workflow: a name of 1 to %d bytes", events.MaxNameBytes)
	}
	return nil
}

// workflowVersion is the version of a workflow; 0: none was given.
type workflowVersion int

func (v *workflowVersion) UnmarshalText(text []byte) error {
	n, err := strconv.Atoi(string(text))
	if err != nil || n < 1 || n > workflow.MaxVersion {
		return fmt.Errorf("version: must be 1 to %d", workflow.MaxVersion)
	}
	*v = workflowVersion(n)
	return nil
}

// definition returns a version of a workflow.
func (c *call) definition(in *definitionRequest) (*consoleapi.Definition, error) {
	d, deleted, err := c.findDefinition(in.Name, in.Version)
	if err != nil {
		return nil, err
	}
	v := DescribeDefinition(d, deleted, c.drawings.of(steps.OfDefinition(d), in.Unfolded))
	v.Deprecated = c.deprecation(d.Name, d.Version)
	return v, nil
}

// deprecation returns why and by whom a version was deprecated; nil: it isn't.
func (c *Console) deprecation(name string, version int) *events.DeprecationView {
	for _, w := range c.cfg.Cluster.Workflows() {
		if w.Name == name && w.Version == version {
			return w.Deprecated
		}
	}
	return nil
}

// DescribeDefinition returns a version of a workflow as the API has it. g is the graph of its steps.
func DescribeDefinition(d *workflow.Definition, deleted bool, g consoleapi.StepGraph) *consoleapi.Definition {
	return &consoleapi.Definition{Workflow: d.Name, Version: d.Version, Deleted: deleted, CompleteWithin: d.CompleteWithin.String(), OnError: d.OnError,
		Agents: append([]string{}, d.Agents()...), Source: string(d.YAML()), Body: d.JSON(), Graph: g}
}

// findDefinition returns a version of a workflow. Before it reports that there is none, it reads the definitions to
// their end.
func (c *call) findDefinition(name workflowName, version workflowVersion) (d *workflow.Definition, deleted bool, err error) {
	if d, deleted = c.cfg.Cluster.Definition(string(name), int(version)); d != nil {
		return d, deleted, nil
	}
	ctx, cancel := context.WithTimeout(c.r.Context(), c.timeouts.indexed)
	defer cancel()
	if err := c.cfg.Cluster.ReadWorkflows(ctx); err != nil {
		return nil, false, unavailable("can't check whether workflow %q exists: %v", consoleapi.Printable(string(name)), err)
	}
	if d, deleted = c.cfg.Cluster.Definition(string(name), int(version)); d == nil {
		return nil, false, notFound("there is no version %d of a workflow %q; %s/workflows lists them", version, consoleapi.Printable(string(name)), api)
	}
	return d, deleted, nil
}

// taskGraph returns the graph of a task, from the plan in its first event.
func (c *call) taskGraph(in *taskGraphRequest) (*consoleapi.TaskGraph, error) {
	h, err := c.historyUntil(&in.taskRequest, 1)
	if err != nil {
		return nil, err
	}
	task, _, err := h.fold()
	if err != nil {
		return nil, err
	}
	return &consoleapi.TaskGraph{Task: h.id, Workflow: task.Workflow, Version: task.Version, Graph: c.drawings.of(steps.OfPlan(task.Plan), in.Unfolded)}, nil
}

// drawingsMax bounds the drawings that a console keeps.
const drawingsMax = 64

// drawings keeps the drawings of graphs, since many requests ask for few. It is safe for concurrent use.
type drawings struct {
	mu   sync.Mutex
	kept map[[sha256.Size]byte]*graph.Drawing
}

// of returns a graph with its drawing.
func (d *drawings) of(vs []graph.Vertex, unfolded bool) consoleapi.StepGraph {
	text, err := json.Marshal(vs)
	if err != nil {
		panic("console: the steps of a graph: " + err.Error()) // they are texts
	}
	key := sha256.Sum256(append(text, strconv.FormatBool(unfolded)...))
	d.mu.Lock()
	drawn := d.kept[key]
	d.mu.Unlock()
	if drawn == nil {
		drawn = graph.Draw(vs, unfolded) // without the lock: another request may draw it, too
		d.mu.Lock()
		if d.kept == nil || len(d.kept) >= drawingsMax {
			d.kept = map[[sha256.Size]byte]*graph.Drawing{}
		}
		d.kept[key] = drawn
		d.mu.Unlock()
	}
	return consoleapi.StepGraph{Steps: vs, Layout: drawn}
}

// definitionDiff compares two versions of a workflow.
func (c *call) definitionDiff(in *diffRequest) (*consoleapi.DefinitionDiff, error) {
	if in.To == 0 {
		return nil, badRequest("to is missing: the version to compare with")
	}
	from, _, err := c.findDefinition(in.Name, in.Version)
	if err != nil {
		return nil, err
	}
	to, _, err := c.findDefinition(in.Name, in.To)
	if err != nil {
		return nil, err
	}
	return CompareDefinitions(from, to), nil
}

// CompareDefinitions returns what differs between two versions.
func CompareDefinitions(from, to *workflow.Definition) *consoleapi.DefinitionDiff {
	v := &consoleapi.DefinitionDiff{Workflow: from.Name, From: from.Version, To: to.Version, Added: []string{}, Removed: []string{}, Changed: []string{}, Changes: []consoleapi.Change{},
		Lines: diffLines(string(from.YAML()), string(to.YAML()))}
	compareJSON("", from.JSON(), to.JSON(), &v.Changes)
	for i := range to.Steps {
		if id := to.Steps[i].ID; from.Index(id) < 0 {
			v.Added = append(v.Added, id)
		} else if slices.ContainsFunc(v.Changes, func(c consoleapi.Change) bool { return strings.HasPrefix(c.Path, "steps."+id+".") }) {
			v.Changed = append(v.Changed, id)
		}
	}
	for i := range from.Steps {
		if id := from.Steps[i].ID; to.Index(id) < 0 {
			v.Removed = append(v.Removed, id)
		}
	}
	return v
}

// compareJSON appends the fields that differ, by path. The members of objects are compared one by one, anything else as a
// whole. Both texts are canonical, so equal values have equal texts.
func compareJSON(path string, before, after json.RawMessage, list *[]consoleapi.Change) {
	if bytes.Equal(before, after) {
		return
	}
	was, wasErr := members(before)
	is, isErr := members(after)
	if errors.Join(wasErr, isErr) != nil || was == nil || is == nil {
		if before == nil {
			before = json.RawMessage("null")
		}
		if after == nil {
			after = json.RawMessage("null")
		}
		*list = append(*list, consoleapi.Change{Path: path, Before: before, After: after})
		return
	}
	all := maps.Clone(was)
	maps.Copy(all, is)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		at := name
		if path != "" {
			at = path + "." + name
		}
		compareJSON(at, was[name], is[name], list)
	}
}

// members returns the members of an object; nil of anything else.
func members(raw json.RawMessage) (m map[string]json.RawMessage, err error) {
	if len(raw) == 0 || raw[0] != '{' {
		return nil, nil
	}
	err = json.Unmarshal(raw, &m)
	return m, err
}
