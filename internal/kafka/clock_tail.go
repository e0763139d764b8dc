package kafka

import (
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// tailClock corrects a Clock by what one client reads at the tail of its
// partitions: elsewhere a record's age is the reader's lag, not a difference of
// clocks. The last record of a log is at the tail, too, and may be a day old
// when a process starts. So only those records count that the log did not hold
// yet when the client last read that partition: it was there when they came.
type tailClock struct {
	mu   sync.Mutex
	ends map[topicPartition]int64 // the high watermark as the client saw it last
}

type topicPartition struct {
	topic     string
	partition int32
}

// observe corrects the clock of c by what a poll brought. Only topics of the
// namespace are LogAppendTime.
func (t *tailClock) observe(c Config, fetches kgo.Fetches) {
	if c.Clock == nil {
		return
	}
	local := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ends == nil {
		t.ends = map[topicPartition]int64{}
	}
	fetches.EachPartition(func(fp kgo.FetchTopicPartition) {
		n := len(fp.Records)
		if n == 0 || !c.Namespace.Owns(fp.Topic) {
			return
		}
		at, last := topicPartition{fp.Topic, fp.Partition}, fp.Records[n-1]
		end, here := t.ends[at]
		// A transaction's marker may follow the last record.
		if here && last.Offset >= end && last.Offset+2 >= fp.HighWatermark {
			c.Clock.Observe(last.Timestamp, local)
		}
		t.ends[at] = max(end, fp.HighWatermark)
	})
}

// forget is called when partitions come anew: the client was not there while
// they were another's.
func (t *tailClock) forget(ps []int32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range ps {
		for at := range t.ends {
			if at.partition == p {
				delete(t.ends, at)
			}
		}
	}
}
