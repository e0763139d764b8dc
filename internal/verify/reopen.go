package verify

import (
	"fmt"
	"hash/maphash"

	"github.com/waybill-run/waybill/events"
)

// An operator may undo a task that has ended as processed. The event has the whole task, since readers keep less of an
// ended one. So the checks, too, drop an ended task, and keep only hashes of what the event must have: of the attempts
// as they were counted here, and of the inputs and outputs as they were read.

// stepResult is what an undo needs of a step's operation.
type stepResult struct {
	step        int
	attempt     int
	began, done uint64
	key         string
	ended       bool // completed or released as completed
}

// sumOfProcessed returns a hash of a processed task: its last event, and the results of its steps by the count of the
// checks.
func (t *task) sumOfProcessed() uint64 {
	sum := sumOfText(t.open.state.Prev) + t.open.state.Seq
	for i := range t.steps {
		r := t.open.run(i, events.Do)
		sum += maphash.Comparable(seed, stepResult{i, r.attempt, r.began, r.done, r.key, t.steps[i].flags.has(completed | handSettled)})
	}
	return sum
}

// sumOfState is sumOfProcessed of a state.
func sumOfState(s *events.Task) uint64 {
	sum := sumOfText(s.Prev) + s.Seq
	for i, x := range s.Steps {
		sum += maphash.Comparable(seed, stepResult{i, x.Attempt, x.StartedSeq, x.CompletedSeq, x.Key, x.CompletedSeq != 0})
	}
	return sum
}

// sumOfInput returns a hash of the task's input.
func sumOfInput(s *events.Task) uint64 {
	if len(s.Input) == 0 {
		return 0
	}
	return maphash.Comparable(seed, content{"", 'i', maphash.Bytes(seed, s.Input)})
}

// sumOfContent returns a hash of the other inputs and outputs that a state has. It is a sum, so that it can be computed
// event by event.
func sumOfContent(s *events.Task) (sum uint64) {
	add := func(step string, what byte, raw []byte) {
		if len(raw) > 0 {
			sum += maphash.Comparable(seed, content{step, what, maphash.Bytes(seed, raw)})
		}
	}
	add("", 'o', s.Output)
	for name, value := range s.Labels {
		sum += maphash.Comparable(seed, [2]string{name, value})
	}
	for i, x := range s.Steps {
		id := s.Plan.Steps[i].ID // a migration changes the indices
		if !x.TaskInput {
			add(id, 'i', x.Input)
		}
		add(id, 'o', x.Output)
	}
	return sum
}

// content is the hash of an input or output, and where it belongs: a step, or the task (empty).
type content struct {
	step string
	what byte
	hash uint64
}

// checkReopening checks an event about a task that has ended. Only an undo of a processed task is allowed, and its
// event must have the task as its events came to (P2). It returns what is wrong; empty: the task is open again.
func (c *Checker) checkReopening(t *task, e *events.Event) (what string) {
	whole, err := e.ProcessedTask()
	switch {
	case t.state != events.StateProcessed || whole == nil && err == nil:
		return fmt.Sprintf("%s after the task ended as %s", e.Fact.Type(), t.state)
	case err != nil:
		return err.Error()
	case len(whole.Steps) != len(t.steps):
		return fmt.Sprintf("it has a task of %d steps; the processed task has %d", len(whole.Steps), len(t.steps))
	case sumOfState(whole) != t.whole:
		return "it has another state of the processed task than its events come to"
	case sumOfInput(whole)+sumOfContent(whole) != t.content:
		return "it has other inputs or outputs of the processed task than its events have"
	}
	if t.open != nil { // ended tasks are kept
		return ""
	}
	t.open = c.room()
	o := t.open
	o.state = whole
	o.runs = o.runs[:0]
	for i, s := range whole.Steps {
		if t.steps[i].flags.has(done) {
			o.done++
		}
		do, undo := run{attempt: s.Attempt, began: s.StartedSeq, done: s.CompletedSeq, key: s.Key}, run{}
		if s.Undo != nil {
			undo = run{attempt: s.Undo.Attempt, began: s.Undo.StartedSeq, key: s.Undo.Key}
		}
		check := run{}
		if s.Check != nil {
			check = run{attempt: s.Check.Attempt, began: s.Check.StartedSeq, key: s.Check.Key, of: s.KindState().Checking, checked: s.KindState().Checked, became: s.KindState().Became}
		}
		o.runs = append(o.runs, do, undo, check)
		o.adoptItems(i, s.Items)
	}
	return ""
}
