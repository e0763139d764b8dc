package agentsession_test

import "github.com/waybill-run/waybill/internal/kafkatest"

var (
	must     = kafkatest.Must
	bounded  = kafkatest.Bounded
	configOf = kafkatest.ConfigOf
)

func yes() bool { return true }
