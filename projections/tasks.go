package projections

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"strings"
	"time"

	"github.com/waybill-run/waybill/events"
)

// taskOverheadBytes and stepOverheadBytes estimate the stored size of a task, and of each of its steps, without data
// from outside: plan, names and instants. They are for ChangedBytes.
const (
	taskOverheadBytes = 600
	stepOverheadBytes = 300
)

// Tasks is a scheduler's view of a partition. The ids of all open tasks and the recently used tasks are in memory.
// Pebble has all tasks, the finished ones in the form of events.Task.Finished. It is for one goroutine.
type Tasks struct {
	*view
	open     openTasks
	finished map[string]*entry // not saved yet
	changed  []*entry
	bytes    int
	lookups  bool
	// The first lookup of each kind after BeginLookups opens these; nil: not open.
	lookupOpen, lookup *lookup

	kept, savedKept int64     // ended tasks in Pebble
	forgets         int64     // ids that were deleted
	deletedUntil    time.Time // ids that were forgotten until then are deleted

	snap    snapshots
	loader  *loader // of the snapshot that is being loaded; nil: none was
	loading bool    // finished tasks of a snapshot are being written to Pebble
	loaded  bool    // they have been written, and the next Save records that
	until   int64   // tasks may reflect events up to here: see events.Snapshot.Until
}

// entry is a task in memory.
type entry struct {
	task    *events.Task
	changed bool
	stored  bool // Pebble holds it as an open task
	open    bool // in Tasks.open
	bytes   int  // estimated or actual stored size
	saved   int  // stored size as of the Save that is running

	referenced bool // used since it was last added to the clock
	inClock    bool // in openTasks.clock

	encoded  []byte // of a finished task, until it is saved
	wasEnded bool   // Pebble may hold it as a finished task, though it is open: see events.Event.ProcessedTask
	// storedEnded: Pebble does hold it as a finished task. wasForget is the ForgetAt that it had then.
	storedEnded bool
	wasForget   time.Time
	snapshot    bool // an open chunk of the snapshot may hold it
	listed      bool // the next snapshot writes it: the base has another state of it
}

// Tasks loads a partition: its offset, the ids of its open tasks, and as many of these as HotBytes
// allows. The view must be closed or discarded before the next one of the partition is opened.
func (s *Store) Tasks(p int32) (*Tasks, error) {
	base, err := s.view(ViewTasks, p)
	if err != nil {
		return nil, err
	}
	v := &Tasks{view: base, open: newOpenTasks(), finished: map[string]*entry{}}
	v.dropHalfLoaded()
	v.loadKept()
	v.each(kindOpen, func(id string, data []byte) error {
		v.open.add(id, coldTask{bytes: int32(len(data))})
		if v.open.hotBytes+len(data) > v.s.hotBytesMax() {
			return nil
		}
		t, err := events.DecodeTask(data)
		if err == nil {
			v.open.load(id, t)
		}
		return err
	})
	return v, nil
}

// Task returns a task; nil if the partition has none of that id. It belongs to the view: Clone it before Evolve.
func (v *Tasks) Task(id string) *events.Task {
	v.mustBeOpen()
	e := v.openTask(id)
	if e == nil {
		e = v.finished[id]
	}
	switch {
	case e != nil:
		return v.known(e.task)
	case v.lookups:
		return v.known(v.reuse(&v.lookup, kindFinished, &v.recent).task(id))
	}
	return v.known(v.task(kindFinished, id))
}

// openTask returns the entry of an open task, and loads a cold one from Pebble; nil: no such task is open.
func (v *Tasks) openTask(id string) *entry {
	if en := v.open.hot[id]; en != nil {
		en.referenced = true
		return en
	}
	c, _, ok := v.open.findCold(id)
	if !ok {
		return nil
	}
	// Evicted tasks are in Pebble as of the last Save. Lookups see them, since they began after it.
	v.open.shrink(v.s.hotBytesMax() - int(c.bytes))
	return v.open.load(id, v.readOpen(id))
}

// readOpen reads an open task from Pebble.
func (v *Tasks) readOpen(id string) (t *events.Task) {
	read := func(data []byte) (err error) {
		t, err = events.DecodeTask(data)
		return err
	}
	if v.lookups {
		v.reuse(&v.lookupOpen, kindOpen, nil).get(id, read)
	} else {
		v.get(kindOpen, id, read)
	}
	if t == nil {
		v.corrupt(kindOpen, id, errMissing)
	}
	return t
}

// errMissing says that Pebble lacks a task that the view has.
var errMissing = errors.New("missing")

// task reads a task of a kind; nil: there is none of that id.
func (r reader) task(kind byte, id string) (t *events.Task) {
	r.get(kind, id, func(data []byte) (err error) {
		t, err = events.DecodeTask(data)
		return err
	})
	return t
}

// BeginLookups makes Task cheaper until EndLookups: it reads from what is saved now, and the store
// keeps those files open. The store can't be closed in between.
func (v *Tasks) BeginLookups() { v.lookups = true }

// EndLookups ends what BeginLookups began.
func (v *Tasks) EndLookups() {
	v.lookups = false
	for _, l := range [...]**lookup{&v.lookupOpen, &v.lookup} {
		if *l != nil {
			(*l).close()
			*l = nil
		}
	}
}

// Apply folds the next event of the log. It skips events below Next. An event that can't be folded
// stops its task (Stopped) and is no error. An error means that the partition can't continue:
// epochs fall, or the log is another one. Apply retains nothing of the record.
func (v *Tasks) Apply(r *events.Record) error {
	ok, err := v.accepts(r)
	if err != nil {
		return err
	}
	v.checkBase(r)
	if !ok {
		v.mark(r)
		return nil
	}
	v.reach(r.Offset)
	v.snap.read(len(r.Value), v.s.o.Snapshots.Share)
	e, err := v.decode(r)
	if e != nil {
		v.evolve(r, e)
	}
	return err
}

func (v *Tasks) evolve(r *events.Record, e *events.Event) {
	en := v.openTask(e.Task)
	if en == nil {
		en = v.finished[e.Task]
	}
	if en == nil {
		en = &entry{task: v.Task(e.Task)}
		en.storedEnded = en.task != nil
	}
	if en.task == nil && v.loading { // a processed task that isn't loaded yet; its event has all of it
		en.task, _ = e.ProcessedTask()
	}
	if r.Offset < v.until && en.task != nil && e.Seq <= en.task.Seq {
		return // the snapshot's task reflects it already
	}
	// The task in memory must not alias the record.
	if en.task != nil {
		e.Task = en.task.ID
	} else {
		e.Task = strings.Clone(e.Task)
	}
	ended, forgetAt := en.task != nil && !en.task.Open(), time.Time{}
	if ended {
		forgetAt = en.task.ForgetAt
	}
	t, err := events.Evolve(en.task, e, v.decoder.Hash(r))
	if err != nil {
		v.stop(e.Task, r.Offset, err)
		return
	}
	if ended {
		v.reopen(en, t.ID, forgetAt)
	}
	v.put(en, t)
}

// put sets the task of an entry and marks it changed. Of a finished task it keeps what Finished leaves.
func (v *Tasks) put(en *entry, t *events.Task) {
	if en.changed {
		v.bytes -= en.bytes
	} else {
		en.changed = true
		v.changed = append(v.changed, en)
	}
	if t.Open() {
		v.setOpen(en, t, taskOverheadBytes+stepOverheadBytes*len(t.Steps)+t.Bytes()+t.ProgressBytes())
		v.change(t.ID)
	} else {
		v.setFinished(en, t.Finished())
	}
	v.bytes += en.bytes
}

// setOpen sets an entry's task, which is open.
func (v *Tasks) setOpen(en *entry, t *events.Task, bytes int) {
	if !en.open {
		en.open, en.bytes = true, 0
		v.open.hot[t.ID] = en
		v.open.ids += events.IDSum(t.ID)
	}
	en.task = t
	v.setBytes(en, bytes)
}

// reopen removes an ended task, which is open again: an operator undoes a processed task. Or another task has the id of
// an ended one that is forgotten. forgetAt is the ForgetAt of the ended task.
func (v *Tasks) reopen(en *entry, id string, forgetAt time.Time) {
	en.wasEnded, en.encoded = true, nil
	if v.loading {
		v.loader.omit(id)
		if t := v.task(kindFinished, id); t != nil { // the load may have written it since it was looked up
			en.storedEnded, forgetAt = true, t.ForgetAt
		}
	}
	if en.storedEnded && en.wasForget.IsZero() {
		en.wasForget = forgetAt
	}
	delete(v.finished, id)
}

// setBytes sets the size of an open task.
func (v *Tasks) setBytes(en *entry, bytes int) {
	more := bytes - en.bytes
	en.bytes = bytes
	v.open.bytes += more
	v.open.hotBytes += more
	if en.listed {
		v.snap.changedBytes += more
	}
}

// setFinished sets an entry's task, which is finished.
func (v *Tasks) setFinished(en *entry, t *events.Task) {
	if en.open {
		v.setBytes(en, 0)
		en.open, en.listed = false, false
		delete(v.open.hot, t.ID)
		v.open.ids -= events.IDSum(t.ID)
	}
	v.finished[t.ID] = en
	en.task, en.encoded = t, t.Encode()
	en.bytes = len(en.encoded)
	v.snap.excludeFromScan(t)
	v.ended(t.ID, en.encoded, en.snapshot)
}

// Accept sets the states of tasks that the scheduler computed from the events of a committed transaction, the
// partition's state, and the next offset. The tasks belong to the view from here on.
func (v *Tasks) Accept(tasks []*events.Task, st events.PartitionState, next int64) {
	for _, t := range tasks {
		en := v.open.hot[t.ID]
		if en == nil {
			en = v.open.promote(t.ID)
		}
		if en == nil {
			en = v.finished[t.ID]
		}
		if en == nil {
			en = &entry{}
			if t.Reopened() {
				en.task = v.Task(t.ID)
				en.storedEnded = en.task != nil
			}
		}
		if t.Open() && en.task != nil && !en.task.Open() {
			v.reopen(en, t.ID, en.task.ForgetAt)
		}
		v.put(en, t)
	}
	v.state, v.next = st, next
}

// Open returns the number of open tasks.
func (v *Tasks) Open() int { return v.open.len() }

// EachOpen calls fn with every open task, in no order. It reads cold tasks from Pebble, and keeps them in memory as far
// as HotBytes allows.
func (v *Tasks) EachOpen(fn func(*events.Task)) {
	v.mustBeOpen()
	for _, en := range v.open.hot {
		fn(en.task)
	}
	most := v.s.hotBytesMax()
	v.each(kindOpen, func(id string, data []byte) error {
		c, _, cold := v.open.findCold(id)
		if !cold {
			return nil // it was hot
		}
		t, err := events.DecodeTask(data)
		if err != nil {
			return err
		}
		if v.open.hotBytes+int(c.bytes) <= most {
			v.open.load(id, t)
		}
		fn(t)
		return nil
	})
}

// Changed returns the number of tasks that Save would write, and one more if it would delete forgotten ids.
func (v *Tasks) Changed() int {
	if v.hasForgotten() {
		return len(v.changed) + 1
	}
	return len(v.changed)
}

// ChangedBytes estimates the bytes that Save would write.
func (v *Tasks) ChangedBytes() int { return v.bytes }

// Save writes what changed since the last Save, and the offset, in one batch. A task that changed several times is
// written once. The batch is never split, since a crash may happen between two batches. The caller calls Save when
// ChangedBytes exceeds its bound: scheduler.SaveBytes, or scheduler.RestoreSaveBytes during a restore.
func (v *Tasks) Save() {
	v.EndLookups() // open lookups wouldn't see this Save
	entries := v.Changed()
	if v.loaded {
		entries++
	}
	v.save(entries, v.fill)
	v.afterSave()
}

// fill adds the changed tasks to the batch of a Save.
func (v *Tasks) fill(b batch) {
	if v.loaded {
		b.delete(v.keys.key(kindLoading, ""))
	}
	v.fillForgotten(b) // first, since a later task may have a forgotten id
	var key []byte
	for _, en := range v.changed {
		kind := byte(kindOpen)
		if !en.task.Open() {
			kind = kindFinished
			v.recent.add(en.task.ID)
			v.fillEnded(b, en)
			if en.stored {
				key = v.keys.appendKey(key[:0], kindOpen, en.task.ID)
				b.delete(key)
			}
		}
		if kind == kindOpen && en.wasEnded { // lookups find the open task first, so recent needn't know
			key = v.keys.appendKey(key[:0], kindFinished, en.task.ID)
			b.delete(key)
			v.fillUnended(b, en)
		}
		data := en.encoded
		if kind == kindOpen {
			data = en.task.Encode()
			en.saved = len(data)
		}
		key = v.keys.appendKey(key[:0], kind, en.task.ID)
		b.set(key, data)
	}
	v.fillKept(b)
}

// afterSave marks everything as saved, drops the finished tasks from memory, and evicts open ones.
func (v *Tasks) afterSave() {
	if v.loaded {
		begun, _ := v.s.flushes()
		v.recent.markAllDirty(begun)
		v.loaded = false
	}
	for _, en := range v.changed {
		en.changed, en.stored, en.encoded, en.wasEnded = false, en.open, nil, false
		en.storedEnded, en.wasForget = false, time.Time{}
		if en.open {
			v.setBytes(en, en.saved)
			v.open.addToClock(en)
		}
	}
	clear(v.changed)
	clear(v.finished)
	v.changed, v.bytes = v.changed[:0], 0
	v.open.shrink(v.s.hotBytesMax())
	v.setDecodedBytes(int64(v.open.hotBytes))
}

// Each saves, then calls fn with every task in the order of ids, until fn returns an error, which Each returns. The
// tasks belong to the caller.
func (v *Tasks) Each(fn func(*events.Task) error) error {
	v.Save()
	return v.eachTask(v.state.Forgot, fn)
}

// eachTask merges the ranges of open and finished tasks, without those that are forgotten.
func (r reader) eachTask(forgot time.Time, fn func(*events.Task) error) error {
	kinds := [2]byte{kindOpen, kindFinished}
	var its [2]iterator
	var valid [2]bool
	for i := range its {
		its[i] = r.iterator(r.keys.bounds(kinds[i]))
		defer its[i].close()
		valid[i] = its[i].first()
	}
	for valid[0] || valid[1] {
		i := 0
		if !valid[0] || valid[1] && string(its[1].key()[prefixBytes:]) < string(its[0].key()[prefixBytes:]) {
			i = 1
		}
		t, err := events.DecodeTask(its[i].value())
		if err != nil {
			r.corrupt(kinds[i], its[i].rest(), err)
		}
		if !t.Forgotten(forgot) {
			if err := fn(t); err != nil {
				return err
			}
		}
		valid[i] = its[i].next()
	}
	return nil
}

// Digest saves, then hashes the logical content: the partition's state, every task in the order of ids, the stops. Two
// views that reflect the same events have the same Digest. Next is not part of it, since a reader doesn't see the
// offsets of transaction markers.
func (v *Tasks) Digest() string {
	d := newDigest(ViewTasks)
	_ = v.Each(func(t *events.Task) error {
		d.add(t.Encode())
		return nil
	})
	return v.digest(d, true)
}

// digest adds the content that all views have, and returns the hash.
func (v *view) digest(d digest, state bool) string {
	if state {
		d.add(v.state.Encode())
	}
	for _, s := range v.Stopped() {
		d.add([]byte(s.Task))
		d.add(fmt.Appendf(nil, "%d %d %s", s.Offset, s.Skipped, s.Reason))
	}
	return hex.EncodeToString(d.h.Sum(nil))
}

// digest is a hash over a sequence of byte strings.
type digest struct{ h hash.Hash }

func newDigest(name string) digest {
	d := digest{sha256.New()}
	d.add([]byte("waybill " + name))
	return d
}

func (d digest) add(b []byte) {
	var n [8]byte
	binary.BigEndian.PutUint64(n[:], uint64(len(b)))
	d.h.Write(n[:])
	d.h.Write(b)
}

// Close saves and drops the memory.
func (v *Tasks) Close() {
	if !v.closed {
		v.Save()
		v.Discard()
	}
}

// Discard drops the memory and what wasn't saved. The partition's next view begins at the last Save.
func (v *Tasks) Discard() {
	v.EndLookups()
	v.release()
	v.open, v.finished, v.changed, v.snap = openTasks{}, nil, nil, snapshots{}
}
