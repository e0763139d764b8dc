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
	"github.com/waybill-run/waybill/workflow"
)

// Definition is a definition in the log. If this build can't use it, Definition is null and Fault says why.
type Definition struct {
	Workflow   string                  `json:"workflow"`
	Version    int                     `json:"version"`
	AppliedAt  *string                 `json:"applied_at"`
	Fault      string                  `json:"fault,omitempty"`
	Deprecated *events.DeprecationView `json:"deprecated,omitempty"` // null: it isn't
	Definition *workflow.Definition    `json:"definition"`

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

// Known are the workflows in the log by NAME and NAME/VERSION. Each has why it is deprecated; empty: it isn't. A NAME is
// deprecated if all of its versions are.
type Known map[string]string

// Names returns the workflows in the log. It fails if a partition can't be read.
func Names(ctx context.Context, admin *kafkaadmin.Admin, ns events.Namespace) (Known, error) {
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
	versions := Known{}
	err = admin.ReadCompacted(ctx, topic, func(r events.Record) error {
		key, why := string(r.Key), ""
		if d := events.DeprecationOf(&r); d.Applies() {
			why = d.Why
		}
		if versions[key] = why; len(r.Value) == 0 {
			delete(versions, key)
		}
		return nil
	})
	return versions.withNames(), err
}

// withNames adds the names to the versions.
func (k Known) withNames() Known {
	all := Known{}
	for key, why := range k {
		i := strings.LastIndexByte(key, '/')
		if i < 0 {
			continue
		}
		all[key] = why
		if was, seen := all[key[:i]]; !seen || was != "" {
			all[key[:i]] = why
		}
	}
	return all
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
		if was := events.DeprecationOf(&r); was != nil {
			d.Deprecated, d.AppliedAt = was.View(), events.InstantText(was.AppliedAt)
		}
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

// Unusable says of each definition that this build can't use why not. Tasks of these definitions are refused.
func Unusable(list []Definition) (notes []string) {
	for i := range list {
		if list[i].Fault != "" {
			notes = append(notes, fmt.Sprintf("%s can't be used, so its tasks are refused: %s", list[i].Key(), list[i].Fault))
		}
	}
	return notes
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
