package brokerclock

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestOldRecordSetsNoClock checks that an old last record of the log, as a starting process finds it, is not treated as a
// clock difference. Otherwise a scheduler gives up its partitions, and timers are late by the time in which nothing
// ran.
func TestOldRecordSetsNoClock(t *testing.T) {
	const hour = time.Hour
	late := time.Duration(0) // how far the process's clock has advanced
	process := func() time.Time { return time.Now().Add(late) }
	tail := NewTail(NewClockWith(process), "waybill.")
	poll := func(topic string, partition int32, offset, highWatermark int64, age time.Duration) {
		t.Helper()
		r := &kgo.Record{Topic: topic, Partition: partition, Offset: offset, Timestamp: process().Add(-age)}
		tail.Observe(kgo.Fetches{{Topics: []kgo.FetchTopic{{Topic: topic,
			Partitions: []kgo.FetchPartition{{Partition: partition, HighWatermark: highWatermark, Records: []*kgo.Record{r}}}}}}})
	}
	is := func(want time.Duration, what string) {
		t.Helper()
		// A wall clock that is being adjusted differs from the monotonic clock by microseconds.
		if got := tail.clock.Offset(); got < want-time.Second || got > want+time.Minute {
			t.Errorf("%s: offset %v, want %v", what, got, want)
		}
	}
	poll("waybill.events", 0, 99, 100, hour)
	is(0, "the last record of a log that was there before")
	poll("waybill.events", 1, 99, 101, hour)
	is(0, "the same with a marker behind it")
	poll("waybill.events", 0, 100, 150, hour)
	is(0, "not the tail")
	poll("waybill.events", 0, 149, 150, hour)
	is(0, "the tail, of records that came before the last poll")
	poll("theirs", 0, 1, 2, 2*hour)
	poll("theirs", 0, 2, 3, 2*hour)
	is(0, "a topic of others")
	poll("waybill.events", 0, 150, 151, hour)
	is(hour, "a record that came while the client was there")
	poll("waybill.events", 0, 151, 152, 0)
	is(0, "one that came sooner")
	tail.clock = NewClockWith(process)
	tail.Forget([]int32{0})
	poll("waybill.events", 0, 170, 171, hour)
	is(0, "a partition that was another's meanwhile")
	poll("waybill.events", 0, 171, 172, hour)
	is(hour, "the first that comes after")

	tail.clock = NewClockWith(process)
	poll("waybill.events", 2, 0, 1, hour)
	late += tailAgeMax + time.Millisecond
	poll("waybill.events", 2, 1, 2, hour)
	is(0, "one that may have come at any time since the last")
	late += tailAgeMax / 2
	poll("waybill.events", 2, 2, 3, hour)
	is(hour, "one that came right after another")

	// The process stops after a response arrived, or while it is in transit. The next response may then hold records as
	// old as the stop.
	fetched := func(took time.Duration) {
		tail.OnBrokerE2E(kgo.BrokerMetadata{NodeID: 1}, int16(kmsg.Fetch), kgo.BrokerE2E{ReadWait: took})
	}
	tail.clock = NewClockWith(process)
	fetched(2 * tailAgeMax)
	poll("waybill.events", 3, 0, 1, 0)
	fetched(time.Millisecond)
	poll("waybill.events", 3, 1, 2, hour)
	is(0, "one after an answer that was long on its way")
	fetched(time.Millisecond)
	poll("waybill.events", 3, 2, 3, hour)
	is(hour, "one after an answer that came at once")
}
