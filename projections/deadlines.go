package projections

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/waybill-run/waybill/events"
)

// Due is an armed timer that is due.
type Due = events.Due

// Deadlines is what a supervisor knows of a partition: the armed timers, by the
// instant they are due. It belongs to one goroutine.
type Deadlines struct {
	*view
	tasks   map[string]*taskTimers // that have an armed timer, or had one at the last Save
	changed []*taskTimers
	heap    timerHeap
	armed   int
	// Below until, of a snapshot, an event of a task may be in its state already: those are by seq. nil: none.
	until     int64
	seqs      map[string]uint64
	reader    events.EventReader
	timersBuf []events.Armed // for the timers of one task at a time
}

// Deadlines loads the armed timers of a partition.
func (s *Store) Deadlines(p int32) (*Deadlines, error) {
	base, err := s.view(ViewDeadlines, p)
	if err != nil {
		return nil, err
	}
	v := &Deadlines{view: base, tasks: map[string]*taskTimers{}}
	err = v.each(kindArmed, func(task string, data []byte) error {
		t, err := events.DecodeTimers(data)
		if err != nil {
			return err
		}
		tt := &taskTimers{task: task, stored: true}
		v.tasks[task] = tt
		v.reconcile(tt, t.Armed)
		return nil
	})
	if err != nil {
		v.release()
		return nil, err
	}
	return v, nil
}

// Apply takes in the next event of the log; what is below Next is skipped. An
// event that can't be read stops its task (Stopped): nothing is asked for it
// any more. An error means that the partition can't go on: epochs fall, or the
// store has stopped.
func (v *Deadlines) Apply(r *events.Record) error {
	if ok, err := v.accepts(r); err != nil || !ok {
		return err
	}
	e, err := v.reader.Decode(r)
	if err != nil {
		if tt := v.tasks[string(r.Key)]; tt != nil {
			v.reconcile(tt, nil)
			v.mark(tt)
		}
		return v.stopUnreadable(r, err)
	}
	if err := v.evolvePartition(r, e); err != nil {
		return err
	}
	if e.Task != "" && (len(v.stops) == 0 || !v.skip(e.Task)) && (v.seqs == nil || e.Seq > v.seqs[e.Task]) {
		v.evolve(e)
	}
	if v.next = r.Offset + 1; v.next >= v.until {
		v.seqs = nil
	}
	return nil
}

func (v *Deadlines) evolve(e *events.Event) {
	tt := v.tasks[e.Task]
	if tt == nil {
		if e.Due.IsZero() {
			return // nothing is armed, and this arms nothing
		}
		tt = &taskTimers{task: strings.Clone(e.Task)} // a reader's is a part of the record
		v.tasks[tt.task] = tt
	}
	if v.fold(tt, e) {
		v.mark(tt)
	} else if tt.first == nil && !tt.changed {
		delete(v.tasks, e.Task) // a due without a policy arms nothing
	}
}

// fold applies an event to a task's timers, and reports whether that changed them.
func (v *Deadlines) fold(tt *taskTimers, e *events.Event) (changed bool) {
	slot, one := e.Slot()
	if !one {
		timers := v.timers(tt)
		timers.Evolve(e)
		return v.reconcile(tt, timers.Armed)
	}
	before := tt.find(slot)
	timers := events.Timers{Task: tt.task, Armed: v.timersBuf[:0]}
	if before != nil {
		timers.Armed = append(timers.Armed, before.timer())
	}
	timers.Evolve(e)
	v.timersBuf = timers.Armed[:0]
	if before != nil {
		v.disarm(before)
	}
	for i := range timers.Armed {
		v.arm(tt, &timers.Armed[i])
	}
	return before != nil || len(timers.Armed) > 0
}

// arm takes in a timer of the fold.
func (v *Deadlines) arm(tt *taskTimers, fold *events.Armed) {
	a := newArmedTimer(tt, fold)
	tt.add(a)
	v.armed++
	v.heap.push(heapEntry{at: a.due, timer: a})
}

func (v *Deadlines) disarm(a *armedTimer) {
	a.owner.remove(a)
	v.armed--
	v.heap.countStale()
}

// mark notes that Save has to write the task, or to forget it.
func (v *Deadlines) mark(tt *taskTimers) {
	if !tt.changed {
		tt.changed = true
		v.changed = append(v.changed, tt)
	}
}

// timers are a task's in the form of the fold, until the next call.
func (v *Deadlines) timers(tt *taskTimers) events.Timers {
	v.timersBuf = v.timersBuf[:0]
	for a := tt.first; a != nil; a = a.next {
		v.timersBuf = append(v.timersBuf, a.timer())
	}
	return events.Timers{Task: tt.task, Armed: v.timersBuf}
}

// reconcile brings a task's timers in line with the fold's, and reports whether they
// differed. The fold keeps the order of those that stay, and puts new ones behind
// them.
func (v *Deadlines) reconcile(tt *taskTimers, fold []events.Armed) (changed bool) {
	kept := 0
	for a := tt.first; a != nil; {
		next := a.next
		if kept < len(fold) && a.matches(fold[kept]) {
			changed = a.setCompleteBy(fold[kept].Policy.CompleteBy) || changed
			kept++
		} else {
			v.disarm(a)
			changed = true
		}
		a = next
	}
	for i := range fold[kept:] {
		v.arm(tt, &fold[kept+i])
		changed = true
	}
	return changed
}

// At is the instant of the last event: a clock of the partition that needs no
// other.
func (v *Deadlines) At() time.Time { return v.state.At }

// Armed is the number of armed timers.
func (v *Deadlines) Armed() int { return v.armed }

// Due lists at most max timers that are due at or before now and not snoozed
// past it, the earliest first. They stay due until an event disarms them or
// Snooze puts them off. The cost is that of what is due, not of what is armed.
func (v *Deadlines) Due(now time.Time, max int) []Due {
	var due []Due
	var taken []heapEntry
	limit := now.UnixMilli()
	for len(due) < max {
		w, ok := v.heap.first()
		if !ok || w.at > limit {
			break
		}
		taken = append(taken, v.heap.pop())
		due = append(due, Due{Task: w.timer.owner.task, Armed: w.timer.timer(), Asked: int(w.timer.asked)})
	}
	for _, w := range taken {
		v.heap.push(w)
	}
	return due
}

// Snooze notes that a due timer was asked for: it is due again at until, with
// one more on Asked, unless an event disarms it before. One that is no longer
// armed is left alone.
func (v *Deadlines) Snooze(d Due, until time.Time) {
	tt := v.tasks[d.Task]
	if tt == nil {
		return
	}
	if a := tt.find(d.Armed.Slot); a != nil && a.matches(d.Armed) {
		a.asked++
		v.heap.push(heapEntry{until.Add(time.Millisecond - 1).UnixMilli(), a.asked, a}) // not before until
		v.heap.countStale()
	}
}

// Earliest is the first instant at which a timer is due, or due again; false:
// none is armed.
func (v *Deadlines) Earliest() (time.Time, bool) {
	w, ok := v.heap.first()
	if !ok {
		return time.Time{}, false
	}
	return time.UnixMilli(w.at).UTC(), true
}

// Changed is the number of tasks whose timers changed since the last Save.
func (v *Deadlines) Changed() int { return len(v.changed) }

// timersBytes is about what the armed timers of a task take in Pebble.
const timersBytes = 500

// ChangedBytes is about how much Save would write.
func (v *Deadlines) ChangedBytes() int { return timersBytes * len(v.changed) }

// Save writes the timers that changed since the last Save and the offset, in
// one batch. A timer that was armed and disarmed in between is never written. Nor is
// anything of a snapshot whose end the log hasn't been read to: until then a crash has
// it taken anew.
func (v *Deadlines) Save() error {
	if v.seqs != nil {
		return v.usable()
	}
	err := v.save(len(v.changed), func(b *pebble.Batch) error {
		var key []byte
		for _, tt := range v.changed {
			var err error
			key = v.keys.appendKey(key[:0], kindArmed, tt.task)
			switch {
			case tt.first != nil:
				timers := v.timers(tt)
				err = b.Set(key, timers.Encode(), nil)
			case tt.stored:
				err = b.Delete(key, nil)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, tt := range v.changed {
		tt.changed, tt.stored = false, tt.first != nil
		if !tt.stored {
			delete(v.tasks, tt.task)
		}
	}
	clear(v.changed)
	v.changed = v.changed[:0]
	return nil
}

// Digest hashes the logical content: the partition's state, the armed timers
// in the order of tasks, the stops. Next is left out, as in Tasks.Digest;
// snoozes are no part of it.
func (v *Deadlines) Digest() (string, error) {
	if err := v.Save(); err != nil {
		return "", err
	}
	d := newDigest(ViewDeadlines)
	for _, task := range slices.Sorted(maps.Keys(v.tasks)) {
		if tt := v.tasks[task]; tt.first != nil {
			timers := v.timers(tt)
			d.add(timers.Encode())
		}
	}
	return v.digest(d, true), nil
}

// Close saves and drops the memory, as Tasks.Close.
func (v *Deadlines) Close() {
	if !v.closed {
		_ = v.Save() // its failure is the store's: Err
		v.Discard()
	}
}

// Discard drops the memory and what wasn't saved, as Tasks.Discard.
func (v *Deadlines) Discard() {
	v.release()
	v.tasks, v.changed, v.heap, v.timersBuf = nil, nil, timerHeap{}, nil
}
