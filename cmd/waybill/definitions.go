package main

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/workflow"
)

// applyDefinition writes a definition unless it exists. Another body for an existing or deleted version is
// refused, because tasks keep the version that they started with. Of concurrent writers one wins; another with
// a different body is refused.
func applyDefinition(ctx context.Context, cfg kafka.Config, d *workflow.Definition) error {
	admin, err := kafka.OpenAdmin(cfg)
	if err != nil {
		return err
	}
	defer admin.Close()
	return kafka.ChangeDefinitions(ctx, cfg, func(all []events.Record) ([]events.Record, error) {
		had, body := findVersions(all, d.Name, d.Version), d.JSON()
		switch {
		case had.first != nil && !sameDefinition(had.first.Value, body):
			return nil, exit(exitRefused, "%s already exists with another body; use a new version (version: %d)", d.Key(), had.newest+1)
		case had.first == nil && had.kept != nil && !sameDefinition(had.kept.Value, body):
			return nil, exit(exitRefused, "%s was deleted, and its tasks still use its other body; use a new version (version: %d)", d.Key(), had.newest+1)
		}
		// Also for an existing definition: its topic may have been deleted.
		for _, name := range d.Agents() {
			if _, err := admin.CreateRequestTopic(ctx, name, events.DefaultPartitions); err != nil {
				return nil, fmt.Errorf("create the request topic of agent %s: %w", name, err)
			}
		}
		if had.first != nil && sameDefinition(had.last.Value, body) {
			return nil, nil
		}
		return []events.Record{definitionRecord(cfg.Namespace, d.Key(), d.Stored())}, nil
	})
}

// definitionRecord is the record of a definition; without a body it is a tombstone.
func definitionRecord(ns events.Namespace, key string, body []byte) events.Record {
	return events.Record{Topic: ns.Definitions(), Partition: -1, Key: []byte(key), Value: body,
		Headers: events.CloudHeaders(events.TypeDefinition, string(ns)+"workflow", key)}
}

// versionsInLog is what the log holds for a definition's key: the current record, the copy that schedulers keep
// of a deleted one (nil if none), and the newest version of the workflow.
type versionsInLog struct {
	first, last, kept *events.Record
	newest            int // highest version of the workflow: this one, or any that was ever written
}

func findVersions(all []events.Record, name string, version int) (u versionsInLog) {
	u.newest = version
	key := events.DefinitionKey(name, version)
	for i := range all {
		r := &all[i]
		of, kept, is := events.ParseDefinitionKey(string(r.Key))
		if !is {
			continue
		}
		if v, found := strings.CutPrefix(of, name+"/"); found {
			if n, err := strconv.Atoi(v); err == nil { // otherwise a foreign key
				u.newest = max(u.newest, n)
			}
		}
		switch {
		case of != key:
		case kept && len(r.Value) == 0:
			u.kept = nil
		case kept:
			u.kept = r
		case len(r.Value) == 0:
			u.first, u.last = nil, nil
		default:
			if u.last = r; u.first == nil {
				u.first = r
			}
		}
	}
	return u
}

// agentsOfDefinitions returns the agents that usable definitions of the namespace name. It returns none if the
// namespace doesn't exist.
func agentsOfDefinitions(ctx context.Context, admin *kafka.Admin, ns events.Namespace) ([]string, error) {
	if _, there, err := admin.TopicPartitions(ctx, ns.Definitions()); err != nil || !there {
		return nil, err
	}
	usable, err := usableDefinitions(ctx, admin, ns)
	return agentsOf(usable), err
}

// usableDefinitions returns the agents of each definition that this build can use, by the definition's key.
func usableDefinitions(ctx context.Context, admin *kafka.Admin, ns events.Namespace) (map[string][]string, error) {
	agents := map[string][]string{}
	err := admin.ReadCompacted(ctx, ns.Definitions(), func(r events.Record) error {
		if _, kept, _ := events.ParseDefinitionKey(string(r.Key)); kept {
			return nil // a copy of a deleted definition: new tasks don't use it
		}
		delete(agents, string(r.Key)) // a later record replaces it, or deletes it
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

// agentsOf returns the agents of definitions without duplicates.
func agentsOf(definitions map[string][]string) []string {
	all := slices.Concat(slices.Collect(maps.Values(definitions))...)
	slices.Sort(all)
	return slices.Compact(all)
}

// sameDefinition reports whether two bodies are equal after the older one is written as this build writes it.
func sameDefinition(old, body []byte) bool {
	if d, err := workflow.ParseJSON(old); err == nil {
		old = d.JSON()
	}
	return bytes.Equal(old, body)
}
