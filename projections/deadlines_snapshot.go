package projections

import (
	"fmt"
	"maps"
	"slices"

	"github.com/waybill-run/waybill/events"
)

// LoadSnapshot replaces the view's content by the timers of a snapshot's open tasks, which the owner of the partition
// has written (Tasks.Snapshot). ExpectLastEvent returns where to read on. Only the chunks of open tasks must have been
// read. An error that wraps events.ErrSnapshot says that the snapshot can't be used; then nothing was changed.
func (v *Deadlines) LoadSnapshot(r *events.SnapshotReader) error {
	m, err := r.Snapshot()
	armed, seqs := map[string][]events.Armed{}, map[string]uint64{}
	if err == nil {
		_, err = snapshotTasks(r, m, func(t *snapshotTask, task *events.Task) {
			seqs[t.id] = task.Seq
			if timers := task.Timers(); len(timers.Armed) > 0 {
				armed[t.id] = timers.Armed
			}
		})
	}
	if err != nil {
		return fmt.Errorf("projections: partition %d: %w: %w", v.keys.partition, events.ErrSnapshot, err)
	}
	v.Wipe()
	v.next, v.state = m.Next, m.State
	if m.Until > m.Next {
		v.until, v.seqs = m.Until, seqs
	}
	for _, task := range slices.Sorted(maps.Keys(armed)) { // sorted, so that equal snapshots give equal views
		tt := &taskTimers{task: task}
		v.tasks[task] = tt
		v.reconcile(tt, armed[task])
		v.mark(tt)
	}
	return nil
}

// Wipe deletes what the view and the store have of the partition, so that it is restored from a
// snapshot or read from the start of the log.
func (v *Deadlines) Wipe() {
	v.deleteAll(func(batch) {})
	v.tasks, v.changed, v.heap, v.armed, v.until, v.seqs = map[string]*taskTimers{}, nil, timerHeap{}, 0, 0, nil
}
