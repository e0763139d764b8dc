package schedulerworker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/inboxgate"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafka/groupmember"
)

// Poll returns at most MaxPollRecords records of inboxes that aren't paused. It returns (nil, nil) after FetchMaxWait
// or when woken. A record's partition may be one that was added to its inbox: it belongs to that number modulo
// Partitions. Each record is returned once, unless Commit or Abort report that it is delivered again. The order within
// a topic and partition is the log's. A poll that waited in vain commits the positions after transaction markers that
// arrived since the last transaction.
//
// An error is final: ctx has ended, the worker is fenced or refused, or its position is lost. The caller closes it and
// opens a new one.
func (l *Worker) Poll(ctx context.Context) ([]events.Record, error) {
	if err := l.checkOpen(); err != nil {
		return nil, err
	}
	if l.mustAbort && l.polled == 0 {
		if err := l.Abort(ctx); err != nil {
			return nil, err
		}
	}
	l.gate.WithGate(func(g *inboxgate.Gate) { g.ResumeDue(time.Now()) })
	fetches, waited := l.poller.Poll(ctx)
	l.quarantine(groupmember.TakeUnreadable(fetches), time.Now())
	now := l.sinceOpened(time.Now())
	l.lastPoll.Store(now)
	err := groupmember.FetchError(ctx, fetches, l.onDataLost, l.duplicate)
	if err == nil {
		err = errors.Join(l.checkFetchedTopics(fetches), l.positions.endReason())
	}
	if err != nil {
		l.failure = fmt.Errorf("worker %q: poll: %w", l.cfg.Owner, err)
		return nil, l.failure
	}
	l.tail.Observe(fetches)
	if l.polled == 0 && l.cfg.Clock != nil {
		l.decidedBy = l.cfg.Clock.Offset()
	}
	rs := l.admit(fetches)
	switch {
	case len(rs) > 0:
		l.waiting.CompareAndSwap(0, now)
	case waited && l.polled == 0 && !l.mustAbort:
		// The records that an abort returned went to other owners.
		l.waiting.Store(0)
		if l.sawMarkers {
			return nil, l.commitMarkers(ctx)
		}
	}
	if len(rs) == 0 {
		return nil, nil
	}
	return kafka.FromKgo(rs, make([]events.Record, 0, len(rs))), nil
}

// quarantine pauses and reports unreadable partitions.
func (l *Worker) quarantine(found []groupmember.UnreadablePartition, now time.Time) {
	for _, x := range found {
		l.gate.WithGate(func(g *inboxgate.Gate) { l.quarantines.Pause(g, x.At, now) })
		l.cfg.Listener.Corrupt(x.At.Topic, x.At.Partition, x.Err)
	}
}

// admit returns the records of partitions that are restored. Newly assigned partitions are paused, so records of others
// are those fetched before their partition was lost. The client counts them as read, so the transaction must not
// commit.
func (l *Worker) admit(fetches kgo.Fetches) []*kgo.Record {
	rs := make([]*kgo.Record, 0, fetches.NumRecords())
	owned := l.balancer.Assigned()
	fetches.EachPartition(func(fp kgo.FetchTopicPartition) {
		if len(fp.Records) == 0 {
			return
		}
		home := l.home(fp.Partition)
		n, ok := owned[home]
		if !ok || l.restored[home] != n || l.isCutOff(kafka.TopicPartition{Topic: fp.Topic, Partition: fp.Partition}) {
			l.mustAbort = true
			return
		}
		if before, ok := l.polledFrom[home]; ok && before != n {
			l.mustAbort = true
			return
		}
		l.polledFrom[home] = n
		if at := (kafka.TopicPartition{Topic: fp.Topic, Partition: fp.Partition}); len(l.quarantines) > 0 {
			l.gate.WithGate(func(g *inboxgate.Gate) { l.quarantines.Read(g, at) })
		}
		for _, r := range fp.Records {
			if r.Attrs.IsControl() {
				l.sawMarkers = true
				continue
			}
			rs = append(rs, r)
		}
	})
	l.polled += len(rs)
	return rs
}
