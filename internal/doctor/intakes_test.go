package doctor

import (
	"testing"

	"github.com/waybill-run/waybill/internal/intake"
)

func TestIntakeFindings(t *testing.T) {
	lag := int64(7)
	for _, c := range []struct {
		v             intake.IntakeStatus
		result, found string
	}{
		{intake.IntakeStatus{State: intake.StateRunning, Members: 2, Lag: &lag}, OK, "2 workers, lag 7"},
		{intake.IntakeStatus{State: intake.StatePaused, Members: 2, Lag: &lag}, Note, "paused, lag 7"},
		{intake.IntakeStatus{State: intake.StateStopped}, Fault, "no process runs it, lag unknown"},
		{intake.IntakeStatus{State: intake.StateStopped, Fault: "no topic"}, Fault, "no topic"},
		{intake.IntakeStatus{State: intake.StateFault, Fault: "bad"}, Fault, "its definition can't be used: bad"},
	} {
		c.v.Name = "shop"
		got := intakeFindings([]intake.IntakeStatus{c.v})
		if len(got) != 1 || got[0].Check != "intake shop" || got[0].Result != c.result || got[0].Found != c.found || got[0].Result != OK && got[0].Fix == "" {
			t.Errorf("%+v gave %+v", c.v, got)
		}
	}
}
