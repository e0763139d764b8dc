package intakerun

import (
	"testing"

	"github.com/waybill-run/waybill/internal/kafkatest"
)

func TestMain(m *testing.M) { kafkatest.Main(m) }
