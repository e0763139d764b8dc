package events

// OnError returns what follows if the task can't continue: what its plan says, or a hold once a pivot is completed. An
// operator may have completed it by a release. The policies of timers have the plan's, since a supervisor doesn't know
// the steps.
func (t *Task) OnError() string {
	if t.pastPivot() {
		return OnErrorHold
	}
	return t.Plan.OnError
}

func (t *Task) pastPivot() bool {
	for i, s := range t.Steps {
		if t.Plan.Steps[i].Pivot && s.CompletedSeq != 0 {
			return true
		}
	}
	return false
}
