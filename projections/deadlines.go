package projections

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/waybill-run/waybill/events"
)

// Due is an armed timer that is due.
type Due = events.Due

// Deadlines is a supervisor's view of a partition: the armed timers, by the instant at which they are due. It is for
// one goroutine.
type Deadlines struct {
	*view
	tasks   map[string]*taskTimers // tasks with an armed timer now or at the last Save
	changed []*taskTimers
	heap    timerHeap
	armed   int
	// The snapshot may reflect events below until already. seqs has the seq of each task in the snapshot; nil: no
	// snapshot is loaded, or until was reached.
	until     int64
	seqs      map[string]uint64
	timersBuf []events.Armed // scratch: the timers of one task
}

// Deadlines loads the armed timers of a partition.
func (s *Store) Deadlines(p int32) (*Deadlines, error) {
	base, err := s.view(ViewDeadlines, p)
	if err != nil {
		return nil, err
	}
	base.decoder.AliasJSON = true // timers have no JSON
	v := &Deadlines{view: base, tasks: map[string]*taskTimers{}}
	v.each(kindArmed, func(task string, data []byte) error {
		t, err := events.DecodeTimers(data)
		if err != nil {
			return err
		}
		tt := &taskTimers{task: task, stored: true}
		v.tasks[task] = tt
		v.reconcile(tt, t.Armed)
		return nil
	})
	return v, nil
}

// Apply folds the next event of the log. It skips events below Next. An event that can't be read
// stops its task (Stopped): its timers are disarmed. An error means that the partition can't
// continue: epochs fall, or the log is another one.
func (v *Deadlines) Apply(r *events.Record) error {
	if ok, err := v.accepts(r); err != nil || !ok {
		return err
	}
	e, err := v.decode(r)
	switch {
	case err != nil:
		return err
	case e == nil: // its task may have been stopped
		if tt := v.tasks[string(r.Key)]; tt != nil {
			v.reconcile(tt, nil)
			v.mark(tt)
		}
	case v.seqs == nil || e.Seq > v.seqs[e.Task]:
		v.evolve(e)
	}
	if v.next >= v.until {
		v.seqs = nil
	}
	return nil
}

func (v *Deadlines) evolve(e *events.Event) {
	tt := v.tasks[e.Task]
	if tt == nil {
		if e.Due.IsZero() {
			return // no timer is armed, before or after
		}
		tt = &taskTimers{task: strings.Clone(e.Task)} // e.Task aliases the record
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

// arm adds a timer of the fold.
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

// mark marks the task to be written or deleted by the next Save.
func (v *Deadlines) mark(tt *taskTimers) {
	if !tt.changed {
		tt.changed = true
		v.changed = append(v.changed, tt)
	}
}

// timers returns a task's timers in the form of the fold. They are valid until the next call.
func (v *Deadlines) timers(tt *taskTimers) events.Timers {
	v.timersBuf = v.timersBuf[:0]
	for a := tt.first; a != nil; a = a.next {
		v.timersBuf = append(v.timersBuf, a.timer())
	}
	return events.Timers{Task: tt.task, Armed: v.timersBuf}
}

// reconcile makes a task's timers equal to the fold's, and reports whether they differed. The fold
// keeps the order of the timers that stay, and appends new ones.
func (v *Deadlines) reconcile(tt *taskTimers, fold []events.Armed) (changed bool) {
	kept := 0
	for a := tt.first; a != nil; {
		next := a.next
		if kept < len(fold) && a.matches(fold[kept]) {
			changed = a.setPolicy(&fold[kept]) || changed
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

// At returns the instant of the last event. It serves as the partition's clock.
func (v *Deadlines) At() time.Time { return v.state.At }

// ForgetDue returns from when on ids of the partition's ended tasks may be forgotten; false: none may be.
func (v *Deadlines) ForgetDue() (at time.Time, ok bool) {
	return v.state.ForgetDue, !v.state.ForgetDue.IsZero()
}

// Armed returns the number of armed timers.
func (v *Deadlines) Armed() int { return v.armed }

// Due returns at most max timers that are due at now and not snoozed, the earliest first. They stay due until an event
// disarms them or Snooze postpones them. The cost is proportional to the timers that are due, not to the armed ones.
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

// Snooze records that a recovery was asked for a due timer. The timer is due again at until, with Asked incremented,
// unless an event disarms it before. A timer that is no longer armed is ignored.
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

// Earliest returns the first instant at which a timer is due, or due again; false: none is armed.
func (v *Deadlines) Earliest() (time.Time, bool) {
	w, ok := v.heap.first()
	if !ok {
		return time.Time{}, false
	}
	return time.UnixMilli(w.at).UTC(), true
}

// Changed returns the number of tasks whose timers changed since the last Save.
func (v *Deadlines) Changed() int { return len(v.changed) }

// timersBytes estimates the size of a task's armed timers in Pebble.
const timersBytes = 500

// ChangedBytes estimates the bytes that Save would write.
func (v *Deadlines) ChangedBytes() int { return timersBytes * len(v.changed) }

// Save writes the timers that changed since the last Save, and the offset, in one batch. A timer
// that was armed and disarmed in between is never written. While the log isn't read to the end of a
// snapshot, Save writes nothing: a crash then loads the snapshot again.
func (v *Deadlines) Save() {
	if v.seqs != nil {
		return
	}
	v.save(len(v.changed), func(b batch) {
		var key []byte
		for _, tt := range v.changed {
			key = v.keys.appendKey(key[:0], kindArmed, tt.task)
			switch {
			case tt.first != nil:
				timers := v.timers(tt)
				b.set(key, timers.Encode())
			case tt.stored:
				b.delete(key)
			}
		}
	})
	for _, tt := range v.changed {
		tt.changed, tt.stored = false, tt.first != nil
		if !tt.stored {
			delete(v.tasks, tt.task)
		}
	}
	clear(v.changed)
	v.changed = v.changed[:0]
}

// Digest hashes the logical content: the partition's state, the armed timers in the order of tasks,
// the stops. Next is not part of it, as in Tasks.Digest, nor are snoozes.
func (v *Deadlines) Digest() string {
	v.Save()
	d := newDigest(ViewDeadlines)
	for _, task := range slices.Sorted(maps.Keys(v.tasks)) {
		if tt := v.tasks[task]; tt.first != nil {
			timers := v.timers(tt)
			d.add(timers.Encode())
		}
	}
	return v.digest(d, true)
}

// Close saves and drops the memory, as Tasks.Close.
func (v *Deadlines) Close() {
	if !v.closed {
		v.Save()
		v.Discard()
	}
}

// Discard drops the memory and what wasn't saved, as Tasks.Discard.
func (v *Deadlines) Discard() {
	v.release()
	v.tasks, v.changed, v.heap, v.timersBuf = nil, nil, timerHeap{}, nil
}
