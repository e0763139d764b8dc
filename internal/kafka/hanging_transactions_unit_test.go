package kafka

import "testing"

// Where Apache Kafka 4.3.1 has the offsets of groups, of 50 partitions: the hash of the first is negative.
func TestOffsetsPartitionIsKafkas(t *testing.T) {
	for group, want := range map[string]int32{
		"waybill.scheduler":  17,
		"waybill.supervisor": 4,
		"waybill.notifier":   32,
		"polygenelubricants": 0, // the least hash that there is
	} {
		if got := offsetsPartition(group, 50); got != want {
			t.Errorf("%s: %d, want %d", group, got, want)
		}
	}
}
