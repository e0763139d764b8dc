package verify

import (
	"time"

	"github.com/waybill-run/waybill/events"
)

// task is what the checkers keep of one. What it needs only while events can
// come is in open; the rest is short, and stays.
type task struct {
	id        string
	partition int32
	broken    bool
	keep      bool // cancelled, and what completed stays
	left      bool // cancelled while an undo was held: what can't be undone stays
	state     events.TaskState
	plan      *events.Plan // shared by the tasks of a definition
	steps     []facts      // by index of the plan
	attempts  []attempt    // that requests were sent for, in the order of the log
	digest    uint64       // of the submission
	taken     int64        // its offset
	askedAt   int64        // of the submission, or of what an operator asked last, in ms
	statusAt  int64        // of the event that made the state, in ms
	open      *open        // nil: ended, and not kept
}

// facts are what happened of a step, as the checkers count it themselves, apart
// from the fold.
type facts struct {
	flags      flags
	generation uint16 // of the key,
	undoing    uint16 // and of that of its undo
}

type flags uint8

const (
	completed   flags = 1 << iota // by its agent
	handSettled                   // as completed, by an operator
	unknown                       // an attempt timed out or failed, and may have had an effect
	undoAsked                     // a request of its undo was sent
	undone                        // by its agent
	handUndone                    // by an operator
	skipped
	erred // in error, and not resumed since
)

func (f flags) has(any flags) bool { return f&any != 0 }

// attempt is one request.
type attempt struct {
	due     int64  // complete-by, in ms
	started int64  // timestamp of the event's record, in ms
	token   uint64 // the sum of its token's hash
	// below is the offset of the replies' partition below which all were decided
	// when the attempt ended; open attempts have none yet.
	below  int64
	step   uint16
	number uint16
	undo   bool
	ended  bool
	asked  bool // its request was seen
	// generation of its key; manyGenerations: that or a later one.
	generation uint8
}

// manyGenerations bounds what is known of an attempt's key.
const manyGenerations = 255

// open is what the checkers keep of a task that may go on.
type open struct {
	state  *events.Task
	offset int64 // of the last event that is in state
	timers events.Timers
	runs   []run        // of step i: 2i, of its undo: 2i+1
	done   int          // steps
	erred  int          // steps
	cut    *cutDecision // nil, or its last decision but one
	gaveUp gaveUp
}

// gaveUp is the last event that put a run in error: what is decided of its task then says the same error.
type gaveUp struct {
	seq  uint64
	step int
	err  uint64 // its sum
	any  bool   // it isn't known: it was too large
}

// run is the attempts at a step or its undo, counted apart from the fold.
type run struct {
	attempt   int
	running   bool
	closed    string // the type of the event that ended the last attempt
	fresh     int    // attempts since submission or the last resubmit
	failures  int    // of those
	cooled    bool   // a cool-down was granted
	notBefore time.Time
	key       string
	rejected  bool // the last attempt; a resubmit then renews the key
	renewed   bool // the key, by a resubmit
	index     int  // of the running attempt in the task's attempts
	began     uint64
	done      uint64 // seq of the event that completed it
}

func (o *open) run(i int, k events.Kind) *run {
	if k == events.Undo {
		return &o.runs[2*i+1]
	}
	return &o.runs[2*i]
}

// takenBack reports whether all that the task did had to be undone.
func (t *task) takenBack() bool {
	return t.state == events.StateUndone || t.state == events.StateCancelled && !t.keep && !t.left
}

// settled reports whether nothing is to happen without an operator.
func (t *task) settled() bool { return t.state.Terminal() || t.state == events.StateError }

// settle takes over what the event made of the task, and lets go of what no
// further event will need; it returns what was kept while the task was open, once
// it isn't any more.
func (t *task) settle(keep bool) (was *open) {
	s := t.open.state
	if s.StatusSeq == s.Seq {
		t.statusAt = s.UpdatedAt.UnixMilli()
	}
	t.state, t.keep = s.State, s.Keep
	if keep {
		return nil
	}
	if s.State.Terminal() {
		was, t.open = t.open, nil
		return was
	}
	// The fold needs no one's data.
	s.Input, s.Output, s.Labels, s.Error = nil, nil, nil, nil
	for i := range s.Steps {
		st := s.OwnStep(i)
		st.Input, st.Output, st.Error = nil, nil, nil
		if st.Undo != nil {
			st.Undo.Input, st.Undo.Error = nil, nil
		}
	}
	return nil
}

// findAttempt returns the index of the attempt that a request or a reply names.
func (t *task) findAttempt(ref events.RequestRef) (int, bool) {
	i, ok := t.stepIndex(ref.Step)
	if !ok {
		return 0, false
	}
	for j := range t.attempts {
		a := &t.attempts[j]
		if int(a.step) == i && int(a.number) == ref.Attempt && a.undo == (ref.Kind == events.Undo) {
			return j, true
		}
	}
	return 0, false
}

func (t *task) stepIndex(step string) (int, bool) {
	if t.plan == nil {
		return 0, false
	}
	return t.plan.Step(step)
}
