package schedulerworker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-run/waybill/internal/inboxgate"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafka/groupmember"
)

// positions has a worker's positions in its inboxes. The client's goroutines and the worker's use it.
type positions struct {
	ids map[string]string // ids of the inboxes' topics, by name

	mu      sync.Mutex
	fetched map[kafka.TopicPartition]groupmember.PositionCommit
	events  lastEvents
	// rewound has the assignments of partitions whose inboxes are read from their starts; see Rewind.
	rewound map[int32]uint64
	// ended is set if only a new client can continue, for example after a topic was recreated; nil: this one can.
	ended error
}

// recordFetched stores the fetched commits with their metadata, which the client doesn't pass on.
func (p *positions) recordFetched(resp *kmsg.OffsetFetchResponse) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, g := range resp.Groups {
		for _, t := range g.Topics {
			for _, q := range t.Partitions {
				c := groupmember.PositionCommit{Offset: q.Offset}
				if q.Metadata != nil {
					c.Metadata = *q.Metadata
				}
				p.fetched[kafka.TopicPartition{Topic: t.Topic, Partition: q.Partition}] = c
			}
		}
	}
}

// removeFetched removes and returns the fetched commit of a partition.
func (p *positions) removeFetched(at kafka.TopicPartition) groupmember.PositionCommit {
	p.mu.Lock()
	defer p.mu.Unlock()
	c, ok := p.fetched[at]
	delete(p.fetched, at)
	if !ok {
		c.Offset = -1
	}
	return c
}

// boundsTimeout is how long an assignment waits for the bounds of the logs. If they remain unknown, the fetch finds
// out: it fails outside of the log.
const boundsTimeout = 2 * time.Second

// placeOffsets is called by the client when it has fetched offsets, before it fetches records.
func (w *Worker) placeOffsets(ctx context.Context, offsets map[string]map[int32]kgo.Offset) (map[string]map[int32]kgo.Offset, error) {
	topics := make([]string, 0, len(offsets))
	for topic := range offsets {
		topics = append(topics, topic)
	}
	starts, ends := w.logBounds(ctx, topics)
	fetched, named := w.fetched(offsets)
	w.positions.setUnconfirmed(named)
	events := w.lookUpEvents(ctx, named)
	for topic, ps := range offsets {
		for p, given := range ps {
			at := kafka.TopicPartition{Topic: topic, Partition: p}
			c := w.acceptReset(fetched[at], topic)
			found := groupmember.Position{Topic: topic, Partition: p, Offset: c.Offset, Start: kafka.OffsetOrUnknown(starts, at), End: kafka.OffsetOrUnknown(ends, at), Metadata: c.Metadata}
			from, atStart, fault := groupmember.JudgePosition(c, w.positions.ids[topic], found.Start, found.End)
			if !atStart && w.isAhead(w.home(p), c, events) {
				atStart, fault = true, groupmember.PositionRolledBack
			}
			if w.isRewound(w.home(p)) {
				atStart, fault = true, ""
			}
			switch {
			case atStart && found.Start < 0:
				ps[p] = kgo.NewOffset().AtStart()
			case atStart:
				// The offset of the start, not "the start": an abort returns to it, and for "the start" the client
				// would return to 0, which may have been trimmed.
				ps[p] = kgo.NewOffset().At(found.Start)
			case fault == groupmember.PositionTrimmed, found.Start == c.Offset:
				// The log has none of the records that were read, so their leader epoch is useless: an embedded broker
				// considers an empty log truncated at 0.
				ps[p] = kgo.NewOffset().At(from)
			default:
				ps[p] = given
			}
			w.positionFault(found, fault)
		}
	}
	return w.pendingOffsets.onFetched(ctx, offsets)
}

// fetched removes and returns the fetched commits of some partitions, and the events that they name, by partition of
// the events topic.
func (w *Worker) fetched(offsets map[string]map[int32]kgo.Offset) (fetched map[kafka.TopicPartition]groupmember.PositionCommit, named map[int32][]int64) {
	fetched, named = map[kafka.TopicPartition]groupmember.PositionCommit{}, map[int32][]int64{}
	for topic, ps := range offsets {
		for p := range ps {
			at := kafka.TopicPartition{Topic: topic, Partition: p}
			c := w.positions.removeFetched(at)
			fetched[at] = c
			if _, event, marked := groupmember.ParsePositionMark(c.Metadata); marked && event >= 0 {
				named[w.home(p)] = append(named[w.home(p)], event)
			}
		}
	}
	return fetched, named
}

// isAhead reports whether an otherwise valid commit belongs to a transaction whose events the log doesn't have.
func (w *Worker) isAhead(home int32, c groupmember.PositionCommit, events map[int32]map[int64]presence) bool {
	_, event, _ := groupmember.ParsePositionMark(c.Metadata)
	if event < 0 {
		return false
	}
	found := events[home][event]
	if found == absent {
		w.positions.forgetEvents(home)
		return true
	}
	w.positions.useEvent(home, event, found == present)
	return false
}

// positionFault reports a fault of a position and pauses an inbox that can't be read.
func (w *Worker) positionFault(at groupmember.Position, fault groupmember.PositionFault) {
	if fault == "" {
		return
	}
	if fault == groupmember.PositionCut {
		in, known := kafka.TopicPartition{Topic: at.Topic, Partition: at.Partition}.Inbox(), false
		w.gate.WithGate(func(g *inboxgate.Gate) {
			known = g.IsPausedFor(in, inboxgate.PausedForPosition)
			g.Pause(in, inboxgate.PausedForPosition, time.Time{})
		})
		if known {
			return
		}
	}
	w.cfg.Listener.Position(at, fault)
}

// isCutOff reports whether an inbox is paused because its log ends below its position.
func (w *Worker) isCutOff(at kafka.TopicPartition) (cut bool) {
	w.gate.WithGate(func(g *inboxgate.Gate) { cut = g.IsPausedFor(at.Inbox(), inboxgate.PausedForPosition) })
	return cut
}

// client returns the worker's client, also while its session is being opened.
func (w *Worker) client() (client *kgo.Client) {
	w.balancer.WithClient(func(c *kgo.Client) { client = c })
	return client
}

// logBounds returns the starts and ends of topics' logs. Those that the brokers don't return are left out.
func (w *Worker) logBounds(ctx context.Context, topics []string) (starts, ends kadm.ListedOffsets) {
	ctx, cancel := context.WithTimeout(ctx, boundsTimeout)
	defer cancel()
	admin := kadm.NewClient(w.client())
	ends, _ = admin.ListEndOffsets(ctx, topics...) // the end first: a trim in between must not put the start above it
	starts, _ = admin.ListStartOffsets(ctx, topics...)
	return starts, ends
}

// TopicID returns the id of an inbox's topic, which is fixed for the worker's lifetime; empty: the brokers don't
// support ids.
func (w *Worker) TopicID(topic string) string { return w.positions.ids[topic] }

// markCommit adds the worker's mark to each position of a commit. It fails if a topic was recreated.
func (w *Worker) markCommit(req *kmsg.TxnOffsetCommitRequest) error {
	for i := range req.Topics {
		t := &req.Topics[i]
		id, err := w.commitMark(t.Topic, t.TopicID)
		if err != nil {
			return err
		}
		for j := range t.Partitions {
			text := groupmember.FormatPositionMark(id, w.positions.lastEvent(w.home(t.Partitions[j].Partition)))
			t.Partitions[j].Metadata = &text
		}
	}
	return nil
}

// markPlainCommit is markCommit for a commit outside of a transaction.
func (w *Worker) markPlainCommit(req *kmsg.OffsetCommitRequest) error {
	for i := range req.Topics {
		t := &req.Topics[i]
		id, err := w.commitMark(t.Topic, t.TopicID)
		if err != nil {
			return err
		}
		for j := range t.Partitions {
			text := groupmember.FormatPositionMark(id, w.positions.lastEvent(w.home(t.Partitions[j].Partition)))
			t.Partitions[j].Metadata = &text
		}
	}
	return nil
}

// commitMark returns a topic's id for a mark. It fails if is is another one.
func (w *Worker) commitMark(topic string, is [16]byte) (string, error) {
	id := w.positions.ids[topic]
	if read := kafka.FormatTopicID(is); read != "" && read != id {
		return "", &kafka.RecreatedError{Topic: topic, Was: id, Is: read}
	}
	return id, nil
}

// checkFetchedTopics returns an error if fetched records belong to a recreated topic.
func (w *Worker) checkFetchedTopics(fetches kgo.Fetches) error {
	var faults []error
	fetches.EachTopic(func(t kgo.FetchTopic) {
		id := w.positions.ids[t.Topic]
		if read := kafka.FormatTopicID(t.TopicID); read != "" && id != "" && read != id {
			faults = append(faults, &kafka.RecreatedError{Topic: t.Topic, Was: id, Is: read})
		}
	})
	return errors.Join(faults...)
}

// Reflected passes, before Resume, the offsets below which the log of events reflects the inboxes of p, by topic. If
// the log of an inbox ends below that, it was truncated: it is not read, and that is reported.
func (w *Worker) Reflected(ctx context.Context, p int32, below map[string]int64) {
	w.confirmEvents(ctx, p)
	topics := make([]string, 0, len(below))
	for topic, offset := range below {
		if offset > 0 {
			topics = append(topics, topic)
		}
	}
	if len(topics) == 0 {
		return
	}
	starts, ends := w.logBounds(ctx, topics)
	for _, topic := range topics {
		at := kafka.TopicPartition{Topic: topic, Partition: p}
		found := groupmember.Position{Topic: topic, Partition: p, Offset: below[topic], Start: kafka.OffsetOrUnknown(starts, at), End: kafka.OffsetOrUnknown(ends, at), Metadata: ""}
		if found.End >= 0 && found.Offset > found.End {
			w.positionFault(found, groupmember.PositionCut)
		}
	}
}

// Rewind makes the worker read the inboxes of p, which must be paused, from their starts, because the group's offsets
// belong to transactions that the log of events doesn't have. Records that it does reflect are skipped. The starts are
// committed for the group, so the next owner of p reads from there too if this process dies.
func (w *Worker) Rewind(ctx context.Context, p int32) error {
	generation, owned := w.balancer.Assigned()[p]
	if !owned {
		return fmt.Errorf("worker %q: partition %d was reassigned before its inboxes were read from their starts", w.cfg.Owner, p)
	}
	w.positions.mu.Lock()
	if w.positions.rewound == nil {
		w.positions.rewound = map[int32]uint64{}
	}
	w.positions.rewound[p] = generation // the client may call placeOffsets for this assignment only later
	w.positions.mu.Unlock()
	w.positions.forgetEvents(p)
	ctx, cancel := context.WithTimeout(ctx, w.flushMax())
	defer cancel()
	starts, err := w.inboxStarts(ctx, p)
	if err == nil {
		err = w.commitPlain(ctx, starts)
	}
	if err != nil {
		return fmt.Errorf("worker %q: read the inboxes of partition %d from their starts: %w", w.cfg.Owner, p, kafka.FinalError(err))
	}
	w.inCommit.Lock() // the end of a transaction sets offsets, too
	defer w.inCommit.Unlock()
	w.session.Client().SetOffsets(starts)
	return nil
}

// inboxStarts returns the log starts of p's inboxes, including added partitions.
func (w *Worker) inboxStarts(ctx context.Context, p int32) (map[string]map[int32]kgo.EpochOffset, error) {
	starts, err := kadm.NewClient(w.client()).ListStartOffsets(ctx, w.cfg.Topics...)
	if err != nil {
		return nil, err
	}
	of := map[string]map[int32]kgo.EpochOffset{}
	for topic, ps := range starts {
		of[topic] = map[int32]kgo.EpochOffset{}
		for q, start := range ps {
			switch {
			case w.home(q) != p:
			case start.Err != nil:
				return nil, fmt.Errorf("%s/%d: %w", topic, q, start.Err)
			default:
				of[topic][q] = kgo.EpochOffset{Epoch: -1, Offset: start.Offset}
			}
		}
	}
	return of, nil
}

// commitPlain commits offsets for the group outside of a transaction. The group's generation fences it.
func (w *Worker) commitPlain(ctx context.Context, offsets map[string]map[int32]kgo.EpochOffset) error {
	var faults []error
	w.session.Client().CommitOffsetsSync(kgo.PreCommitFnContext(ctx, w.markPlainCommit), offsets,
		func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, resp *kmsg.OffsetCommitResponse, err error) {
			if faults = append(faults, err); err != nil {
				return
			}
			for _, t := range resp.Topics {
				for _, p := range t.Partitions {
					if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
						faults = append(faults, fmt.Errorf("commit %s/%d: %w", t.Topic, p.Partition, err))
					}
				}
			}
		})
	return errors.Join(faults...)
}

// isRewound reports whether Rewind was called for the present assignment of p.
func (w *Worker) isRewound(p int32) bool {
	generation, owned := w.balancer.Assigned()[p]
	w.positions.mu.Lock()
	defer w.positions.mu.Unlock()
	return owned && w.positions.rewound[p] == generation
}

// onDataLost is called when the leader's epochs show that the log of an inbox was truncated below the position. Records
// that were written since may then have offsets that count as read. By then the client has reset its position to the
// truncation point. If the log starts at or above the position, or its bounds are unknown, no such record is known: the
// next Poll fails, and a new client continues.
func (w *Worker) onDataLost(lost *kgo.ErrDataLoss) {
	w.cfg.Listener.DataLost(lost)
	at := kafka.TopicPartition{Topic: lost.Topic, Partition: lost.Partition}
	starts, ends := w.logBounds(context.Background(), []string{lost.Topic})
	found := groupmember.Position{Topic: lost.Topic, Partition: lost.Partition, Offset: lost.ConsumedTo, Start: kafka.OffsetOrUnknown(starts, at), End: kafka.OffsetOrUnknown(ends, at), Metadata: ""}
	if found.IsCut() {
		w.positionFault(found, groupmember.PositionCut)
		return
	}
	w.positions.endWith(fmt.Errorf("%w; a new client finds the position again", lost))
}

// topicsCheckInterval is how often a worker checks whether its topics were recreated. A fetch reveals it at once, but a
// fully paused inbox isn't fetched.
const topicsCheckInterval = 5 * time.Second

// watchTopics checks the topics' ids until the worker ends or a topic was recreated.
func (w *Worker) watchTopics(life context.Context) {
	again := time.NewTicker(topicsCheckInterval)
	defer again.Stop()
	for {
		select {
		case <-life.Done():
			return
		case <-again.C:
		}
		if err := w.checkTopicIDs(life); err != nil {
			w.positions.endWith(err)
			w.Wake()
			return
		}
	}
}

// checkTopicIDs returns an error if a topic was recreated.
func (w *Worker) checkTopicIDs(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, boundsTimeout)
	defer cancel()
	listed, err := kadm.NewClient(w.client()).ListTopics(ctx, w.cfg.Topics...)
	if err != nil {
		return nil // no answer shows nothing about a topic; the next check will
	}
	for topic, d := range listed {
		if is, was := kafka.FormatTopicID(d.ID), w.positions.ids[topic]; d.Err == nil && is != "" && is != was {
			return &kafka.RecreatedError{Topic: topic, Was: was, Is: is}
		}
	}
	return nil
}

// endWith makes the next Poll fail: only a new client can continue.
func (p *positions) endWith(why error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = errors.Join(p.ended, why)
}

// endReason returns the errors that endWith received.
func (p *positions) endReason() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ended
}
