package groupmember

import (
	"errors"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// TestUnreadable checks that only data in a broker's response quarantines a partition. An error that the client itself
// reports ends the follower, because no wait would fix it.
func TestUnreadable(t *testing.T) {
	corrupt := errors.New("encoded crc 1 does not match calculated crc 2")
	for _, c := range []struct {
		name string
		fp   kgo.FetchPartition
		want bool
	}{
		{"records", kgo.FetchPartition{HighWatermark: 9}, false},
		{"a batch that isn't as it was written", kgo.FetchPartition{HighWatermark: 9, Err: corrupt}, true},
		{"Kafka's own word", kgo.FetchPartition{HighWatermark: 9, Err: kerr.TopicAuthorizationFailed}, false},
		{"the client's, of no answer", kgo.FetchPartition{Err: errors.New("fetch offsets response omitted the partition")}, false},
		{"the client's, of no partition", kgo.FetchPartition{Partition: -1, Err: kgo.ErrClientClosed}, false},
	} {
		if got := unreadable(&c.fp); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}
