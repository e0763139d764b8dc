package kafka

import "github.com/waybill-run/waybill/internal/inboxgate"

// TopicPartition names a partition of a topic.
type TopicPartition struct {
	Topic     string
	Partition int32
}

// Inbox returns the partition in the form of package inboxgate.
func (at TopicPartition) Inbox() inboxgate.Inbox {
	return inboxgate.Inbox{Topic: at.Topic, Partition: at.Partition}
}
