package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/console"
	"github.com/waybill-run/waybill/internal/kafka"
)

// waitingLookMost bounds the submissions that are read to find one.
const waitingLookMost = 200_000

// errLookedEnough ends a read that has found its record, or looked at as many as it may.
var errLookedEnough = errors.New("enough was read")

// waitingLook looks for a task's submission among those that no scheduler has taken.
type waitingLook struct {
	topic, id string
	looked    int // at as many
	found     *console.Waiting
}

// findWaiting looks for a task's submission among those that no scheduler has taken; nil: there is none. It lies in the
// task's own partition, unless a foreign client chose another, with the id as the key or without one.
func findWaiting(ctx context.Context, admin *kafka.Admin, reader *kafka.Restorer, ns events.Namespace, partitions int32, id string) (*console.Waiting, error) {
	look := &waitingLook{topic: ns.Inbox(events.Tasks), id: id}
	ends, err := admin.KnownEndOffsets(ctx, look.topic)
	if err != nil {
		return nil, err
	}
	commits, err := admin.Commits(ctx, ns.SchedulerGroup())
	if err != nil {
		return nil, err
	}
	own := events.Partition([]byte(id), partitions)
	var away []int32
	for i := range partitions {
		p := (own + i) % partitions
		from := max(0, commits[look.topic][p])
		end, led := ends[p]
		switch {
		case !led && p != own:
			away = append(away, p)
			continue
		case led && end <= from:
			continue // nothing waits there
		}
		if err := look.in(ctx, reader, p, from); err != nil || look.found != nil {
			return look.found, err
		}
	}
	if len(away) > 0 {
		return nil, fmt.Errorf("no broker leads the partitions %v of %s, where a client with another partitioner may have written it", away, look.topic)
	}
	return nil, nil
}

// in looks in one partition.
func (l *waitingLook) in(ctx context.Context, reader *kafka.Restorer, p int32, from int64) error {
	before := int64(0)
	in := kafka.Range{Partitions: []int32{p}, From: from, ReuseBuffers: true, Trimmed: func(int32, int64) {}, Damaged: func(*kafka.DamagedError) {}}
	_, err := reader.ReadAll(ctx, l.topic, in, func(rs []events.Record) error {
		for i := range rs {
			if l.looked++; l.looked > waitingLookMost {
				return errLookedEnough
			}
			if submits(&rs[i], l.id) {
				l.found = &console.Waiting{Topic: l.topic, Partition: p, Offset: rs[i].Offset, Before: before}
				return errLookedEnough
			}
			before++
		}
		return nil
	}, nil)
	switch {
	case !errors.Is(err, errLookedEnough):
		return err
	case l.found == nil:
		return fmt.Errorf("it isn't among the first %d that wait, and no more are looked at", waitingLookMost)
	}
	return nil
}

// submits reports whether a record is the submission of a task: its key says so, or, of one without a key, its value.
func submits(r *events.Record, id string) bool {
	if len(r.Key) > 0 {
		return string(r.Key) == id
	}
	task, _, err := events.DecodeInput(events.Tasks, r)
	return err == nil && task == id
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
		return fmt.Errorf("%w; whether its submission waits can't be told: %w", notFound(id), err)
	case w == nil:
		return notFound(id)
	}
	return exit(exitNotFound, "%s", w.Says(id))
}
