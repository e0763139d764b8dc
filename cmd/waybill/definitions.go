package main

import (
	"bytes"
	"context"
	"fmt"

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
	if had != nil {
		if same(had, body) {
			return nil
		}
		return exit(exitRefused, "%s is there already, with another body; give the change a new version (version: %d)", d.Key(), d.Version+1)
	}
	for _, name := range d.Agents() {
		if _, err := admin.CreateRequestTopic(ctx, name, events.DefaultPartitions); err != nil {
			return fmt.Errorf("create the request topic of agent %s: %w", name, err)
		}
	}
	r := events.Record{Topic: cfg.Namespace.Definitions(), Partition: -1, Key: []byte(d.Key()), Value: d.Stored(),
		Headers: events.CloudHeaders(events.TypeDefinition, string(cfg.Namespace)+"workflow", d.Key())}
	if err := producer.Send(ctx, r); err != nil {
		return fmt.Errorf("write the definition: %w", err)
	}
	return nil
}

// same compares two bodies, the older one as this build would write it.
func same(old, body []byte) bool {
	if d, err := workflow.ParseJSON(old); err == nil {
		old = d.JSON()
	}
	return bytes.Equal(old, body)
}
