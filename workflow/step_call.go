package workflow

import (
	"fmt"

	"github.com/waybill-run/waybill/events"
)

// callKind calls an operation of an agent. Steps without a field of another kind are calls.
var callKind *stepKind

func init() {
	callKind = registerStepKind(stepKind{
		kind: events.CallStep,
		texts: func(s *Step) []stepText {
			return []stepText{{"agent", &s.Agent, textFix}, {"operation", &s.Operation, textFix}}
		},
		shared: sharedFields,
		check:  checkCall,
		label: func(d *Definition, step int) (what, detail string) {
			s := &d.Steps[step]
			within, retry := d.Effective(step)
			return s.Agent + "." + s.Operation, fmt.Sprintf("within %s%s, %s", Duration(within), heartbeatLabel(s.Heartbeat), attempts(retry))
		},
	})
}

func checkCall(f *faults, d *Definition, s *Step, path string) {
	checkName(f, path+".agent", s.Agent)
	checkOperation(f, path+".operation", s.Operation)
	within := path + ".complete_within"
	switch {
	case s.CompleteWithin != nil:
		checkDuration(f, within, *s.CompleteWithin, true)
		d.checkFits(f, within, *s.CompleteWithin)
	case d.Defaults.CompleteWithin == 0 && !f.reported("defaults.complete_within"):
		f.missing(within, true, "", "give the step a deadline such as complete_within: 10s, or all of them one in defaults")
	}
	if s.Heartbeat != nil {
		attempt, _ := d.Effective(d.Index(s.ID))
		checkHeartbeat(f, path, *s.Heartbeat, Duration(attempt))
	}
}
