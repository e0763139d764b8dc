package workflow

import "github.com/waybill-run/waybill/events"

func init() {
	registerStepKind(stepKind{
		kind: events.SignalStep,
		texts: func(s *Step) []stepText {
			return []stepText{{"signal", &s.Signal, "write the name of the signal"}}
		},
		shared: []string{"complete_within"},
		instead: map[string]string{"retry": "a signal that doesn't come isn't retried", "undo": "a signal has no effect", "input": "a signal gets none; its data is the step's output",
			"for_each": "a step waits for one signal; a workflow with a signal step can be run for each item"},
		check: checkSignal,
		label: func(d *Definition, step int) (what, detail string) {
			s := &d.Steps[step]
			if s.CompleteWithin != nil {
				detail = "within " + s.CompleteWithin.String()
			}
			return "signal " + s.Signal, detail
		},
	})
}

func checkSignal(f *faults, d *Definition, s *Step, path string) {
	checkName(f, path+".signal", s.Signal)
	within := path + ".complete_within"
	if s.CompleteWithin == nil {
		f.missing(within, true, "", "say how long the step waits for the signal, such as complete_within: 48h")
		return
	}
	checkDuration(f, within, *s.CompleteWithin, true)
	d.checkFits(f, within, *s.CompleteWithin)
}
