package projections

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"github.com/waybill-run/waybill/events"
)

// A snapshot of a partition is written to Kafka incrementally, in the transactions of the partition's owner. It
// consists of what changed since the last snapshot, and is written once that is small compared with the events written
// since. Chunks are immutable. They are valid once the record under "meta" refers to them, so an interrupted snapshot
// changes nothing.
//
// What changed since the last snapshot is only in memory. After a restart the view reads the events from the snapshot's
// offset on, and marks the tasks that they are about. So the store needn't agree with the topic, whichever process
// wrote the last snapshot.

// SnapshotOptions control when a snapshot is written. The zero value has the defaults.
type SnapshotOptions struct {
	// Share bounds the bytes that snapshots write for open tasks: 1/Share of the bytes of events. Each finished task is
	// written once, in addition.
	Share int
	// EventBytes is the minimum number of bytes of events between two snapshots.
	EventBytes int64
	// ChunkBytes is about the size of a chunk. One transaction writes about as much of a snapshot, besides finished
	// tasks.
	ChunkBytes int
}

// The defaults of SnapshotOptions.
const (
	DefaultSnapshotShare      = 20
	DefaultSnapshotEventBytes = 4 << 20
	DefaultSnapshotChunkBytes = 256 << 10
)

const (
	// chunkBytesMax is below the size of a record that Kafka accepts by default.
	chunkBytesMax = 990_000
	// partBytes is the size of a part of a task that doesn't fit a chunk.
	partBytes = chunkBytesMax / 4 * 3 * 9 / 10
	// endedBytesMax bounds the finished tasks that are in memory until they are written. Above it the next snapshot is
	// a full one, which reads all finished tasks from Pebble.
	endedBytesMax = 32 << 20
	// scanReadBytesMax bounds the finished tasks that a scan reads in one transaction, in bytes. It exceeds what one
	// transaction finishes. Otherwise a scan might never pass the tasks that finished since it began.
	scanReadBytesMax = 4 << 20
	// endedAtScanMax bounds the ids of tasks that finished at the instant at which a scan began. There are more only if
	// the partition's time stands still for long, since it was ahead of the owner's clock. The others may be written
	// twice, and then the number of ended tasks is too high.
	endedAtScanMax = 100_000
	// All open tasks are written again once there are at least rewriteChunks chunks of them, whose size exceeds
	// rewriteFactor times the size of the open tasks.
	rewriteChunks = 8
	rewriteFactor = 2
	// A byte of a pass is paid for by Share bytes of events. The pass is spread over 1/paceShare of these events.
	// Without a pace, a pass would load the broker as much as the events do. With a slower pace, more events must be
	// read after a restore.
	paceShare = 5
)

func (o *SnapshotOptions) setDefaults() {
	if o.Share <= 0 {
		o.Share = DefaultSnapshotShare
	}
	if o.EventBytes <= 0 {
		o.EventBytes = DefaultSnapshotEventBytes
	}
	if o.ChunkBytes <= 0 {
		o.ChunkBytes = DefaultSnapshotChunkBytes
	}
}

// snapshots is a view's state of its partition's snapshot. It is disabled until SnapshotBase is called.
type snapshots struct {
	enabled bool
	base    events.Snapshot // the last snapshot on the topic
	// awaited is true while the base is not below the store's offset. Changes are counted from the base's offset on.
	awaited  bool
	mismatch bool // the base has different tasks than the store had at its offset
	// unseen are the events by which the base is recognized as of this log, as far as they weren't read, in order.
	unseen  []eventID
	foreign string // why the base isn't of this log; empty: nothing was found
	// full is true if the changes since the base are unknown, so a scan of the store writes everything again. scanning
	// is true once a transaction with a part of the scan was committed. cursor is the last finished task of the scan;
	// empty: none. The scan leaves out tasks that finished after it began, since they are in ended: those after
	// scanFrom, and those of endedAtScan, which finished at that same instant.
	full, scanning bool
	cursor         string
	scanFrom       time.Time
	endedAtScan    map[string]struct{}

	// Open tasks that differ from the base are listed in Tasks.open.
	changedBytes int
	removed      []string // tasks of the base's open chunks that ended
	ended        [][]byte // stored forms of tasks that ended and aren't in a chunk yet
	endedBytes   int
	marked       map[string]struct{} // finished tasks that mark has handled

	credit     int64 // bytes that snapshots may write by now
	debt       int64 // bytes that a pass or scan has written ahead of its pace
	eventBytes int64 // bytes of events since the last pass began
	finished   events.Chunks
	finishedN  int64
	pass       *pass
	pending    []func() // functions to run once the records that Snapshot returned are committed
}

// pass is a snapshot that is being written, perhaps over several transactions.
type pass struct {
	meta    events.Snapshot
	ended   int // number of tasks at the front of snapshots.ended that belong to it
	removed []string
	todo    []string // open tasks to write, in the order of ids
	drop    []string // keys of chunks that the snapshot makes obsolete
}

// eventID identifies an event in a log. at is its instant; zero: unknown.
type eventID struct {
	offset int64
	at     time.Time
}

// lastEvents returns the last events that the tasks of a snapshot reflect: the one before Next and the one before Until.
func lastEvents(m *events.Snapshot) (last []eventID) {
	if m.Next > 0 && !m.State.At.IsZero() {
		last = append(last, eventID{m.Next - 1, m.State.At})
	}
	if m.Until > m.Next {
		last = append(last, eventID{m.Until - 1, m.UntilAt})
	}
	return last
}

// SnapshotBase sets the partition's last snapshot on the topic; nil: none. Changes are counted from its offset on. The
// log must have the events that it reflects. So records must be applied from the returned offset on, which may be below
// Tasks.Next. If good is false the next snapshot is a full one.
func (v *Tasks) SnapshotBase(m *events.Snapshot, good bool) (from int64) {
	s := &v.snap
	s.reset(m)
	if m == nil || !good {
		s.full = m != nil || v.next > 0
		v.creditLog(v.next)
		return v.next
	}
	s.unseen = lastEvents(m)
	if s.awaited = m.Next >= v.next; !s.awaited {
		v.open.each(v.open.inSnapshot) // some aren't in the base; an end of such a task is harmless
	}
	from = min(m.Next, v.next)
	if len(s.unseen) > 0 {
		from = min(from, s.unseen[0].offset)
	}
	return from
}

// checkBase checks a record against the events that the base reflects. Offsets and numbers of tasks don't identify a
// log: if it was recreated or lost its end, it may have grown past the base's offset since.
func (v *Tasks) checkBase(r *events.Record) {
	s := &v.snap
	for len(s.unseen) > 0 && r.Offset >= s.unseen[0].offset {
		want := s.unseen[0]
		s.unseen = s.unseen[1:]
		if r.Offset > want.offset {
			v.refuseBase(fmt.Sprintf("it reflects an event at offset %d, and the log has none there", want.offset))
			return
		}
		e, err := events.DecodeEnvelope(r)
		if err == nil && !want.at.IsZero() && !e.At.Equal(want.at) {
			v.refuseBase(fmt.Sprintf("it reflects the event at offset %d of %s, and the log has one of %s there",
				want.offset, want.at.Format(events.TimeLayout), e.At.Format(events.TimeLayout)))
			return
		}
	}
}

// refuseBase records why the base isn't of this log. The next snapshot is a full one.
func (v *Tasks) refuseBase(why string) {
	s := &v.snap
	s.foreign, s.unseen, s.awaited = why, nil, false
	v.restartFull()
	v.creditLog(v.next)
}

// reset sets the base and clears everything else; nil: no base.
func (s *snapshots) reset(m *events.Snapshot) {
	*s = snapshots{enabled: true, marked: map[string]struct{}{}}
	if m != nil {
		s.base, s.finished, s.finishedN = *m, m.Finished, m.FinishedTasks
	}
}

// assumedEventBytes estimates the size of an event that wasn't read.
const assumedEventBytes = 400

// creditLog credits the events of the log below next, so that the next full snapshot is paid for.
func (v *Tasks) creditLog(next int64) {
	v.snap.credit = next * assumedEventBytes / int64(v.s.o.Snapshots.Share)
}

// SnapshotReached must be called when the log was read to its end. why is set if the snapshot must not be restored from:
// it reflects events that the log lacks, or has different tasks than the store. foreign is set in the first case. Then
// the store isn't in doubt, since its own last event was compared with the log.
func (v *Tasks) SnapshotReached(next int64) (why string, foreign bool) {
	s := &v.snap
	v.reach(next)
	if v.loader != nil {
		v.loader.forgot = v.state.Forgot
	}
	switch n := len(s.unseen); {
	case n > 0 && s.unseen[n-1].offset >= next:
		v.refuseBase(fmt.Sprintf("it reflects events up to offset %d, and the log ends at %d", s.unseen[n-1].offset, next))
	case n > 0:
		v.refuseBase(fmt.Sprintf("it reflects an event at offset %d, and the log has none there", s.unseen[0].offset))
	case s.awaited:
		v.refuseBase(fmt.Sprintf("it is of offset %d, and the log ends at %d", s.base.Next, next))
	}
	switch {
	case s.foreign != "":
		return s.foreign, true
	case s.mismatch:
		return fmt.Sprintf("at offset %d it holds other tasks than the log comes to", s.base.Next), false
	}
	return "", false
}

// reach begins to count changes once the view has read the log up to the base's offset. It compares the store with the
// base.
func (v *Tasks) reach(offset int64) {
	s := &v.snap
	if !s.awaited || offset < s.base.Next {
		return
	}
	s.awaited = false
	s.mismatch = v.open.len() != s.base.Tasks || v.open.ids != s.base.IDs
	if s.full = s.mismatch; s.full {
		v.creditLog(offset)
	}
	v.open.each(v.open.inSnapshot)
}

// mark records that the task of an event below Tasks.Next has changed since the base.
func (v *Tasks) mark(r *events.Record) {
	s := &v.snap
	if !s.counts() || r.Offset < s.base.Next {
		return
	}
	id := string(r.Key)
	s.read(len(r.Value), v.s.o.Snapshots.Share)
	if v.open.has(id) {
		v.change(id)
		return
	}
	if _, twice := s.marked[id]; twice || id == "" {
		return
	}
	s.marked[id] = struct{}{}
	if t := v.Task(id); t != nil {
		v.ended(id, t.Encode(), true)
	} else { // it has ended, and its id is forgotten
		s.removed = append(s.removed, id)
	}
}

// counts reports whether changes are being counted.
func (s *snapshots) counts() bool { return s.enabled && !s.awaited && (!s.full || s.scanning) }

// read counts bytes of events.
func (s *snapshots) read(bytes, share int) {
	s.eventBytes += int64(bytes)
	s.credit += int64(bytes / share)
}

// change records that an open task differs from the base.
func (v *Tasks) change(id string) {
	if v.snap.counts() {
		v.snap.changedBytes += v.open.list(id)
	}
}

// ended records that a task has ended. held is true if an open chunk may have it.
func (v *Tasks) ended(id string, encoded []byte, held bool) {
	s := &v.snap
	if !s.counts() {
		return
	}
	if held {
		s.removed = append(s.removed, id)
	}
	s.ended = append(s.ended, encoded)
	s.endedBytes += len(encoded)
	if s.endedBytes > endedBytesMax {
		v.restartFull()
	}
}

// excludeFromScan records that a scan must leave out a task that ends at the instant at which the scan began.
func (s *snapshots) excludeFromScan(t *events.Task) {
	if !s.scanning || !t.UpdatedAt.Equal(s.scanFrom) || len(s.endedAtScan) >= endedAtScanMax {
		return
	}
	if s.endedAtScan == nil {
		s.endedAtScan = map[string]struct{}{}
	}
	s.endedAtScan[t.ID] = struct{}{}
}

// restartFull discards the counted changes, so the next snapshot is a full one. A pass or scan that is under way is
// abandoned, since it needs those changes.
func (v *Tasks) restartFull() {
	s := &v.snap
	v.open.unlist()
	s.full, s.scanning, s.cursor, s.endedAtScan, s.pass = true, false, "", nil, nil
	s.changedBytes, s.removed, s.ended, s.endedBytes = 0, nil, nil, 0
	clear(s.marked)
}

// Snapshot returns the records of the partition's snapshot that the next transaction must write, often none. eventBytes
// is the size of the events in that transaction. The records reflect the state before it. If the transaction is
// committed, SnapshotWritten must be called. Otherwise the next call returns the records again. An error means that no
// further snapshot of the partition can be written.
func (v *Tasks) Snapshot(source string, eventBytes int) ([]events.Record, error) {
	s, o := &v.snap, &v.s.o.Snapshots
	s.pending = nil
	s.read(eventBytes, o.Share)
	// An event that stopped a task may be readable by another build. That build must read it from the log, so no
	// snapshot may cover it.
	if !s.enabled || s.awaited || v.loading || len(v.stops) > 0 {
		return nil, nil
	}
	w := &chunkWriter{ns: v.s.id.Namespace, source: source, partition: v.keys.partition, most: o.ChunkBytes,
		finished: s.finished, finishedN: s.finishedN}
	v.rewriteEnded()
	turn := s.mayContinue(eventBytes, max(1, o.Share/paceShare))
	if turn && s.pass == nil && !s.full && s.eventBytes >= o.EventBytes && s.credit >= v.passBytes() {
		v.beginPass()
	}
	s.pending = append(s.pending, func() { s.finished, s.finishedN = w.finished, w.finishedN })
	v.writeEnded(w, eventBytes)
	switch {
	case !turn:
	case s.pass != nil:
		v.continuePass(w)
	case s.full && s.eventBytes >= o.EventBytes && s.credit >= int64(o.ChunkBytes)+int64(v.open.bytes):
		v.scan(w)
	}
	if w.err != nil {
		s.enabled = false
		return nil, fmt.Errorf("projections: snapshot of partition %d at %d: %w", v.keys.partition, v.next, w.err)
	}
	return w.records, nil
}

// mayContinue reports whether a pass or scan may continue in a transaction. Each byte that it writes requires pace
// bytes of events. The pace is ignored if finished tasks take more than half of endedBytesMax.
func (s *snapshots) mayContinue(eventBytes, pace int) bool {
	s.debt = max(0, s.debt-int64(eventBytes/pace))
	return s.debt == 0 || s.endedBytes > endedBytesMax/2
}

// charge accounts for the bytes that a pass or scan wrote.
func (s *snapshots) charge(bytes int) {
	s.credit -= int64(bytes)
	s.debt += int64(bytes)
}

// SnapshotWritten must be called once the records that Snapshot returned last are committed.
func (v *Tasks) SnapshotWritten() {
	for _, f := range v.snap.pending {
		f()
	}
	v.snap.pending = nil
}

// rewrites reports whether the next pass writes all open tasks, since too much of the chunks is obsolete.
func (v *Tasks) rewrites() bool {
	s := &v.snap
	return s.base.Open.To-s.base.Open.From >= rewriteChunks && s.base.OpenBytes+int64(s.changedBytes) > rewriteFactor*int64(v.open.bytes)
}

// passBytes estimates the bytes of open tasks that the next pass writes.
func (v *Tasks) passBytes() int64 {
	if v.rewrites() {
		return int64(v.open.bytes)
	}
	return int64(v.snap.changedBytes)
}

// beginPass begins a snapshot of the current state.
func (v *Tasks) beginPass() {
	s := &v.snap
	p := &pass{meta: s.base, ended: len(s.ended), removed: s.removed}
	each := v.open.eachListed
	m := &p.meta
	m.Format, m.Next, m.State, m.Tasks, m.IDs = events.SnapshotFormat, v.next, v.state, v.open.len(), v.open.ids
	m.Finished, m.FinishedTasks = s.finished, s.finishedN
	if s.full || v.rewrites() {
		for n := m.Open.From; n < m.Open.To; n++ {
			p.drop = append(p.drop, events.ChunkKey(events.ChunkOpen, n))
		}
		m.Open, m.OpenBytes = events.Chunks{From: m.Open.To, To: m.Open.To}, 0
		p.removed, each = nil, v.open.each
	}
	if s.full {
		for n := s.base.Finished.From; n < s.base.Finished.To; n++ {
			p.drop = append(p.drop, events.ChunkKey(events.ChunkFinished, n))
		}
	}
	each(func(id string) {
		p.todo = append(p.todo, id)
		v.open.inSnapshot(id)
	})
	slices.Sort(p.todo) // in the order of Pebble's keys
	v.open.unlist()
	s.changedBytes, s.removed = 0, nil
	s.eventBytes, s.full, s.scanning, s.endedAtScan, s.pass = 0, false, false, nil, p
	clear(s.marked)
}

// continuePass writes the next part of the open tasks, once writeEnded has written the finished tasks of the pass. With
// the last part it writes the record under "meta", which makes the snapshot valid.
func (v *Tasks) continuePass(w *chunkWriter) {
	s, p := &v.snap, v.snap.pass
	if p.ended > 0 {
		return
	}
	m, before := p.meta, w.bytes
	k, gone, todo := v.nextChunk(p, w.most)
	switch {
	case tooLarge(k):
		m.OpenBytes += int64(w.parts(&m.Open, p.todo[0], k.Tasks[0]))
	case len(k.Tasks)+len(k.Ended) > 0:
		size := w.chunk(events.ChunkOpen, &m.Open, k)
		m.OpenBytes += int64(size)
	}
	if len(p.removed) > gone || len(p.todo) > todo {
		written := w.bytes - before
		s.pending = append(s.pending, func() {
			p.meta, p.removed, p.todo = m, p.removed[gone:], p.todo[todo:]
			s.charge(written)
		})
		return
	}
	if m.Until = v.next; m.Until > m.Next {
		m.UntilAt = v.state.At
	}
	w.meta(&m, p.drop)
	written := w.bytes - before
	s.pending = append(s.pending, func() {
		s.base, s.pass = m, nil
		s.charge(written)
		v.s.o.Listener.Snapshot(v.keys.partition, m)
	})
}

// nextChunk returns the next chunk of a pass, and the numbers of removed ids and of tasks in it. A task that has ended
// since the pass began is written in its finished form. The events that ended it are at or past the snapshot's offset,
// and a reader skips them.
func (v *Tasks) nextChunk(p *pass, most int) (k *events.Chunk, gone, todo int) {
	k = &events.Chunk{}
	size := 0
	for ; gone < len(p.removed) && size < most; gone++ {
		size += len(p.removed[gone]) + 3
	}
	k.Ended = p.removed[:gone]
	var cold *lookup
	for ; todo < len(p.todo) && size < most; todo++ {
		data := v.storedForm(p.todo[todo], &cold)
		if size > 0 && size+len(data) > chunkBytesMax-chunkBytesMax/10 {
			break
		}
		k.Tasks = append(k.Tasks, data)
		size += len(data) + 8
	}
	if cold != nil {
		cold.close()
	}
	return k, gone, todo
}

// tooLarge reports whether the chunk is one task that must be written in parts. One transaction writes all parts, since
// the next may change the task.
func tooLarge(k *events.Chunk) bool {
	return len(k.Tasks) == 1 && len(k.Ended) == 0 && len(k.Tasks[0]) > chunkBytesMax-chunkBytesMax/100
}

// storedForm returns the stored form of a task that is open, or was when a pass began. A cold task isn't decoded. Calls
// share cold, which the caller closes.
func (v *Tasks) storedForm(id string, cold **lookup) (data []byte) {
	if en := v.open.hot[id]; en != nil {
		return en.task.Encode()
	}
	if !v.open.has(id) {
		t := v.Task(id)
		if t == nil {
			v.corrupt(kindFinished, id, errMissing)
		}
		return t.Encode()
	}
	v.reuse(cold, kindOpen, nil).get(id, func(stored []byte) error { data = bytes.Clone(stored); return nil })
	if data == nil {
		v.corrupt(kindOpen, id, errMissing)
	}
	return data
}

// writeEnded writes chunks of finished tasks: all that belong to the pass, or if there are none, others once they fill
// a chunk. It ignores the pace, so that finished tasks don't accumulate. It writes at least one chunk, and stops once
// it has written eventBytes. A chunk belongs to the first pass that begins after it was written.
func (v *Tasks) writeEnded(w *chunkWriter, eventBytes int) {
	s := &v.snap
	upto, least := len(s.ended), w.most
	if s.pass != nil && s.pass.ended > 0 {
		// The pass must not include tasks that ended after it began.
		upto, least = s.pass.ended, 1
	}
	n, bytes := 0, 0
	for n < upto && s.endedBytes-bytes >= least && (n == 0 || w.bytes < eventBytes) {
		k, size := countForChunk(s.ended[n:upto], w.most)
		w.ended(s.ended[n : n+k])
		n, bytes = n+k, bytes+size
	}
	if n == 0 {
		return
	}
	s.pending = append(s.pending, func() {
		s.ended, s.endedBytes = slices.Clone(s.ended[n:]), s.endedBytes-bytes
		if p := s.pass; p != nil && p.ended > 0 {
			if p.ended -= n; p.ended == 0 {
				p.meta.Finished, p.meta.FinishedTasks = s.finished, s.finishedN
			}
		}
	})
}

// countForChunk returns the number of tasks that fit one chunk, and their size.
func countForChunk(list [][]byte, most int) (n, bytes int) {
	for size := 0; n < len(list) && size < most && (n == 0 || size+len(list[n]) < chunkBytesMax-chunkBytesMax/10); n++ {
		size += len(list[n]) + 4
		bytes += len(list[n])
	}
	return n, bytes
}

// scan writes the next finished tasks of the store to new chunks. After the last task it begins a pass.
func (v *Tasks) scan(w *chunkWriter) {
	s := &v.snap
	if !s.scanning {
		v.Save()
		s.scanFrom = v.state.At
		s.finished, s.finishedN = events.Chunks{From: s.base.Finished.To, To: s.base.Finished.To}, 0
		w.finished, w.finishedN = s.finished, s.finishedN
	}
	tasks, last, more := v.nextFinished(w.most)
	if len(tasks) == 0 && !more {
		v.beginPass()
		v.continuePass(w)
		return
	}
	before := w.bytes
	if len(tasks) > 0 {
		w.ended(tasks)
	}
	written := w.bytes - before
	s.pending = append(s.pending, func() {
		// From here on changes are counted, since the cursor may be past a task that ends now. They aren't counted
		// before a commit, since without one nothing would remove them from memory.
		s.scanning, s.cursor = true, last
		s.charge(written)
	})
}

// nextFinished reads the next finished tasks of a scan. It returns them, the last id that was read, and whether there
// are more. It leaves out tasks that finished after the scan began, since those are written from memory. So the scan ends,
// however many tasks finish meanwhile.
func (v *Tasks) nextFinished(most int) (tasks [][]byte, last string, more bool) {
	s := &v.snap
	last = s.cursor
	_, upper := v.keys.bounds(kindFinished)
	it := v.iterator(v.keys.key(kindFinished, s.scanStart()), upper)
	defer it.close()
	size, looked := 0, 0
	for more = it.first(); more && size < most && looked < scanReadBytesMax; more = it.next() {
		data := it.value()
		t, err := events.DecodeTask(data)
		if err != nil {
			v.corrupt(kindFinished, it.rest(), err)
		}
		last, looked = t.ID, looked+len(data)
		if v.open.has(t.ID) || v.finished[t.ID] != nil {
			continue // it was reopened; its present state is written elsewhere
		}
		if t.Forgotten(v.state.Forgot) {
			continue
		}
		if _, later := s.endedAtScan[t.ID]; !later && !t.UpdatedAt.After(s.scanFrom) {
			tasks = append(tasks, t.Encode())
			size += len(tasks[len(tasks)-1]) + 4
		}
	}
	return tasks, last, more
}

// scanStart is the first id after the cursor.
func (s *snapshots) scanStart() string {
	if s.cursor == "" {
		return ""
	}
	return s.cursor + "\x00"
}

// chunkWriter makes the records of a snapshot in one transaction.
type chunkWriter struct {
	ns        events.Namespace
	source    string
	partition int32
	most      int
	records   []events.Record
	bytes     int
	err       error

	finished  events.Chunks // chunks of finished tasks, including those in records
	finishedN int64
}

// ended appends a chunk of finished tasks to the records.
func (w *chunkWriter) ended(tasks [][]byte) {
	w.chunk(events.ChunkFinished, &w.finished, &events.Chunk{Tasks: tasks})
	w.finishedN += int64(len(tasks))
}

// chunk appends a chunk to the records, and returns its size.
func (w *chunkWriter) chunk(kind string, of *events.Chunks, k *events.Chunk) int {
	key, value := events.ChunkKey(kind, of.To), k.Encode()
	if len(value) > chunkBytesMax {
		w.err = fmt.Errorf("%s has %d bytes, at most %d: a task is too large to be written", key, len(value), chunkBytesMax)
	}
	of.To++
	of.Sum += events.ChunkSum(key, value)
	w.records = append(w.records, events.ChunkRecord(w.ns, w.source, w.partition, key, value))
	w.bytes += len(value)
	return len(value)
}

// parts appends the chunks of a task in parts, and returns their size.
func (w *chunkWriter) parts(of *events.Chunks, id string, stored []byte) (size int) {
	for _, p := range events.SplitParts(id, stored, partBytes) {
		size += w.chunk(events.ChunkOpen, of, &events.Chunk{Part: p})
	}
	return size
}

func (w *chunkWriter) meta(m *events.Snapshot, drop []string) {
	r := m.Record(w.ns, w.source, w.partition)
	w.records = append(w.records, r)
	w.bytes += len(r.Value)
	for _, key := range drop {
		w.records = append(w.records, events.ChunkRecord(w.ns, w.source, w.partition, key, nil))
	}
}
