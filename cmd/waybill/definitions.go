package main

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/workflow"
)

// applyDefinition writes a definition, unless it is there already. A changed
// body under an old version is refused: tasks keep the version that they
// started with.
func applyDefinition(ctx context.Context, cfg kafka.Config, producer *kafka.Producer, d *workflow.Definition) error {
	admin, err := kafka.OpenAdmin(cfg)
	if err != nil {
		return err
	}
	defer admin.Close()
	var had []byte
	err = admin.ReadCompacted(ctx, cfg.Namespace.Definitions(), func(r events.Record) error {
		if string(r.Key) == d.Key() {
			had = r.Value
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("read the definitions: %w", err)
	}
	body := d.JSON()
	if had != nil && !same(had, body) {
		return exit(exitRefused, "%s is there already, with another body; give the change a new version (version: %d)", d.Key(), d.Version+1)
	}
	// Also of a definition that is there: a topic of it may have been deleted.
	for _, name := range d.Agents() {
		if _, err := admin.CreateRequestTopic(ctx, name, events.DefaultPartitions); err != nil {
			return fmt.Errorf("create the request topic of agent %s: %w", name, err)
		}
	}
	if had != nil {
		return nil
	}
	r := events.Record{Topic: cfg.Namespace.Definitions(), Partition: -1, Key: []byte(d.Key()), Value: d.Stored(),
		Headers: events.CloudHeaders(events.TypeDefinition, string(cfg.Namespace)+"workflow", d.Key())}
	if err := producer.Send(ctx, r); err != nil {
		return fmt.Errorf("write the definition: %w", err)
	}
	return nil
}

// agentsOfDefinitions are the agents that the namespace's definitions name, of those that
// this build can use; none where there is no namespace yet.
func agentsOfDefinitions(ctx context.Context, admin *kafka.Admin, ns events.Namespace) ([]string, error) {
	if _, there, err := admin.TopicPartitions(ctx, ns.Definitions()); err != nil || !there {
		return nil, err
	}
	usable, err := usableDefinitions(ctx, admin, ns)
	return agentsOf(usable), err
}

// usableDefinitions are those that this build can use: the agents that each names, by its key.
func usableDefinitions(ctx context.Context, admin *kafka.Admin, ns events.Namespace) (map[string][]string, error) {
	agents := map[string][]string{}
	err := admin.ReadCompacted(ctx, ns.Definitions(), func(r events.Record) error {
		delete(agents, string(r.Key)) // a later one counts, or was deleted
		if d, err := workflow.ParseJSON(r.Value); err == nil {
			agents[string(r.Key)] = d.Agents()
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the definitions: %w", err)
	}
	return agents, nil
}

// agentsOf are the agents of definitions, each once.
func agentsOf(definitions map[string][]string) []string {
	all := slices.Concat(slices.Collect(maps.Values(definitions))...)
	slices.Sort(all)
	return slices.Compact(all)
}

// same compares two bodies, the older one as this build would write it.
func same(old, body []byte) bool {
	if d, err := workflow.ParseJSON(old); err == nil {
		old = d.JSON()
	}
	return bytes.Equal(old, body)
}
