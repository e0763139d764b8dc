package events

import (
	"encoding/json"
	"time"
)

// Most steps are calls that report nothing before they end. What only other steps have is apart from Run and Step, behind
// pointers that are nil for calls, since steps are copied for each of their events (Task.OwnStep). The values behind the
// pointers are never changed in place, so copies of a step share them.

// Interim is what a run has reported before its end.
type Interim struct {
	Calls      int    // of a repeat: calls that completed since submission or the last resubmit, without the one that ends it
	LastCall   int    // the attempt with which the last of them ended
	ChildError *Error // why the child is held; nil: it isn't
	// Progress is the last recorded one, of any attempt of the generation, and ProgressAt when it was recorded; zero:
	// none. They are dropped when the run is completed or released.
	Progress   json.RawMessage
	ProgressAt time.Time
}

func (x *Interim) isZero() bool {
	return x.Calls == 0 && x.LastCall == 0 && x.ChildError == nil && len(x.Progress) == 0 && x.ProgressAt.IsZero()
}

// Interim returns what the run has reported before its end.
func (r *Run) Interim() Interim {
	if r.interim == nil {
		return Interim{}
	}
	return *r.interim
}

// setInterim stores x. A zero value is stored as nil, so that equal runs are equal in memory.
func (r *Run) setInterim(x Interim) {
	if r.interim = nil; !x.isZero() {
		r.interim = new(x)
	}
}

// KindState is what only some kinds of steps have, and steps with a check.
type KindState struct {
	// Child is the id of the child of the last attempt; empty: the step has none.
	Child string
	// SignalID is the id of the signal that completed the step; empty: none did.
	SignalID string
	// Checking is the attempt of the step that the last check is about; Checked is that of the last check that ended, and
	// Became its result.
	Checking int
	Checked  int
	Became   Became
}

// KindState returns what the step has by its kind or its check.
func (s *Step) KindState() KindState {
	if s.kindState == nil {
		return KindState{}
	}
	return *s.kindState
}

// setKindState stores x. A zero value is stored as nil, so that equal steps are equal in memory.
func (s *Step) setKindState(x KindState) {
	if s.kindState = nil; x != (KindState{}) {
		s.kindState = new(x)
	}
}
