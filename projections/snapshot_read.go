package projections

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/waybill-run/waybill/events"
)

// snapshotTask is a task of a snapshot.
type snapshotTask struct {
	id   string
	data []byte
	open bool
	task *events.Task // of an open task that stays in memory
}

// snapshotTasks returns the tasks of the open chunks. Some may have ended since the snapshot's offset. It decodes each
// task to verify it, and calls look with it.
func snapshotTasks(r *events.SnapshotReader, m *events.Snapshot, look func(*snapshotTask, *events.Task)) (map[string]snapshotTask, error) {
	values, err := r.ChunkValues(events.ChunkOpen, m.Open)
	if err != nil {
		return nil, err
	}
	all := make(map[string]snapshotTask, m.Tasks)
	var parts events.PartsReader
	for i, value := range values {
		if err := mergeChunk(all, &parts, value); err != nil {
			return nil, fmt.Errorf("chunk %d of the open tasks: %w", i, err)
		}
	}
	if err := parts.CheckComplete(); err != nil {
		return nil, fmt.Errorf("after the last chunk of the open tasks: %w", err)
	}
	ids := uint64(0)
	for id, t := range all {
		task, err := events.DecodeTask(t.data)
		if err != nil {
			return nil, fmt.Errorf("task %q: %w", id, err)
		}
		t.open = task.Open()
		look(&t, task)
		all[id] = t
		ids += events.IDSum(id)
	}
	if len(all) != m.Tasks || ids != m.IDs {
		return nil, fmt.Errorf("it holds %d tasks, or others than the %d that it is of", len(all), m.Tasks)
	}
	return all, nil
}

// keepDecoded returns a function that keeps open tasks decoded, up to most bytes of stored forms.
func keepDecoded(most int) func(*snapshotTask, *events.Task) {
	return func(t *snapshotTask, task *events.Task) {
		if most -= len(t.data); t.open && most >= 0 {
			t.task = task
		}
	}
}

// mergeChunk adds the next chunk of open tasks to all.
func mergeChunk(all map[string]snapshotTask, parts *events.PartsReader, value []byte) error {
	k, err := events.DecodeChunk(value)
	if err != nil {
		return err
	}
	tasks := k.Tasks
	if k.Part == nil {
		err = parts.CheckComplete()
	} else if whole, e := parts.Add(k.Part); e != nil || whole == nil {
		return e
	} else {
		tasks = [][]byte{whole}
	}
	if err != nil {
		return err
	}
	for _, id := range k.Ended {
		delete(all, id)
	}
	for _, data := range tasks {
		id, err := events.StoredID(data)
		if err != nil {
			return err
		}
		all[id] = snapshotTask{id: id, data: data}
	}
	return nil
}

// LoadSnapshot replaces the view's content by a snapshot. The open tasks are loaded when it returns. load writes the
// finished ones into the store, concurrently with the view, in any goroutine. It returns early if its context ends. It
// must have returned before the view is closed. A crash before FinishLoad empties the partition. An error that wraps
// events.ErrSnapshot says that the snapshot can't be used; then nothing was changed.
func (v *Tasks) LoadSnapshot(r *events.SnapshotReader) (load func(context.Context) error, err error) {
	v.mustBeOpen()
	m, err := r.Snapshot()
	var tasks map[string]snapshotTask
	if err == nil {
		tasks, err = snapshotTasks(r, m, keepDecoded(v.s.hotBytesMax()))
	}
	var finished [][]byte
	if err == nil {
		finished, err = r.ChunkValues(events.ChunkFinished, m.Finished)
	}
	if err != nil {
		return nil, fmt.Errorf("projections: partition %d: %w: %w", v.keys.partition, events.ErrSnapshot, err)
	}
	v.wipe(true)
	v.next, v.until, v.state, v.loading = m.Next, m.Until, m.State, true
	v.recent.markAllDirty(neverFlushed) // until FinishLoad
	v.snap.reset(m)
	if last := lastEvents(m); m.Until > m.Next { // ExpectLastEvent checks the event before Next
		v.snap.unseen = last[len(last)-1:]
	}
	batch := make([]snapshotTask, 0, loadTasks)
	for _, id := range slices.Sorted(maps.Keys(tasks)) { // sorted, so that equal snapshots give equal stores
		t := tasks[id]
		if t.open {
			v.open.add(id, coldTask{bytes: int32(len(t.data)), snapshot: true})
			if t.task != nil {
				v.open.load(id, t.task)
			}
		} else {
			v.ended(id, t.data, true)
		}
		if batch = append(batch, t); len(batch) == loadTasks {
			v.store(batch)
			batch = batch[:0]
		}
	}
	v.store(batch)
	omitted := make(map[string]struct{}, len(tasks))
	for id := range tasks {
		omitted[id] = struct{}{}
	}
	v.loader = &loader{s: v.s, keys: v.keys, chunks: finished, omitted: omitted, forgot: m.State.Forgot}
	return v.loader.run, nil
}

// loadTasks is the number of open tasks in one batch.
const loadTasks = 500

// store writes tasks of a snapshot to Pebble.
func (v *Tasks) store(tasks []snapshotTask) {
	size := v.s.write(func(b batch) {
		var key []byte
		for _, t := range tasks {
			kind := byte(kindOpen)
			if !t.open {
				kind = kindFinished
			}
			key = v.keys.appendKey(key[:0], kind, t.id)
			b.set(key, t.data)
			if !t.open {
				v.keys.setForgetKey(b, t.id, t.data)
				v.kept++
			}
		}
	})
	v.s.recordLoaded(size)
}

// Wipe deletes what the view and the store have of the partition, so that it is read from the start of the log.
func (v *Tasks) Wipe() { v.wipe(false) }

// wipe deletes the partition's keys. With loading it adds the key of a partition that is being loaded.
func (v *Tasks) wipe(loading bool) {
	v.EndLookups()
	v.deleteAll(func(b batch) {
		if loading {
			b.set(v.keys.key(kindLoading, ""), nil)
		}
	})
	v.open, v.finished, v.changed, v.bytes = newOpenTasks(), map[string]*entry{}, nil, 0
	v.until, v.loading, v.loaded = 0, false, false
	v.kept, v.savedKept, v.loader, v.deletedUntil = 0, 0, nil, time.Time{}
	v.snap = snapshots{}
}

// dropHalfLoaded empties a partition if the load of its snapshot was interrupted, since it lacks finished tasks.
func (v *Tasks) dropHalfLoaded() {
	half := false
	v.get(kindLoading, "", func([]byte) error { half = true; return nil })
	if half {
		v.wipe(false)
	}
}

// loader writes the finished tasks of a snapshot into the store.
type loader struct {
	s      *Store
	keys   keyspace
	chunks [][]byte
	// writing is held while a chunk is written. It guards omitted.
	writing sync.Mutex
	// omitted are the ids of tasks that aren't loaded, since the chunks of finished tasks have an earlier state of them:
	// those of the open chunks, and those that were reopened after the snapshot.
	omitted map[string]struct{}
	// Tasks that are forgotten until this instant aren't loaded. It is as of the end of the log, so a later task that has
	// the id of a forgotten one isn't overwritten.
	forgot time.Time
	kept   int64 // tasks that were loaded
}

// omit excludes a task from the load. When it returns, the store has the task if the load has written it before.
func (l *loader) omit(id string) {
	l.writing.Lock()
	defer l.writing.Unlock()
	l.omitted[id] = struct{}{}
}

func (l *loader) run(ctx context.Context) error {
	for i, value := range l.chunks {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		k, err := events.DecodeChunk(value)
		if err == nil && k.Part != nil {
			err = events.ErrParts // finished tasks are never written in parts
		}
		if err == nil {
			err = l.load(k)
		}
		if err != nil {
			return fmt.Errorf("projections: partition %d: load chunk %d of the finished tasks: %w", l.keys.partition, i, err)
		}
		l.chunks[i] = nil
	}
	return nil
}

func (l *loader) load(k *events.Chunk) error {
	c := loadedChunk{tasks: k.Tasks, ids: make([]string, len(k.Tasks)), reopened: make([]bool, len(k.Tasks)), last: make(map[string]int, len(k.Tasks))}
	for i, data := range k.Tasks {
		state, err := events.StoredState(data)
		if err == nil {
			c.ids[i], err = events.StoredID(data)
		}
		if err != nil {
			return err
		}
		c.reopened[i], c.last[c.ids[i]] = state != events.StateProcessed, i
	}
	l.s.recordLoaded(l.write(&c))
	return nil
}

// loadedChunk is a chunk of finished tasks. A task that was processed, undone, and ended again is in chunks twice. The
// later one counts.
type loadedChunk struct {
	tasks    [][]byte
	ids      []string
	reopened []bool         // an earlier chunk may have the task
	last     map[string]int // the last index in the chunk
}

// write writes the tasks of a chunk, and returns the size of the batch.
func (l *loader) write(c *loadedChunk) int {
	l.writing.Lock()
	defer l.writing.Unlock()
	return l.s.write(func(b batch) {
		var key []byte
		for i, data := range c.tasks {
			id := c.ids[i]
			if _, is := l.omitted[id]; is || c.last[id] != i {
				continue
			}
			at := events.StoredForgetAt(data)
			if !at.IsZero() && !at.After(l.forgot) {
				continue
			}
			if c.reopened[i] {
				l.removeEarlier(b, id)
			}
			key = l.keys.appendKey(key[:0], kindFinished, id)
			b.set(key, data)
			l.keys.setForgetKey(b, id, data)
			l.kept++
		}
	})
}

// removeEarlier removes what an earlier chunk has of a task, except its row, which is overwritten.
func (l *loader) removeEarlier(b batch, id string) {
	reader{l.s, l.s.db, l.keys}.get(kindFinished, id, func(stored []byte) error {
		l.kept--
		if at := events.StoredForgetAt(stored); !at.IsZero() {
			b.delete(l.keys.appendForgetKey(nil, at, id))
		}
		return nil
	})
}

// FinishLoad must be called when load has returned and the log was read to its end, so every task is known. It saves.
// From here on a crash leaves what was saved.
func (v *Tasks) FinishLoad() {
	v.loading, v.loaded = false, true
	v.kept, v.loader = v.kept+v.loader.kept, nil
	v.Save()
}

// Knows reports whether Task is conclusive for this id. While finished tasks are being loaded, it is so only for tasks
// in memory and open tasks.
func (v *Tasks) Knows(id string) bool {
	return !v.loading || v.open.has(id) || v.finished[id] != nil
}
