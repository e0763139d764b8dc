package registry

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka/kafkaadmin"
	"github.com/waybill-run/waybill/scheduler"
	"github.com/waybill-run/waybill/workflow"
)

// Definition is a definition in the log. If this build can't use it, Definition is null and Fault says why.
type Definition struct {
	Workflow   string               `json:"workflow"`
	Version    int                  `json:"version"`
	AppliedAt  *string              `json:"applied_at"`
	Fault      string               `json:"fault,omitempty"`
	Definition *workflow.Definition `json:"definition"`

	// Deleted means that this is the copy of a deleted definition that schedulers keep for tasks that began with it.
	Deleted bool `json:"-"`
}

// Key is the key of the definition, NAME/VERSION.
func (d *Definition) Key() string { return events.DefinitionKey(d.Workflow, d.Version) }

// List returns the definitions in the log, ordered by name and version, without deleted ones.
func List(ctx context.Context, admin *kafkaadmin.Admin, ns events.Namespace) ([]Definition, error) {
	all, err := ListAll(ctx, admin, ns)
	return slices.DeleteFunc(all, func(d Definition) bool { return d.Deleted }), err
}

// ListIfCreated returns none if the namespace's topics don't exist yet.
func ListIfCreated(ctx context.Context, admin *kafkaadmin.Admin, ns events.Namespace) ([]Definition, error) {
	if _, exists, err := admin.TopicPartitions(ctx, ns.Definitions()); err != nil || !exists {
		return nil, err
	}
	return List(ctx, admin, ns)
}

// ListAll also returns deleted definitions that tasks still use.
func ListAll(ctx context.Context, admin *kafkaadmin.Admin, ns events.Namespace) ([]Definition, error) {
	last := map[string]events.Record{}
	err := admin.ReadCompacted(ctx, ns.Definitions(), func(r events.Record) error {
		last[string(r.Key)] = r
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the definitions: %w", err)
	}
	return parse(last), nil
}

// Names returns the workflows in the log, as NAME and NAME/VERSION. It fails if a partition can't be read.
func Names(ctx context.Context, admin *kafkaadmin.Admin, ns events.Namespace) (map[string]bool, error) {
	topic := ns.Definitions()
	partitions, _, err := admin.TopicPartitions(ctx, topic)
	if err != nil {
		return nil, err
	}
	ends, err := admin.KnownEndOffsets(ctx, topic)
	if err != nil {
		return nil, fmt.Errorf("end of %s: %w", topic, err)
	}
	if len(ends) < int(partitions) {
		return nil, fmt.Errorf("no broker leads %d of the %d partitions of %s", int(partitions)-len(ends), partitions, topic)
	}
	keys := map[string]bool{}
	err = admin.ReadCompacted(ctx, topic, func(r events.Record) error {
		keys[string(r.Key)] = len(r.Value) > 0
		return nil
	})
	names := map[string]bool{}
	for key, there := range keys {
		if i := strings.LastIndexByte(key, '/'); there && i >= 0 {
			names[key[:i]], names[key] = true, true
		}
	}
	return names, err
}

// parse returns the definitions of the last record of each key.
func parse(last map[string]events.Record) (list []Definition) {
	for key, r := range last {
		of, kept, is := events.ParseDefinitionKey(key)
		if !is || kept && len(last[of].Value) > 0 { // the format record, or a copy of what was applied again
			continue
		}
		name, text, _ := strings.Cut(of, "/")
		version, err := strconv.Atoi(text)
		if err != nil || len(r.Value) == 0 { // a foreign key, or deleted
			continue
		}
		d := Definition{Workflow: name, Version: version, AppliedAt: events.InstantText(r.Time), Deleted: kept}
		if d.Definition, err = workflow.ParseJSON(r.Value); err != nil {
			d.Fault, d.Definition = err.Error(), nil
		}
		list = append(list, d)
	}
	slices.SortFunc(list, func(a, b Definition) int {
		return cmp.Or(strings.Compare(a.Workflow, b.Workflow), a.Version-b.Version)
	})
	return list
}

// Find returns the definition that NAME/VERSION names, or the newest one of NAME; nil if there is none.
func Find(list []Definition, what string) *Definition {
	name, version, _ := strings.Cut(what, "/")
	for i := range slices.Backward(list) {
		if list[i].Workflow == name && (version == "" || version == strconv.Itoa(list[i].Version)) {
			return &list[i]
		}
	}
	return nil
}

// Usable returns the keys of the definitions that this build can use.
func Usable(list []Definition) (keys []string) {
	for i := range list {
		if list[i].Definition != nil {
			keys = append(keys, list[i].Key())
		}
	}
	return keys
}

// Agents returns the agents that the definitions name, sorted and without duplicates.
func Agents(list []Definition) (agents []string) {
	for i := range list {
		if list[i].Definition != nil {
			agents = append(agents, list[i].Definition.Agents()...)
		}
	}
	slices.Sort(agents)
	return slices.Compact(agents)
}

// Parse parses the definition in a file. It refuses one whose plan is too large: a scheduler would refuse each of its
// tasks.
func Parse(file string, src []byte) (*workflow.Definition, error) {
	d, err := workflow.ParseYAML(file, src)
	if err != nil {
		return nil, err
	}
	p, err := workflow.Compile(d)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if n := scheduler.PlanOf(p).Bytes(); n > scheduler.MaxPlanBytes {
		return nil, fmt.Errorf("%s: the plan of %s, which each of its tasks would hold, has %d bytes; at most %d (%d KiB): "+
			"give steps shorter names or fewer needs, or split the workflow", file, d.Key(), n, scheduler.MaxPlanBytes, scheduler.MaxPlanBytes>>10)
	}
	return d, nil
}
