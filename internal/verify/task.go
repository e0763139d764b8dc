package verify

import (
	"time"

	"github.com/waybill-run/waybill/events"
)

// task is the state of the checks of a task. What is needed only while further events can come is in open. The rest is
// small and is kept.
type task struct {
	id        string
	name      string // in idempotency keys: events.Task.KeyName
	earlier   *task  // had the id before, and was forgotten; nil: none was
	forgetAt  int64  // of an ended task: from when on its id may be forgotten, in ms; 0: never
	partition int32
	broken    bool
	keep      bool // cancelled, and completed steps aren't undone
	left      bool // cancelled while an undo was held; the remaining undos aren't made
	state     events.TaskState
	plan      *events.Plan // shared by the tasks of a definition
	steps     []stepTally  // by index of the plan
	attempts  []attempt    // attempts with a request, in the order of the log
	digest    uint64       // of the submission
	taken     int64        // the offset of the submission
	askedAt   int64        // instant of the submission, or of the last command, in ms
	statusAt  int64        // instant of the event that set state, in ms
	// content is a hash of the inputs and outputs. whole is a hash of the rest of a processed task (reopen.go).
	content, whole uint64
	signals        []uint64 // hashes of the signals received
	family         *family  // nil: it is no child and has none
	open           *open    // nil: the task has ended and isn't kept
}

// stepTally has what happened to a step, counted independently of the fold.
type stepTally struct {
	flags      flags
	generation uint16 // generation of the step's key
	undoing    uint16 // generation of the undo's key
}

type flags uint16

const (
	completed   flags = 1 << iota // by its agent
	handSettled                   // released as completed by an operator
	unknown                       // an attempt timed out or failed, and may have had an effect
	undoAsked                     // a request for its undo was sent
	undone                        // by its agent
	handUndone                    // released as undone by an operator
	skipped
	erred    // in error, and not resumed since
	catching // its undo began so that its error can be caught
	caught
	asking // in error, and checked before its error is caught
)

func (f flags) has(any flags) bool { return f&any != 0 }

// attempt is one attempt with a request.
type attempt struct {
	due     int64  // complete-by, in ms
	started int64  // timestamp of the event's record, in ms
	token   uint64 // a hash of its token hash
	// below is the offset of the replies' partition below which all replies had been decided when the attempt ended. It
	// isn't set for running attempts.
	below      int64
	step       uint16
	number     uint16
	runAndPlan uint8 // runNumber, and the number of migrations before the attempt (migrate.go)
	ended      bool
	asked      bool // its request was fed
	// generation is that of the attempt's key; manyGenerations: that or a later one.
	generation uint8
}

// manyGenerations is the greatest generation that an attempt stores.
const manyGenerations = 255

// open is the state of the checks of a task that hasn't ended.
type open struct {
	state  *events.Task
	offset int64 // of the last event that state reflects
	timers events.Timers
	runs   []run // the run of step i is at 3i, of its undo at 3i+1, of its check at 3i+2
	done   int   // steps
	erred  int   // steps
	// uncaught is the number of steps whose undo is complete, so that they must be caught.
	uncaught int
	// unwithdrawn is true between the two events of a withdrawal that begins an undo.
	unwithdrawn bool
	cut         *cutDecision // the previous decision, if it was incomplete; nil: it wasn't
	gaveUp      gaveUp
	// signals are the signals that the task received, in the order of the log.
	signals []signal
	items   map[int]*items // by step
}

// gaveUp is the last event that put a run in error. The decision about its task that follows must have the same error.
type gaveUp struct {
	seq  uint64
	step int
	err  uint64 // a hash of it
	any  bool   // the error was too large, so it is unknown
	undo bool   // it was a step's undo
	// caught is true if the step catches the error, so the task must go on.
	caught bool
}

// run counts the attempts at a step or its undo, independently of the fold.
type run struct {
	attempt   int
	running   bool
	closed    string // the type of the event that ended the last attempt
	fresh     int    // attempts since submission or the last resubmit
	failures  int    // failures since then
	cooled    bool   // a cool-down was granted
	notBefore time.Time
	failedAt  time.Time // when the timer of its last failure was due, until its wait is decided; zero: it hasn't failed, or it waits
	waits     bool      // its next attempt was granted, and hasn't begun
	granted   bool      // by the plan that its task had before a migration
	key       string
	err       uint64 // a hash of the error that ended a step; 0: unknown
	catches   bool   // the step catches it
	code      uint64 // a hash of the last failure's code
	final     bool   // that code isn't retried
	rejected  bool   // the last attempt was rejected, so a resubmit renews the key
	renewed   bool   // a resubmit renewed the key, and no attempt has started since
	index     int    // of the running attempt in the task's attempts
	began     uint64
	done      uint64 // seq of the event that completed it
	// Of the running attempt: its complete-by, and when its timer is due.
	completeBy, due time.Time
	reportedAt      time.Time // when the last progress was recorded; zero: none
	reported        int       // the size of the last progress
	// last is a hash of the last progress, given that of the one in the request of the last attempt.
	last, given uint64
	calls       int // of a repeat: those that completed and didn't end it, since submission or the last resubmit
	lastCall    int // the attempt with which the last of them ended; 0: none
	of          int // of a check: the step's attempt that it is about
	checked     int // of a check: the step's attempt that the last check that ended is about
	became      events.Became
}

func (o *open) run(i int, k events.Kind) *run {
	return &o.runs[runsPerStep*i+int(runNumber(k))]
}

// runsPerStep is the number of runs that a step may have: its operation, its undo and its check.
const runsPerStep = 3

// kindsOfRun are the kinds of run by runNumber.
var kindsOfRun = [runsPerStep]events.Kind{events.Do, events.Undo, events.Check}

func runNumber(k events.Kind) uint8 {
	switch k {
	case events.Undo:
		return 1
	case events.Check:
		return 2
	case events.Do:
	}
	return 0
}

// mustBeUndone reports whether all completed steps of the task had to be undone.
func (t *task) mustBeUndone() bool {
	return t.state == events.StateUndone || t.state == events.StateCancelled && !t.keep && !t.left
}

// endedOrHeld reports whether the task has ended or is held, so that nothing happens without an operator.
func (t *task) endedOrHeld() bool { return t.state.Terminal() || t.state == events.StateError }

// recordState updates the task after an event, and releases memory that no further event needs. Once the task has ended it
// returns the former open, for reuse.
func (t *task) recordState(keep bool) (was *open) {
	s := t.open.state
	if s.StatusSeq == s.Seq {
		t.statusAt = s.UpdatedAt.UnixMilli()
	}
	t.state, t.keep = s.State, s.Keep
	if !keep {
		t.content += sumOfContent(s)
		if s.Seq == 1 { // it may be kept for later events
			t.content += sumOfInput(s)
		}
	}
	if s.State == events.StateProcessed {
		t.whole = t.sumOfProcessed()
		if keep {
			t.content = sumOfInput(s) + sumOfContent(s)
		}
	}
	if keep {
		return nil
	}
	if s.State.Terminal() {
		was, t.open = t.open, nil
		return was
	}
	// The fold doesn't need this data.
	if s.Output, s.Labels, s.Error = nil, nil, nil; !s.NeedsInput() {
		s.Input = nil
	}
	for i := range s.Steps {
		st := s.OwnStep(i)
		st.Input, st.Output, st.Error = nil, nil, nil
		st.DropProgress()
		if st.Undo != nil {
			st.Undo.Input, st.Undo.Error = nil, nil
			st.Undo.DropProgress()
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
		if int(a.step) == i && int(a.number) == ref.Attempt && a.run() == runNumber(ref.Kind) {
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
