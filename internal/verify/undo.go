package verify

import "github.com/waybill-run/waybill/events"

// checkUndoOrder checks P6 at the first attempt of a step's undo: no attempt and no other undo runs, and this step is the
// next to undo.
func (s *eventCheck) checkUndoOrder() *Fault {
	if s.run == nil || s.slot.Kind != events.Undo || s.t.steps[s.index].flags.has(undoAsked|catching) || !s.rule.begins {
		return nil
	}
	if fault := s.checkAskedBefore("the undo"); fault != nil {
		return fault
	}
	if s.t.open.state.Ending == "" {
		return s.checkCatch()
	}
	if s.t.plan.Steps[s.index].StepKind.HasChildren() && s.t.steps[s.index].flags.has(unknown) {
		return nil // children that ran are withdrawn at once, whatever else runs
	}
	for i := range s.t.open.runs {
		if s.t.open.runs[i].running {
			return faultf("P6", "undo of step %q begins while step %q runs", s.slot.Step, s.t.plan.Steps[i/runsPerStep].ID)
		}
	}
	best, ok := s.nextUndo()
	switch {
	case !ok:
		return faultf("P6", "undo of step %q, which has nothing to undo", s.slot.Step)
	case best != s.index:
		return faultf("P6", "undo of step %q begins before that of step %q", s.slot.Step, s.t.plan.Steps[best].ID)
	}
	return nil
}

// toUndo reports whether a step must be undone: its effect is unknown, or it completed and isn't kept.
func (s *eventCheck) toUndo(i int) bool {
	f := s.t.steps[i].flags
	if s.t.plan.Steps[i].Undo == nil || s.t.plan.Steps[i].StepKind.HasChildren() && !s.hasChildren(i) {
		return false
	}
	return f.has(unknown) || f.has(completed|handSettled) && !s.t.open.state.Keep
}

// hasChildren reports whether a step has children to withdraw. One that was released may have had none.
func (s *eventCheck) hasChildren(i int) bool {
	return s.t.open.items[i] != nil || s.t.open.state.Steps[i].KindState().Child != ""
}

// nextUndo returns the next step to undo: first those of unknown effect, the last started first, then completed ones,
// the last completed first.
func (s *eventCheck) nextUndo() (best int, ok bool) {
	order := uint64(0)
	for i := range s.t.steps {
		f := s.t.steps[i].flags
		if !s.toUndo(i) || f.has(undone|handUndone) {
			continue
		}
		r := s.t.open.run(i, events.Do)
		at := r.done
		if f.has(unknown) {
			at = r.began + 1<<62 // before all completed steps
		}
		if !ok || at > order {
			best, order, ok = i, at, true
		}
	}
	return best, ok
}

// checkAllUndone checks P6 at the end of an undo: exactly the steps that must be undone are undone.
func (s *eventCheck) checkAllUndone(was events.TaskState) *Fault {
	if was != events.StateUndoing {
		s.t.left = true // an operator cancelled the remaining undos
		return nil
	}
	for i := range s.t.steps {
		f, id := s.t.steps[i].flags, s.t.plan.Steps[i].ID
		switch {
		case s.toUndo(i) && !f.has(undone|handUndone):
			return faultf("P6", "%s, and step %q is not undone", s.t.open.state.State, id)
		case !s.toUndo(i) && f.has(undoAsked):
			return faultf("P6", "%s, and step %q was undone, which had nothing to undo", s.t.open.state.State, id)
		}
	}
	return nil
}
