package kafka_test

import "github.com/waybill-run/waybill/internal/kafkatest"

var (
	must         = kafkatest.Must
	bounded      = kafkatest.Bounded
	fake         = kafkatest.Fake
	openAdmin    = kafkatest.OpenAdmin
	openProducer = kafkatest.OpenProducer
)
