package projections

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/cockroachdb/pebble/v2"

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
		if err := takeChunk(all, &parts, value); err != nil {
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
			detachFrom(task, t.data)
			t.task = task
		}
	}
}

// takeChunk adds the next chunk of open tasks to all.
func takeChunk(all map[string]snapshotTask, parts *events.PartsReader, value []byte) error {
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
	if err := v.usable(); err != nil {
		return nil, err
	}
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
	if err := v.wipe(true); err != nil {
		return nil, err
	}
	v.next, v.until, v.state, v.loading = m.Next, m.Until, m.State, true
	v.lacksLast = m.Until > m.Next      // if they are equal, ExpectLastEvent checks the last event
	v.recent.markAllDirty(neverFlushed) // until FinishLoad
	v.snap.reset(m)
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
			if err := v.store(batch); err != nil {
				return nil, err
			}
			batch = batch[:0]
		}
	}
	if err := v.store(batch); err != nil {
		return nil, err
	}
	return (&loader{s: v.s, keys: v.keys, chunks: finished}).run, nil
}

// loadTasks is the number of open tasks in one batch.
const loadTasks = 500

// store writes tasks of a snapshot to Pebble.
func (v *Tasks) store(tasks []snapshotTask) error {
	size, err := v.s.write(func(b *pebble.Batch) error {
		var key []byte
		for _, t := range tasks {
			kind := byte(kindOpen)
			if !t.open {
				kind = kindFinished
			}
			key = v.keys.appendKey(key[:0], kind, t.id)
			if err := b.Set(key, t.data, nil); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		err = v.s.recordLoaded(size)
	}
	if err != nil {
		return fmt.Errorf("projections: store the snapshot of partition %d: %w", v.keys.partition, err)
	}
	return nil
}

// Wipe deletes what the view and the store have of the partition, so that it is read from the start of the log.
func (v *Tasks) Wipe() error {
	if err := v.usable(); err != nil {
		return err
	}
	return v.wipe(false)
}

// wipe deletes the partition's keys. With loading it adds the key of a partition that is being loaded.
func (v *Tasks) wipe(loading bool) error {
	var mark func(*pebble.Batch) error
	if loading {
		mark = func(b *pebble.Batch) error { return b.Set(v.keys.key(kindLoading, ""), nil, nil) }
	}
	if err := v.deleteAll(mark); err != nil {
		return err
	}
	v.EndLookups()
	v.open, v.finished, v.changed, v.bytes = newOpenTasks(), map[string]*entry{}, nil, 0
	v.until, v.lacksLast, v.loading, v.loaded = 0, false, false, false
	v.snap = snapshots{}
	return nil
}

// dropHalfLoaded empties a partition if the load of its snapshot was interrupted, since it lacks finished tasks.
func (v *Tasks) dropHalfLoaded() error {
	half := false
	if err := v.get(kindLoading, "", func([]byte) error { half = true; return nil }); err != nil || !half {
		return err
	}
	return v.wipe(false)
}

// loader writes the finished tasks of a snapshot into the store.
type loader struct {
	s      *Store
	keys   keyspace
	chunks [][]byte
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
	size, err := l.s.write(func(b *pebble.Batch) error {
		var key []byte
		for _, data := range k.Tasks {
			id, err := events.StoredID(data)
			if err != nil {
				return err
			}
			key = l.keys.appendKey(key[:0], kindFinished, id)
			if err := b.Set(key, data, nil); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return l.s.recordLoaded(size)
}

// recordLoaded counts a batch that doesn't change the partition's saved offset. If too much is unflushed it waits for a
// flush.
func (s *Store) recordLoaded(bytes int) error {
	s.mu.Lock()
	s.unflushedBytes += bytes
	unflushed := s.unflushedBytes
	s.mu.Unlock()
	if unflushed >= unflushedMemtablesMax*s.o.MemtableBytes {
		return s.Flush()
	}
	return nil
}

// FinishLoad must be called when load has returned and the log was read to its end, so every task is known. It saves.
// From here on a crash leaves what was saved.
func (v *Tasks) FinishLoad() error {
	v.loading, v.loaded = false, true
	return v.Save()
}

// Knows reports whether Task is conclusive for this id. While finished tasks are being loaded, it is so only for tasks
// in memory and open tasks.
func (v *Tasks) Knows(id string) bool {
	return !v.loading || v.open.has(id) || v.finished[id] != nil
}
