package intakerun

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/intake"
	"github.com/waybill-run/waybill/internal/kafka/kafkaadmin"
	"github.com/waybill-run/waybill/internal/registry"
)

// Views returns the intakes in the log, ordered by name, with their positions as far as the brokers say them.
func Views(ctx context.Context, admin *kafkaadmin.Admin, ns events.Namespace) ([]intake.IntakeStatus, error) {
	list, err := registry.ListNamed(ctx, admin, ns, events.IntakeDefinition)
	if err != nil {
		return nil, err
	}
	views := make([]intake.IntakeStatus, len(list))
	var asking errgroup.Group // view can't fail
	asking.SetLimit(viewsAtOnce)
	for i := range list {
		asking.Go(func() error {
			views[i] = view(ctx, admin, ns, &list[i])
			return nil
		})
	}
	return views, asking.Wait()
}

// viewsAtOnce bounds the groups of intakes that are asked for in parallel.
const viewsAtOnce = 8

func view(ctx context.Context, admin *kafkaadmin.Admin, ns events.Namespace, d *registry.Named) intake.IntakeStatus {
	v := intake.IntakeStatus{Name: d.Name, State: intake.StateStopped, Partitions: []intake.IntakePartition{}, Fault: d.Fault, AppliedAt: events.InstantText(d.At), By: d.By.Who, Claimed: d.By.Claimed, Why: d.By.Why}
	if d.Fault == "" {
		program, err := intake.ParseStored(d.Body, ns)
		if err != nil {
			v.Fault = err.Error()
		} else {
			def := program.Definition
			v.Topic, v.Format, v.Definition, v.To = def.Topic, def.Format, d.Body, def.To()
		}
	}
	if v.Fault != "" {
		v.State = intake.StateFault
		return v
	}
	group := intake.Group(ns, d.Name)
	state, gerr := admin.DescribeGroup(ctx, group)
	if v.Members = len(state.Members); v.Members > 0 {
		v.State = intake.StateRunning
	}
	if d.Paused != nil {
		v.State, v.Why = intake.StatePaused, cmp.Or(d.Paused.Why, v.Why)
	}
	offsets, err := offsetsOf(ctx, admin, group, v.Topic)
	if err == nil {
		for i := range state.Members {
			m := &state.Members[i]
			for _, p := range m.Partitions[v.Topic] {
				offsets.Workers[p] = cmp.Or(m.Owner, m.ID)
			}
		}
		v.Partitions, v.Lag, err = offsets.Positions()
	}
	if err := errors.Join(gerr, err); err != nil {
		v.Fault = err.Error()
	}
	return v
}

// offsetsOf returns the offsets of a topic, and a group's positions in it.
func offsetsOf(ctx context.Context, admin *kafkaadmin.Admin, group, topic string) (*intake.Offsets, error) {
	partitions, exists, err := admin.TopicPartitions(ctx, topic)
	if err != nil {
		return nil, err
	}
	if !exists {
		return nil, fmt.Errorf("the topic %s doesn't exist, or this principal may not see it", topic)
	}
	commits, err := admin.Commits(ctx, group) // before the ends: a position must not seem to be beyond them
	if err != nil {
		return nil, err
	}
	ends, err := admin.KnownEndOffsets(ctx, topic) // before the starts: a trim must not put a start above them
	if err != nil {
		return nil, err
	}
	starts, err := admin.KnownStartOffsets(ctx, topic)
	return &intake.Offsets{Partitions: partitions, Committed: commits[topic], Starts: starts, Ends: ends, Workers: map[int32]string{}}, err
}
