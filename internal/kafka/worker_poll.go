package kafka

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/inboxgate"
)

// poller is a poll with a bound that another goroutine can end.
type poller struct {
	client *kgo.Client
	wait   time.Duration
	max    int

	mu    sync.Mutex
	end   context.CancelFunc // of the poll that blocks; nil: none does
	woken bool               // nobody was polling: the next one doesn't block
}

// poll returns what there is, waiting at most p.wait for it, and whether it
// waited to the end.
func (p *poller) poll(ctx context.Context) (fetches kgo.Fetches, waited bool) {
	bounded, cancel := context.WithTimeout(ctx, p.wait)
	defer cancel()
	p.mu.Lock()
	if p.woken {
		p.woken = false
		p.mu.Unlock()
		return p.client.PollRecords(nil, p.max), false //nolint:staticcheck // nil: drain, don't wait
	}
	p.end = cancel
	p.mu.Unlock()

	fetches = p.client.PollRecords(bounded, p.max)

	p.mu.Lock()
	p.end = nil
	p.mu.Unlock()
	return fetches, errors.Is(bounded.Err(), context.DeadlineExceeded)
}

func (p *poller) wake() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.end == nil {
		p.woken = true
		return
	}
	p.end()
}

// Poll returns records that came in, at most MaxPollRecords, only of
// inboxes that flow; (nil, nil) after FetchMaxWait at
// the latest, or when woken. A record's partition may be one that was added to its
// inbox: it goes together with that number modulo Partitions. Each record is returned once, unless Commit or
// Abort say that it comes again. The order within a topic and partition is the
// log's. A poll that waited in vain commits the positions after markers that came
// since the last transaction.
//
// An error is final: ctx has ended, the worker is fenced or refused, or its
// position is lost; Close it and open a new one.
func (l *Worker) Poll(ctx context.Context) ([]events.Record, error) {
	if err := l.checkOpen(); err != nil {
		return nil, err
	}
	if l.mustAbort && l.polled == 0 {
		if err := l.Abort(ctx); err != nil {
			return nil, err
		}
	}
	l.gate.withGate(func(g *inboxgate.Gate) { g.ResumeDue(time.Now()) })
	fetches, waited := l.poller.poll(ctx)
	l.quarantine(takeUnreadable(fetches), time.Now())
	now := l.sinceOpened(time.Now())
	l.lastPoll.Store(now)
	err := fetchError(ctx, fetches, l.onDataLost, l.duplicate)
	if err == nil {
		err = errors.Join(l.checkFetchedTopics(fetches), l.positions.endReason())
	}
	if err != nil {
		l.failure = fmt.Errorf("worker %q: poll: %w", l.cfg.Owner, err)
		return nil, l.failure
	}
	l.tail.observe(l.cfg.Config, fetches)
	if l.polled == 0 && l.cfg.Clock != nil {
		l.decidedBy = l.cfg.Clock.Offset()
	}
	rs := l.admit(fetches)
	switch {
	case len(rs) > 0:
		l.waiting.CompareAndSwap(0, now)
	case waited && l.polled == 0 && !l.mustAbort:
		// What an abort gave back has gone elsewhere.
		l.waiting.Store(0)
		if l.sawMarkers {
			return nil, l.commitMarkers(ctx)
		}
	}
	if len(rs) == 0 {
		return nil, nil
	}
	return fromKgo(rs, make([]events.Record, 0, len(rs))), nil
}

// quarantine pauses what can't be read, and says so.
func (l *Worker) quarantine(found []unreadablePart, now time.Time) {
	for _, x := range found {
		l.gate.withGate(func(g *inboxgate.Gate) { l.quarantines.pause(g, x.at, now) })
		if l.cfg.Listener.Damaged != nil {
			l.cfg.Listener.Damaged(x.at.topic, x.at.partition, x.err)
		}
	}
}

// admit keeps the records of partitions that may act. The pause of what is
// newly assigned keeps the others from coming at all, but for what was
// fetched before its partition went; the client counts those as read, so the
// transaction must not commit.
func (l *Worker) admit(fetches kgo.Fetches) []*kgo.Record {
	rs := make([]*kgo.Record, 0, fetches.NumRecords())
	owned := l.balancer.Assigned()
	fetches.EachPartition(func(fp kgo.FetchTopicPartition) {
		if len(fp.Records) == 0 {
			return
		}
		home := l.home(fp.Partition)
		n, ok := owned[home]
		if !ok || l.restored[home] != n || l.isCutOff(topicPartition{fp.Topic, fp.Partition}) {
			l.mustAbort = true
			return
		}
		if before, ok := l.polledFrom[home]; ok && before != n {
			l.mustAbort = true
			return
		}
		l.polledFrom[home] = n
		if at := (topicPartition{fp.Topic, fp.Partition}); len(l.quarantines) > 0 {
			l.gate.withGate(func(g *inboxgate.Gate) { l.quarantines.read(g, at) })
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

// fetchError is what of a poll's errors ends its client's life. What the
// client heals by itself is left to it (see errorClasses); a loss of data is told and survived,
// since a new client would meet it again. duplicate says what it means that the member is fenced; nil: nothing, yet.
func fetchError(ctx context.Context, fetches kgo.Fetches, dataLost func(*kgo.ErrDataLoss), duplicate func(error) error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var fatal error
	fetches.EachError(func(topic string, partition int32, err error) {
		var session *kgo.ErrGroupSession
		var lost *kgo.ErrDataLoss
		switch {
		case topic == "" && (errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)):
			// The poll's own bound.
		case errors.As(err, &session) && classOf(err) == retried:
			// The client joins again; the balancer's hook has told it.
		case errors.As(err, &session) && classOf(err) == fenced:
			fatal = errors.Join(fatal, duplicate(err))
		case errors.As(err, &lost):
			if dataLost != nil {
				dataLost(lost)
			}
		case topic == "":
			fatal = errors.Join(fatal, err)
		default:
			fatal = errors.Join(fatal, fmt.Errorf("topic %s partition %d: %w", topic, partition, err))
		}
	})
	return markFinal(fatal)
}
