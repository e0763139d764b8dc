package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka/logreader"
	"github.com/waybill-run/waybill/internal/verify"
)

// logVerification feeds the log of the brokers to a check.
type logVerification struct {
	*logbook
	parts []int32
	check *verify.Partitioned
}

// choosePartitions returns the partitions of --partition; none means all.
func (l *logbook) choosePartitions(partitions []int) (parts []int32, err error) {
	for _, p := range partitions {
		if p < 0 || p >= int(l.partitions) {
			return nil, usage("--partition %d: the namespace %s has the partitions 0 to %d", p, l.cfg.Namespace, l.partitions-1)
		}
		parts = append(parts, int32(p))
	}
	if partitions == nil {
		for p := range l.partitions {
			parts = append(parts, p)
		}
	}
	slices.Sort(parts)
	return slices.Compact(parts), nil
}

// run reads in the order that verify.Partitioned asks for.
func (v *logVerification) run(ctx context.Context, o verify.Options) (*verify.Result, error) {
	ns := v.cfg.Namespace
	o.Deadletters = true
	var err error
	if o.DeadlettersStart, err = v.offsets(ctx, "start", ns.Deadletters(), v.admin.StartOffsets); err != nil {
		return nil, err
	}
	there, err := v.offsets(ctx, "committed end", ns.Events(), v.admin.KnownCommittedEndOffsets)
	if err != nil {
		return nil, err
	}
	if o.TopicIDs, err = v.admin.InboxTopicIDs(ctx); err != nil {
		return nil, err
	}
	v.check = verify.NewPartitioned(v.parts, o)
	v.check.EventsThere(there)
	for i := range events.Inboxes {
		if err := v.readInbox(ctx, i); err != nil {
			return nil, err
		}
	}
	next, err := v.readPartitions(ctx, ns.Events(), logreader.Range{Since: o.Since}, v.check.Event)
	if err != nil {
		return nil, err
	}
	c := v.check.Merge()
	_, err = v.read(ctx, ns.Deadletters(), logreader.Range{ReuseBuffers: true}, func(r *events.Record) error {
		c.Deadletter(r)
		return nil
	})
	if err != nil {
		return nil, err
	}
	if v.readIncomplete(ns.Deadletters()) {
		c.DeadlettersMissing()
	}
	if err := v.readSchedules(ctx, c); err != nil {
		return nil, err
	}
	report := c.Finish(time.Now())
	result := report.Result(o, next)
	if line := report.Timeline(); line != nil {
		result.Timeline, err = v.readTimeline(ctx, line)
	}
	return result, err
}

// readSchedules feeds the topic of schedules. A namespace that was created before there were schedules has none.
func (v *logVerification) readSchedules(ctx context.Context, c *verify.Checker) error {
	topic := v.cfg.Namespace.Schedules()
	if _, exists, err := v.admin.TopicPartitions(ctx, topic); err != nil || !exists {
		return err
	}
	_, err := v.read(ctx, topic, logreader.Range{ReuseBuffers: true}, func(r *events.Record) error {
		c.Schedule(r)
		return nil
	})
	if err == nil && !v.readIncomplete(topic) {
		c.SchedulesRead()
	}
	return err
}

// offsets requests one kind of offset of each partition of a topic.
func (v *logVerification) offsets(ctx context.Context, what, topic string, ask func(context.Context, string) (map[int32]int64, error)) (at map[int32]int64, err error) {
	err = v.askBrokers(ctx, func(ctx context.Context) error {
		at, err = ask(ctx, topic)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("%s of %s: %w", what, topic, err)
	}
	return at, nil
}

// readInbox feeds the records of an inbox. The inbox may be trimmed meanwhile.
func (v *logVerification) readInbox(ctx context.Context, i events.Inbox) error {
	next, err := v.readPartitions(ctx, v.cfg.Namespace.Inbox(i), logreader.Range{Trimmed: v.check.Trimmed}, v.check.Input)
	if err != nil {
		return err
	}
	v.check.InboxRead(i, next)
	return nil
}

// readPartitions feeds the chosen partitions of a topic in parallel, and returns the offset at which each read ended.
func (v *logVerification) readPartitions(ctx context.Context, topic string, in logreader.Range, feed func(*events.Record)) (map[int32]int64, error) {
	in.Partitions, in.Concurrent, in.ReuseBuffers = v.parts, true, true
	in.Corrupt = func(d *logreader.CorruptError) { v.check.Corrupt(d.Topic, d.Partition, d.Offset, d.Keys, d.Error()) }
	return v.read(ctx, topic, in, func(r *events.Record) error {
		feed(r)
		return nil
	})
}

// readTimeline reads the events around a fault.
func (v *logVerification) readTimeline(ctx context.Context, line *verify.Timeline) ([]events.Line, error) {
	p := line.Fault.Partition
	if line.Fault.Task != "" && line.Fault.Topic != "events" {
		p = v.partition(line.Fault.Task)
	}
	_, err := v.read(ctx, v.cfg.Namespace.Events(), logreader.Range{Partitions: []int32{p}, Corrupt: func(*logreader.CorruptError) {}}, func(r *events.Record) error {
		line.Add(r)
		return nil
	})
	return line.Lines(), err
}
