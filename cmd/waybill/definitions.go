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

// applyDefinition writes a definition, unless it is there already. A changed
// body under an old version is refused: tasks keep the version that they
// started with.
//
// Another may write one of the same version between this one's look and its write. The first in the log
// counts, for schedulers that run keep it. So it is looked at again, and whose body isn't the first is
// refused, once he has written that one again: compaction keeps the last, for schedulers that come later.
func applyDefinition(ctx context.Context, cfg kafka.Config, producer *kafka.Producer, d *workflow.Definition) error {
	admin, err := kafka.OpenAdmin(cfg)
	if err != nil {
		return err
	}
	defer admin.Close()
	had, err := writtenUnder(ctx, admin, cfg.Namespace, d)
	if err != nil {
		return err
	}
	body := d.JSON()
	if had.first != nil && !same(had.first.Value, body) {
		return exit(exitRefused, "%s is there already, with another body; give the change a new version (version: %d)", d.Key(), had.newest+1)
	}
	// Also of a definition that is there: a topic of it may have been deleted.
	for _, name := range d.Agents() {
		if _, err := admin.CreateRequestTopic(ctx, name, events.DefaultPartitions); err != nil {
			return fmt.Errorf("create the request topic of agent %s: %w", name, err)
		}
	}
	if had.first != nil && same(had.last.Value, body) {
		return nil
	}
	r := events.Record{Topic: cfg.Namespace.Definitions(), Partition: -1, Key: []byte(d.Key()), Value: d.Stored(),
		Headers: events.CloudHeaders(events.TypeDefinition, string(cfg.Namespace)+"workflow", d.Key())}
	if err := producer.Send(ctx, r); err != nil {
		return fmt.Errorf("write the definition: %w", err)
	}
	return settleDefinition(ctx, admin, cfg.Namespace, producer, d)
}

// settleDefinition looks whether a definition that was written is the first of its version.
func settleDefinition(ctx context.Context, admin *kafka.Admin, ns events.Namespace, producer *kafka.Producer, d *workflow.Definition) error {
	has, err := writtenUnder(ctx, admin, ns, d)
	if err != nil || has.first == nil || same(has.first.Value, d.JSON()) {
		return err // first nil: it was deleted since, by whoever could
	}
	again := *has.first
	again.Partition = -1
	if err := producer.Send(ctx, again); err != nil {
		return fmt.Errorf("another `workflow apply` of %s was at work and came first, with another body, which counts; it could not be written again, "+
			"so schedulers that start later may read this one: apply the other again: %w", d.Key(), err)
	}
	return exit(exitRefused, "another `workflow apply` of %s was at work and came first, with another body: that one counts; give the change a new version (version: %d)",
		d.Key(), has.newest+1)
}

// under is what the log has under a definition's key, since it was deleted last; nil: nothing.
type under struct {
	first, last *events.Record
	newest      int // version under the definition's name, of its own and those that were ever written
}

func writtenUnder(ctx context.Context, admin *kafka.Admin, ns events.Namespace, d *workflow.Definition) (u under, err error) {
	u.newest = d.Version
	err = admin.ReadCompacted(ctx, ns.Definitions(), func(r events.Record) error {
		if version, of := strings.CutPrefix(string(r.Key), d.Name+"/"); of {
			if v, err := strconv.Atoi(version); err == nil { // no number: a key of somebody else's
				u.newest = max(u.newest, v)
			}
		}
		switch {
		case string(r.Key) != d.Key():
		case len(r.Value) == 0:
			u.first, u.last = nil, nil
		default:
			if u.last = &r; u.first == nil {
				u.first = &r
			}
		}
		return nil
	})
	if err != nil {
		return u, fmt.Errorf("read the definitions: %w", err)
	}
	return u, nil
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
