package kafka

import "github.com/waybill-run/waybill/internal/inboxgate"

// topicPartition names a partition of a topic.
type topicPartition struct {
	topic     string
	partition int32
}

// inbox returns the partition in the form of package inboxgate.
func (at topicPartition) inbox() inboxgate.Inbox {
	return inboxgate.Inbox{Topic: at.topic, Partition: at.partition}
}
