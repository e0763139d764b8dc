package onkafka

import (
	"context"
	"errors"
	"fmt"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/console"
	"github.com/waybill-run/waybill/internal/kafka/kafkaadmin"
	"github.com/waybill-run/waybill/internal/kafka/logreader"
)

// searchMax bounds the records that are read to find a submission.
const searchMax = 200_000

// errSearchDone ends a read that found its record or reached searchMax.
var errSearchDone = errors.New("enough was read")

// search looks for a task's submission among those that no scheduler has consumed.
type search struct {
	topic, id string
	looked    int // records read so far
	found     *console.Waiting
}

// FindWaiting returns the submission of a task that no scheduler has consumed, or nil. It is in the
// task's own partition, unless a foreign client used another partitioner.
func FindWaiting(ctx context.Context, admin *kafkaadmin.Admin, reader *logreader.Restorer, ns events.Namespace, partitions int32, id string) (*console.Waiting, error) {
	look := &search{topic: ns.Inbox(events.Tasks), id: id}
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
			continue // no pending records
		}
		if err := look.searchPartition(ctx, reader, p, from); err != nil || look.found != nil {
			return look.found, err
		}
	}
	if len(away) > 0 {
		return nil, fmt.Errorf("the partitions %v of %s have no leader, and a client with another partitioner may have written it there", away, look.topic)
	}
	return nil, nil
}

// searchPartition searches one partition.
func (l *search) searchPartition(ctx context.Context, reader *logreader.Restorer, p int32, from int64) error {
	before := int64(0)
	in := logreader.Range{Partitions: []int32{p}, From: from, ReuseBuffers: true, Trimmed: func(int32, int64) {}, Corrupt: func(*logreader.CorruptError) {}}
	_, err := reader.ReadAll(ctx, l.topic, in, func(rs []events.Record) error {
		for i := range rs {
			if l.looked++; l.looked > searchMax {
				return errSearchDone
			}
			if isSubmissionOf(&rs[i], l.id) {
				l.found = &console.Waiting{Topic: l.topic, Partition: p, Offset: rs[i].Offset, Before: before}
				return errSearchDone
			}
			before++
		}
		return nil
	}, nil)
	switch {
	case !errors.Is(err, errSearchDone):
		return err
	case l.found == nil:
		return fmt.Errorf("it isn't among the first %d pending submissions, and the search ends there", searchMax)
	}
	return nil
}

// isSubmissionOf reports whether a record is the submission of a task, by its key or, without one, by its
// value.
func isSubmissionOf(r *events.Record, id string) bool {
	if len(r.Key) > 0 {
		return string(r.Key) == id
	}
	task, _, err := events.DecodeInput(events.Tasks, r)
	return err == nil && task == id
}
