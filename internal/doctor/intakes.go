package doctor

import (
	"fmt"

	"github.com/waybill-run/waybill/internal/intake"
	"github.com/waybill-run/waybill/internal/text"
)

// intakeFindings judges intakes. How fast a lag falls is not measured.
func intakeFindings(intakes []intake.IntakeStatus) (list []Finding) {
	for i := range intakes {
		v := &intakes[i]
		check := "intake " + v.Name
		waiting := "lag unknown"
		if v.Lag != nil {
			waiting = fmt.Sprintf("lag %d", *v.Lag)
		}
		switch {
		case v.State == intake.StateFault:
			list = append(list, Finding{check, Fault, "its definition can't be used: " + v.Fault, "apply it again"})
		case v.Fault != "":
			list = append(list, Finding{check, Fault, v.Fault, "check the topic, and the rights of this principal"})
		case v.State == intake.StatePaused:
			list = append(list, Finding{check, Note, "paused, " + waiting, "`waybill intake resume " + v.Name + "` when it may continue"})
		case v.State == intake.StateStopped:
			list = append(list, Finding{check, Fault, "no process runs it, " + waiting, "start `waybill intake run`; read its log if it runs"})
		default:
			list = append(list, Finding{check, OK, text.Count(v.Members, "worker") + ", " + waiting, ""})
		}
	}
	return list
}
