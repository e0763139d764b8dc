package logreader_test

import (
	"testing"

	"github.com/waybill-run/waybill/internal/kafkatest"
	"github.com/waybill-run/waybill/internal/suite"
)

func TestMain(m *testing.M) {
	kafkatest.RunParallel(suite.Flag(8, 1)) // on embedded brokers, these tests mostly wait
	kafkatest.Main(m)
}
