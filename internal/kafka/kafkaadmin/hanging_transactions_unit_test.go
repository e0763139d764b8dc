package kafkaadmin

import "testing"

// TestOffsetsPartitionIsKafkas checks the partition of __consumer_offsets against Apache Kafka 4.3.1 with 50
// partitions. The first group's hash is negative.
func TestOffsetsPartitionIsKafkas(t *testing.T) {
	for group, want := range map[string]int32{
		"waybill.scheduler":  17,
		"waybill.supervisor": 4,
		"waybill.notifier":   32,
		"polygenelubricants": 0, // its hash is the minimum int32
	} {
		if got := offsetsPartition(group, 50); got != want {
			t.Errorf("%s: %d, want %d", group, got, want)
		}
	}
}
