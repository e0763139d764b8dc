package groupmember

import (
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-run/waybill/internal/inboxgate"
	"github.com/waybill-run/waybill/internal/kafka"
)

// An unreadable partition is read again after QuarantineMin, then after twice as long each time, up to
// QuarantineMax. By then another replica may lead it and have an intact copy.
const (
	QuarantineMin = time.Second
	QuarantineMax = 30 * time.Second
)

// Quarantines has the unreadable partitions and the duration of each one's last pause. Without a pause the client would
// repeat the fetch at once, for ever, and return the error with each poll. Only Poll's goroutine uses it.
type Quarantines map[kafka.TopicPartition]time.Duration

// UnreadablePartition is an unreadable partition of a poll.
type UnreadablePartition struct {
	At  kafka.TopicPartition
	Err error
}

// TakeUnreadable removes the errors of unreadable partitions from a poll and returns them.
func TakeUnreadable(fetches kgo.Fetches) (found []UnreadablePartition) {
	for i := range fetches {
		for _, t := range fetches[i].Topics {
			for k := range t.Partitions {
				if fp := &t.Partitions[k]; unreadable(fp) {
					found = append(found, UnreadablePartition{kafka.TopicPartition{Topic: t.Topic, Partition: fp.Partition}, fp.Err})
					fp.Err = nil
				}
			}
		}
	}
	return found
}

// Pause pauses a partition, for twice as long as the last time.
func (q Quarantines) Pause(g *inboxgate.Gate, at kafka.TopicPartition, now time.Time) {
	wait := QuarantineMin
	if last, again := q[at]; again {
		wait = min(2*last, QuarantineMax)
	}
	q[at] = wait
	g.Pause(at.Inbox(), inboxgate.PausedForQuarantine, now.Add(wait))
}

// Read removes a partition that had records after its pause.
func (q Quarantines) Read(g *inboxgate.Gate, at kafka.TopicPartition) {
	if !g.IsPausedFor(at.Inbox(), inboxgate.PausedForQuarantine) {
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
