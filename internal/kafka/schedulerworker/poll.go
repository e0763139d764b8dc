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
func (w *Worker) Poll(ctx context.Context) ([]events.Record, error) {
	if err := w.checkOpen(); err != nil {
		return nil, err
	}
	if w.mustAbort && w.polled == 0 {
		if err := w.Abort(ctx); err != nil {
			return nil, err
		}
	}
	w.gate.WithGate(func(g *inboxgate.Gate) { g.ResumeDue(time.Now()) })
	fetches, waited := w.poller.Poll(ctx)
	w.quarantine(groupmember.TakeUnreadable(fetches), time.Now())
	now := w.sinceOpened(time.Now())
	w.lastPoll.Store(now)
	err := groupmember.FetchError(ctx, fetches, w.onDataLost, w.duplicate)
	if err == nil {
		err = errors.Join(w.checkFetchedTopics(fetches), w.positions.endReason())
	}
	if err != nil {
		w.failure = fmt.Errorf("worker %q: poll: %w", w.cfg.Owner, err)
		return nil, w.failure
	}
	w.tail.Observe(fetches)
	if w.polled == 0 && w.cfg.Clock != nil {
		w.decidedBy = w.cfg.Clock.Offset()
	}
	rs := w.admit(fetches)
	switch {
	case len(rs) > 0:
		w.waiting.CompareAndSwap(0, now)
	case waited && w.polled == 0 && !w.mustAbort:
		// The records that an abort returned went to other owners.
		w.waiting.Store(0)
		if w.sawMarkers {
			return nil, w.commitMarkers(ctx)
		}
	}
	if len(rs) == 0 {
		return nil, nil
	}
	return kafka.FromKgo(rs, make([]events.Record, 0, len(rs))), nil
}

// quarantine pauses and reports unreadable partitions.
func (w *Worker) quarantine(found []groupmember.UnreadablePartition, now time.Time) {
	for _, x := range found {
		w.gate.WithGate(func(g *inboxgate.Gate) { w.quarantines.Pause(g, x.At, now) })
		w.cfg.Listener.Corrupt(x.At.Topic, x.At.Partition, x.Err)
	}
}

// admit returns the records of partitions that are restored. Newly assigned partitions are paused, so records of others
// are those fetched before their partition was lost. The client counts them as read, so the transaction must not
// commit.
func (w *Worker) admit(fetches kgo.Fetches) []*kgo.Record {
	rs := make([]*kgo.Record, 0, fetches.NumRecords())
	owned := w.balancer.Assigned()
	fetches.EachPartition(func(fp kgo.FetchTopicPartition) {
		if len(fp.Records) == 0 {
			return
		}
		home := w.home(fp.Partition)
		n, ok := owned[home]
		if !ok || w.restored[home] != n || w.isCutOff(kafka.TopicPartition{Topic: fp.Topic, Partition: fp.Partition}) {
			w.mustAbort = true
			return
		}
		if before, ok := w.polledFrom[home]; ok && before != n {
			w.mustAbort = true
			return
		}
		w.polledFrom[home] = n
		if at := (kafka.TopicPartition{Topic: fp.Topic, Partition: fp.Partition}); len(w.quarantines) > 0 {
			w.gate.WithGate(func(g *inboxgate.Gate) { w.quarantines.Read(g, at) })
		}
		for _, r := range fp.Records {
			if r.Attrs.IsControl() {
				w.sawMarkers = true
				continue
			}
			rs = append(rs, r)
		}
	})
	w.polled += len(rs)
	return rs
}
