package kafka

import (
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// observe corrects the clock by what a poll brought, where it was read at the
// log's tail: elsewhere a record's age is the reader's lag, not a difference of
// clocks. Only topics of the namespace are LogAppendTime.
func (c Config) observe(fetches kgo.Fetches) {
	if c.Clock == nil {
		return
	}
	local := time.Now()
	fetches.EachPartition(func(fp kgo.FetchTopicPartition) {
		if n := len(fp.Records); n > 0 && c.Namespace.Owns(fp.Topic) {
			// A transaction's marker may follow the last record.
			if last := fp.Records[n-1]; last.Offset+2 >= fp.HighWatermark {
				c.Clock.Observe(last.Timestamp, local)
			}
		}
	})
}
