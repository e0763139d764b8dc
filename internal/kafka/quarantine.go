package kafka

import (
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-run/waybill/internal/inboxgate"
)

// An unreadable partition is read again after quarantineLeast, then after twice as long each time, up to
// quarantineMost. By then another replica may lead it and have an intact copy.
const (
	quarantineLeast = time.Second
	quarantineMost  = 30 * time.Second
)

// quarantines has the unreadable partitions and the duration of each one's last pause. Without a pause the client would
// repeat the fetch at once, for ever, and return the error with each poll. Only Poll's goroutine uses it.
type quarantines map[topicPartition]time.Duration

// unreadablePart is an unreadable partition of a poll.
type unreadablePart struct {
	at  topicPartition
	err error
}

// takeUnreadable removes the errors of unreadable partitions from a poll and returns them.
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

// read removes a partition that had records after its pause.
func (q quarantines) read(g *inboxgate.Gate, at topicPartition) {
	if !g.IsPausedFor(at.inbox(), inboxgate.PausedForQuarantine) {
		delete(q, at)
	}
}

// unreadable reports whether a broker returned something other than valid batches of records, for example with a wrong
// checksum. Kafka's error codes don't count. Nor do the client's own errors without a broker's answer, which retries
// may not fix: these have no high watermark.
func unreadable(fp *kgo.FetchPartition) bool {
	_, isKafka := errors.AsType[*kerr.Error](fp.Err)
	return fp.Err != nil && !isKafka && fp.HighWatermark > 0
}
