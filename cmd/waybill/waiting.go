package main

import (
	"context"
	"errors"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/console"
	"github.com/waybill-run/waybill/internal/kafka"
)

// waitingLookMost bounds the submissions that are read to find one.
const waitingLookMost = 200_000

// errLookedEnough ends a read that has found its record, or looked at as many as it may.
var errLookedEnough = errors.New("enough was read")

// findWaiting looks for a task's submission among those that no scheduler has taken; nil: there is none.
func findWaiting(ctx context.Context, admin *kafka.Admin, reader *kafka.Restorer, ns events.Namespace, partitions int32, id string) (*console.Waiting, error) {
	topic, p := ns.Inbox(events.Tasks), events.Partition([]byte(id), partitions)
	commits, err := admin.Commits(ctx, ns.SchedulerGroup())
	if err != nil {
		return nil, err
	}
	var found *console.Waiting
	before := int64(0)
	in := kafka.Range{Partitions: []int32{p}, From: max(0, commits[topic][p]), Lend: true, Trimmed: func(int32, int64) {}, Damaged: func(*kafka.DamagedError) {}}
	_, err = reader.ReadAll(ctx, topic, in, func(rs []events.Record) error {
		for i := range rs {
			if string(rs[i].Key) == id {
				found = &console.Waiting{Topic: topic, Partition: p, Offset: rs[i].Offset, Before: before}
				return errLookedEnough
			}
			if before++; before >= waitingLookMost {
				return errLookedEnough
			}
		}
		return nil
	}, nil)
	if err != nil && !errors.Is(err, errLookedEnough) {
		return nil, err
	}
	return found, nil
}

// notTaken says that a task isn't in the log, and whether its submission waits for a scheduler.
func (l *logbook) notTaken(ctx context.Context, id string) error {
	if l.history {
		return notFound(id)
	}
	var w *console.Waiting
	err := l.patiently(ctx, func(ctx context.Context) (err error) {
		w, err = findWaiting(ctx, l.admin, l.reader, l.cfg.Namespace, l.partitions, id)
		return err
	})
	switch {
	case err != nil:
		return err
	case w == nil:
		return notFound(id)
	}
	return exit(exitNotFound, "%s", w.Says(id))
}
