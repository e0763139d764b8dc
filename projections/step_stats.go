package projections

import (
	"encoding/binary"
	"errors"
	"strings"
	"time"

	"github.com/waybill-run/waybill/events"
)

// The counts of steps, by version of a workflow. What happened (attempts, failures, results, durations) is counted as
// events are folded. Where open tasks are now is counted by each Save, from the difference to the Save before. Counts
// have a key for each step, durations one for each step and window, and a Save writes only those that have
// changed.

// StepPlace says where an open task is in a step: its operation, its undo or its check.
type StepPlace uint8

// The places. A task is in the first that holds. AtHeld is only of held tasks: the step is in error.
const (
	AtRunning StepPlace = iota // an attempt runs, or the step waits for an instant or a signal
	AtWaiting                  // the next attempt, or the next call of a repeat, is due later
	AtFailed                   // an attempt has failed, and what follows isn't decided
	AtHeld
	StepPlaces
)

// StepRun is what happened to one kind of run of a step: its operation, its undo or its check.
type StepRun struct {
	Attempts  int64 // requests that were sent; of a step that calls no agent: how often it began to wait
	Failures  int64 // attempts that failed or expired, or whose request couldn't be sent
	Completed int64 // by an attempt, or by a check that found it completed
	Errored   int64 // rejected, or given up
	Skipped   int64 // by its when
	Caught    int64 // ended in error, after which the task went on
	Repeated  int64 // calls of a repeat that completed and didn't end the step
	Released  int64 // by an operator
}

func (r *StepRun) counts() [8]*int64 {
	return [8]*int64{&r.Attempts, &r.Failures, &r.Completed, &r.Errored, &r.Skipped, &r.Caught, &r.Repeated, &r.Released}
}

// StepStats are the counts of a step. They can be merged without loss.
type StepStats struct {
	At              [StepPlaces]int64 // open tasks now
	Do, Undo, Check StepRun
	// DoTook and UndoTook are how long the operations and undos took that completed, from the start of the first attempt
	// (events.StepChange.Took), in this window and the one before.
	DoTook, UndoTook Histogram
}

// runs returns the counts of the runs by kind.
func (s *StepStats) runs() [3]*StepRun { return [3]*StepRun{&s.Do, &s.Undo, &s.Check} }

func (s *StepStats) run(k events.Kind) *StepRun {
	switch k {
	case events.Undo:
		return &s.Undo
	case events.Check:
		return &s.Check
	case events.Do:
	}
	return &s.Do
}

// Merge adds other counts of the step.
func (s *StepStats) Merge(o *StepStats) {
	s.mergeCounts(o)
	s.DoTook.Merge(&o.DoTook)
	s.UndoTook.Merge(&o.UndoTook)
}

func (s *StepStats) mergeCounts(o *StepStats) {
	for i, n := range o.At {
		s.At[i] += n
	}
	more := o.runs()
	for i, r := range s.runs() {
		add := more[i].counts()
		for j, n := range r.counts() {
			*n += *add[j]
		}
	}
}

// encodeCounts returns the stored form without the durations.
func (s *StepStats) encodeCounts() []byte {
	data := make([]byte, 0, 32)
	for _, n := range s.At {
		data = binary.AppendVarint(data, n)
	}
	for _, r := range s.runs() {
		for _, n := range r.counts() {
			data = binary.AppendVarint(data, *n)
		}
	}
	return data
}

var errNoStepStats = errors.New("not counts of a step")

// addCounts adds the counts of a stored form.
func (s *StepStats) addCounts(data []byte) error {
	var o StepStats
	read := func(n *int64) {
		v, size := binary.Varint(data)
		*n, data = v, data[max(size, 0):]
	}
	for i := range o.At {
		read(&o.At[i])
	}
	for _, r := range o.runs() {
		for _, n := range r.counts() {
			read(n)
		}
	}
	if len(data) > 0 {
		return errNoStepStats
	}
	s.mergeCounts(&o)
	return nil
}

func (s *StepStats) encodeTook() []byte { return s.UndoTook.appendTo(s.DoTook.appendTo(nil)) }

// addTook adds the durations of a stored form.
func (s *StepStats) addTook(data []byte) error {
	do, data, err := readHistogram(data)
	if err != nil {
		return err
	}
	undo, _, err := readHistogram(data)
	s.DoTook.Merge(&do)
	s.UndoTook.Merge(&undo)
	return err
}

// tookWindow is the length of a window of durations. Two windows are kept, so durations are of the last 7 to 14 days.
const tookWindow = 7 * 24 * time.Hour

// StepDays is the number of days that the durations of steps are at most of.
const StepDays = int(2 * tookWindow / (24 * time.Hour))

// windowOf returns the number of an instant's window since 1970.
func windowOf(at time.Time) int64 { return at.Unix() / int64(tookWindow/time.Second) }

// versionOf names a version of a workflow.
type versionOf struct {
	workflow string
	version  int
}

func (k keyspace) stepKey(of versionOf, step string) []byte {
	return k.key(kindSteps, string(versionFacet(of.workflow, of.version))+step)
}

func (k keyspace) tookKey(window int64, of versionOf, step string) []byte {
	key := binary.BigEndian.AppendUint64(k.key(kindTook, ""), uint64(window))
	return append(append(key, versionFacet(of.workflow, of.version)...), step...)
}

// stepDelta is what was counted of a step since the last Save.
type stepDelta struct {
	counts StepStats
	took   map[int64]*StepStats // durations by window; nil: none
}

// stepsFold are the counts since the last Save.
type stepsFold struct {
	byVersion map[versionOf]map[string]*stepDelta
	last      versionOf // of the event before, since the next one is mostly of the same
	steps     map[string]*stepDelta
	pruned    int64 // the latest window to which durations were pruned
}

func newStepsFold() stepsFold { return stepsFold{byVersion: map[versionOf]map[string]*stepDelta{}} }

func (f *stepsFold) delta(s *events.Summary, step string) *stepDelta {
	if of := (versionOf{s.Workflow, s.Version}); f.steps == nil || of != f.last {
		if f.steps = f.byVersion[of]; f.steps == nil {
			f.steps = map[string]*stepDelta{}
			f.byVersion[of] = f.steps
		}
		f.last = of
	}
	d := f.steps[step]
	if d == nil {
		d = &stepDelta{}
		f.steps[strings.Clone(step)] = d
	}
	return d
}

// add counts an event. s is the row after it.
func (f *stepsFold) add(e *events.Event, s *events.Summary, c *events.StepChange) {
	if c.Step == "" {
		return
	}
	d := f.delta(s, c.Step)
	r := d.counts.run(c.Kind)
	if c.Began {
		r.Attempts++
	}
	if c.Failed {
		r.Failures++
	}
	if c.Repeated {
		r.Repeated++
	}
	d.counts.end(c)
	if c.Done {
		d.addTook(c, e.At)
	}
}

// end counts the states that a step has entered.
func (s *StepStats) end(c *events.StepChange) {
	if c.Released {
		if c.Undo != "" {
			s.Undo.Released++
		} else {
			s.Do.Released++
		}
		return
	}
	switch c.Do {
	case events.StepCompleted:
		s.Do.Completed++
	case events.StepSkipped:
		s.Do.Skipped++
	case events.StepCaught:
		s.Do.Caught++
	case events.StepError:
		if c.Kind == events.Do {
			s.Do.Errored++
		}
	default: // not an end
	}
	s.Undo.endOf(c.Undo)
	s.Check.endOf(c.Check)
}

// endOf counts the state that an undo or a check has entered.
func (r *StepRun) endOf(state events.StepState) {
	switch state {
	case events.StepCompleted:
		r.Completed++
	case events.StepError:
		r.Errored++
	default: // not an end
	}
}

func (d *stepDelta) addTook(c *events.StepChange, at time.Time) {
	if d.took == nil {
		d.took = map[int64]*StepStats{}
	}
	w := windowOf(at)
	if d.took[w] == nil {
		d.took[w] = &StepStats{}
	}
	if c.Kind == events.Undo {
		d.took[w].UndoTook.Add(c.Took.Milliseconds())
	} else {
		d.took[w].DoTook.Add(c.Took.Milliseconds())
	}
}

// stepAt is a step that an open task is at.
type stepAt struct {
	step  string
	place StepPlace
}

// stepsAt returns the steps that a task is at.
func stepsAt(s *events.Summary) (at []stepAt) {
	if !s.Open() {
		return nil
	}
	for i := range s.Steps {
		p := &s.Steps[i]
		switch is := func(st events.StepState) bool { return p.State == st || p.Undo == st || p.Check == st }; {
		case is(events.StepRunning):
			at = append(at, stepAt{p.ID, AtRunning})
		case s.State == events.StateError && p.State == events.StepError:
			at = append(at, stepAt{p.ID, AtHeld})
		case is(events.StepWaiting):
			at = append(at, stepAt{p.ID, AtWaiting})
		case p.State == events.StepFailed || p.Undo == events.StepFailed:
			at = append(at, stepAt{p.ID, AtFailed})
		}
	}
	return at
}

// move counts a change of the steps that a task is at, by its version.
func (f *stepsFold) move(s *events.Summary, was *indexState, is []stepAt) {
	before := &events.Summary{Workflow: s.Workflow, Version: was.version}
	for _, a := range was.at {
		f.delta(before, a.step).counts.At[a.place]--
	}
	for _, a := range is {
		f.delta(s, a.step).counts.At[a.place]++
	}
}

// save adds what was counted to what is saved, and deletes durations that are no longer kept. latest is the instant of
// the latest event.
func (f *stepsFold) save(b batch, r reader, latest time.Time) {
	oldest := windowOf(latest) - 1
	for of, steps := range f.byVersion {
		for step, d := range steps {
			f.saveCounts(b, r, r.keys.stepKey(of, step), d)
			for window, took := range d.took {
				if window < oldest {
					continue
				}
				key := r.keys.tookKey(window, of, step)
				r.get(kindTook, string(key[prefixBytes:]), took.addTook)
				b.set(key, took.encodeTook())
			}
		}
	}
	clear(f.byVersion)
	f.steps = nil
	if f.pruned < oldest {
		b.deleteRange(r.keys.key(kindTook, ""), r.keys.tookKey(oldest, versionOf{}, "")[:prefixBytes+8])
		f.pruned = oldest
	}
}

func (f *stepsFold) saveCounts(b batch, r reader, key []byte, d *stepDelta) {
	nothing := (&StepStats{}).encodeCounts()
	if string(d.counts.encodeCounts()) == string(nothing) {
		return
	}
	r.get(kindSteps, string(key[prefixBytes:]), d.counts.addCounts)
	if counts := d.counts.encodeCounts(); string(counts) != string(nothing) {
		b.set(key, counts)
	} else { // the tasks that were at the step were migrated
		b.delete(key)
	}
}

// StepList is the result of Store.Steps.
type StepList struct {
	Steps map[string]*StepStats      // those that a task has reached
	Tasks map[events.TaskState]int64 // of the version, by state
	AsOf  map[int32]int64            // partition -> the offset below which all of it is reflected
}

// Steps returns the counts of the steps of a workflow's version in some partitions. It answers from what was saved, and
// may be called from several goroutines.
func (s *Store) Steps(partitions []int32, workflow string, version int) (StepList, error) {
	l := StepList{Steps: map[string]*StepStats{}, Tasks: map[events.TaskState]int64{}, AsOf: map[int32]int64{}}
	of := versionOf{workflow, version}
	for _, p := range partitions {
		asOf, err := s.onSnapshot(ViewTimelines, p, func(r reader) {
			t := r.tally()
			for state, n := range t.Workflows[workflowKey(&events.Summary{Workflow: workflow, Version: version})] {
				l.Tasks[state] += n
			}
			l.read(r, kindSteps, r.keys.stepKey(of, ""), (*StepStats).addCounts)
			for window := windowOf(instant(t.Latest)) - 1; window <= windowOf(instant(t.Latest)); window++ {
				l.read(r, kindTook, r.keys.tookKey(window, of, ""), (*StepStats).addTook)
			}
		})
		if err != nil {
			return l, err
		}
		l.AsOf[p] = asOf.Next
	}
	return l, nil
}

// read adds what is stored under the keys with a prefix. The rest of each is the name of a step.
func (l *StepList) read(r reader, kind byte, prefix []byte, add func(*StepStats, []byte) error) {
	it := r.iterator(prefix, append(prefix[:len(prefix):len(prefix)], 0xff)) // UTF-8 has no such byte
	defer it.close()
	for ok := it.first(); ok; ok = it.next() {
		step := string(it.key()[len(prefix):])
		if l.Steps[step] == nil {
			l.Steps[step] = &StepStats{}
		}
		if err := add(l.Steps[step], it.value()); err != nil {
			r.corrupt(kind, it.rest(), err)
		}
	}
}
