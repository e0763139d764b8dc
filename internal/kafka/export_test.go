package kafka

func (f ErrorClass) String() string {
	return [...]string{"retried", "refused", "fenced", "hopeless"}[f]
}

const ProducerBufferRecords = producerBufferRecords
