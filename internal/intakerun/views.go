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

// Views returns the intakes in the log, ordered by name, with their lags as far as the brokers say them.
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
	v := intake.IntakeStatus{Name: d.Name, State: intake.StateStopped, Fault: d.Fault, AppliedAt: events.InstantText(d.At), By: d.By.Who, Claimed: d.By.Claimed, Why: d.By.Why}
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
	lag, lerr := lagOf(ctx, admin, group, v.Topic)
	if v.Members = len(state.Members); v.Members > 0 {
		v.State = intake.StateRunning
	}
	if v.Lag = lag; d.Paused != nil {
		v.State, v.Why = intake.StatePaused, cmp.Or(d.Paused.Why, v.Why)
	}
	_, exists, terr := admin.TopicPartitions(ctx, v.Topic)
	if terr == nil && !exists {
		terr = fmt.Errorf("the topic %s doesn't exist, or this principal may not see it", v.Topic)
	}
	if err := errors.Join(gerr, lerr, terr); err != nil {
		v.Fault = err.Error()
	}
	return v
}

// lagOf returns how many records a group has still to consume; nil: it has no position, or the topic doesn't exist.
func lagOf(ctx context.Context, admin *kafkaadmin.Admin, group, topic string) (*int64, error) {
	commits, err := admin.Commits(ctx, group)
	if err != nil {
		return nil, err
	}
	if len(commits[topic]) == 0 {
		return nil, nil
	}
	lag, err := admin.GroupLag(ctx, group, topic)
	if err != nil {
		return nil, err
	}
	sum := int64(0)
	for _, behind := range lag[topic] {
		sum += behind
	}
	return &sum, nil
}
