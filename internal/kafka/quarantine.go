package kafka

import (
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-run/waybill/internal/inboxgate"
)

// What can't be read of a partition is asked for again after quarantineLeast, then after twice as
// long each time, at most quarantineMost: another replica may lead by then, and have it whole.
const (
	quarantineLeast = time.Second
	quarantineMost  = 30 * time.Second
)

// quarantines are the partitions with something that can't be read, and how long each was paused
// last. Without a pause the client asks for the same again at once, for ever, and says so with each
// poll. They belong to Poll's goroutine.
type quarantines map[topicPartition]time.Duration

// unreadablePart is a partition of a poll that can't be read.
type unreadablePart struct {
	at  topicPartition
	err error
}

// takeUnreadable removes from a poll the errors about what can't be read.
func takeUnreadable(fetches kgo.Fetches) (found []unreadablePart) {
	for i := range fetches {
		for _, t := range fetches[i].Topics {
			for k := range t.Partitions {
				if fp := &t.Partitions[k]; unreadable(fp) {
					found = append(found, unreadablePart{topicPartition{t.Topic, fp.Partition}, fp.Err})
					fp.Err = nil
				}
			}
		}
	}
	return found
}

// pause pauses a partition, for twice as long as the last time.
func (q quarantines) pause(g *inboxgate.Gate, at topicPartition, now time.Time) {
	wait := quarantineLeast
	if last, again := q[at]; again {
		wait = min(2*last, quarantineMost)
	}
	q[at] = wait
	g.Pause(at.inbox(), inboxgate.PausedForQuarantine, now.Add(wait))
}

// read forgets a partition of which something was read after its pause.
func (q quarantines) read(g *inboxgate.Gate, at topicPartition) {
	if !g.IsPausedFor(at.inbox(), inboxgate.PausedForQuarantine) {
		delete(q, at)
	}
}

// unreadable reports whether a broker has answered with what isn't a batch of records: its
// checksum, say, is another. What Kafka's protocol has a word for isn't that, nor what the
// client says where no broker answered, which waiting may not heal: there is no end of the
// log then.
func unreadable(fp *kgo.FetchPartition) bool {
	_, isKafka := errors.AsType[*kerr.Error](fp.Err)
	return fp.Err != nil && !isKafka && fp.HighWatermark > 0
}
