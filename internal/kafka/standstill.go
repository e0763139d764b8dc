package kafka

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// What can't be read of a partition is asked for again after standsLeast, then after twice
// as long each time, at most standsMost: another replica may lead by then, and have it whole.
const (
	standsLeast = time.Second
	standsMost  = 30 * time.Second
)

// standstills are the partitions of which something can't be read. They are paused: the
// client would ask for the same again at once, for ever, and say so with each poll. Of Poll's
// goroutine.
type standstills map[topicPartition]*standstill

type standstill struct {
	wait  time.Duration // the last
	again time.Time
	asked bool // resumed, and not read since
}

// pause takes from a poll what can't be read, and tells of it.
func (s standstills) pause(client *kgo.Client, fetches kgo.Fetches, now time.Time, tell func(topic string, p int32, err error)) {
	for i := range fetches {
		for _, t := range fetches[i].Topics {
			for k := range t.Partitions {
				fp := &t.Partitions[k]
				if !unreadable(fp) {
					continue
				}
				at := topicPartition{t.Topic, fp.Partition}
				stand := s[at]
				if stand == nil {
					stand = &standstill{wait: standsLeast / 2}
					s[at] = stand
				}
				stand.wait = min(2*stand.wait, standsMost)
				stand.again, stand.asked = now.Add(stand.wait), false
				client.PauseFetchPartitions(at.flow())
				if tell != nil {
					tell(t.Topic, fp.Partition, fp.Err)
				}
				fp.Err = nil
			}
		}
	}
}

// resume has ask ask again for what it is time for.
func (s standstills) resume(now time.Time, ask func(at topicPartition)) {
	for at, stand := range s {
		if !stand.asked && !now.Before(stand.again) {
			stand.asked = true
			ask(at)
		}
	}
}

// until is ctx, ending where it is time to ask again for something.
func (s standstills) until(ctx context.Context) (context.Context, context.CancelFunc) {
	var next time.Time
	for _, stand := range s {
		if !stand.asked && (next.IsZero() || stand.again.Before(next)) {
			next = stand.again
		}
	}
	if next.IsZero() {
		return ctx, func() {}
	}
	return context.WithDeadline(ctx, next)
}

// flow is one partition of a topic, as the client wants it.
func (at topicPartition) flow() map[string][]int32 {
	return map[string][]int32{at.topic: {at.partition}}
}

// read forgets a partition of which something was read after it was asked for again.
func (s standstills) read(topic string, p int32) {
	if stand := s[topicPartition{topic, p}]; stand != nil && stand.asked {
		delete(s, topicPartition{topic, p})
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
