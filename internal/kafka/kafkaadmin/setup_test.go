package kafkaadmin_test

import "github.com/waybill-run/waybill/internal/kafkatest"

var (
	must         = kafkatest.Must
	bounded      = kafkatest.Bounded
	configOf     = kafkatest.ConfigOf
	fake         = kafkatest.Fake
	openAdmin    = kafkatest.OpenAdmin
	openProducer = kafkatest.OpenProducer
)
