package projections

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/waybill-run/waybill/events"
)

// A snapshot of a partition is written to Kafka bit by bit, in the transactions
// of its owner: what changed since the last one, when it is small beside the
// events written meanwhile. Chunks are immutable, and count when the record under
// "meta" counts them, so that whatever is cut short changes nothing.
//
// Only memory knows what changed since the last snapshot. A restart reads the
// events from the snapshot's offset on, and marks what they name: so no store has
// to agree with the topic, whoever wrote the last snapshot.

// SnapshotOptions say when a snapshot is due. The zero value is good.
type SnapshotOptions struct {
	// Share of the bytes of events that open tasks in snapshots may take: one in
	// so many. A finished task is written once, whatever the share.
	Share int
	// EventBytes is what a snapshot waits for at least.
	EventBytes int64
	// ChunkBytes is about how long a chunk is, and what a transaction writes of a
	// snapshot beside tasks that ended.
	ChunkBytes int
}

// What SnapshotOptions leaves at zero.
const (
	DefaultSnapshotShare      = 20
	DefaultSnapshotEventBytes = 4 << 20
	DefaultSnapshotChunkBytes = 256 << 10
)

const (
	// chunkBytesMax is below what Kafka takes by default as one record.
	chunkBytesMax = 990_000
	// partBytes is of a task that a chunk can't hold.
	partBytes = chunkBytesMax / 4 * 3 * 9 / 10
	// endedBytesMax bounds what is kept of finished tasks until it is written.
	// Past it they are read from Pebble, all of them.
	endedBytesMax = 32 << 20
	// scanReadBytesMax is what a scan looks at of finished tasks in a transaction. It is more
	// than a transaction ends, or a scan may never come past those that ended since it began.
	scanReadBytesMax = 4 << 20
	// rewriteChunks is from how many chunks on, and rewriteFactor from how many
	// times the size of what is open, the open tasks are written anew.
	rewriteChunks = 8
	rewriteFactor = 2
	// paceShare is the part of the events that pay for a pass over which it is spread:
	// one in so many. All at once it would take as much of the broker as the work does,
	// for as long as a large one lasts; the longer it lasts, the more events follow it.
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

// snapshots is what a view knows of its partition's snapshot. It is off until
// SnapshotBase was called.
type snapshots struct {
	enabled bool
	base    events.Snapshot // what the topic holds
	// awaited: the base is ahead of the store; what changed counts from there.
	awaited  bool
	mismatch bool // and holds other tasks
	// whole: what changed isn't known, so everything is written anew, by a scan of the
	// store. scanning: a transaction with some of it was committed. cursor is the finished
	// task that it has come to; what has ended after the instant scanFrom is in ended.
	full, scanning bool
	cursor         string
	scanFrom       time.Time

	// Open tasks that the base has otherwise, or not, are listed in Tasks.open.
	changedBytes int
	removed      []string // tasks of the base's open chunks that ended
	ended        [][]byte // encodings of tasks that ended, not in a chunk yet
	endedBytes   int
	marked       map[string]struct{} // finished tasks that mark has met

	credit     int64 // bytes that snapshots may take by now
	debt       int64 // bytes of a pass or scan that were written before their turn
	eventBytes int64 // written since the last pass began
	finished   events.Chunks
	finishedN  int64
	pass       *pass
	pending    []func() // what becomes true if the records that were given out do
}

// pass is a snapshot that is being written, perhaps over several transactions.
type pass struct {
	meta    events.Snapshot
	ended   int // tasks at the front of snapshots.ended that count with it
	removed []string
	todo    []string // open tasks, in the order of ids
	drop    []string // keys of chunks that count no more with it
}

// SnapshotBase tells the view which snapshot of the partition the topic holds;
// nil: none. Changes count from there, so records must be applied from the offset
// that it returns, which may be below Next. One that is not good is not written
// on: the next one is whole.
func (v *Tasks) SnapshotBase(m *events.Snapshot, good bool) (from int64) {
	s := &v.snap
	s.reset(m)
	if m == nil || !good {
		s.full = m != nil || v.next > 0
		v.creditLog(v.next)
		return v.next
	}
	if m.Next >= v.next {
		s.awaited = true
		return v.next
	}
	v.open.each(v.open.inSnapshot) // a superfluous end of one is harmless
	return m.Next
}

// reset begins anew with a base; nil: none.
func (s *snapshots) reset(m *events.Snapshot) {
	*s = snapshots{enabled: true, marked: map[string]struct{}{}}
	if m != nil {
		s.base, s.finished, s.finishedN = *m, m.Finished, m.FinishedTasks
	}
}

// assumedEventBytes is a guess at what an event takes that wasn't read.
const assumedEventBytes = 400

// creditLog lets a log that has no snapshot pay for the first one.
func (v *Tasks) creditLog(next int64) {
	v.snap.credit = next * assumedEventBytes / int64(v.s.o.Snapshots.Share)
}

// SnapshotReached says that the log was read to an offset. Where the snapshot is
// of events past it, or of other tasks than the store has, it is not of this log,
// and why says so: then it must not be restored from, and the next one is written
// whole.
func (v *Tasks) SnapshotReached(next int64) (why string) {
	s := &v.snap
	v.reach(next)
	switch {
	case v.until > next:
		why = fmt.Sprintf("it holds tasks as of offset %d, and the log ends at %d", v.until, next)
	case v.lacksLast:
		why = fmt.Sprintf("it holds tasks as of the event at offset %d, and the log has none there", v.until-1)
	case s.awaited:
		why = fmt.Sprintf("it is of offset %d, and the log ends at %d", s.base.Next, next)
		s.awaited, s.full = false, true
		v.creditLog(next)
	case s.mismatch:
		why = fmt.Sprintf("at offset %d it holds other tasks than the log comes to", s.base.Next)
	}
	return why
}

// reach begins to count changes, where the log has come to the base. The store
// must then hold what the base says.
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

// mark notes what an event below Next changed since the base.
func (v *Tasks) mark(r *events.Record) error {
	s := &v.snap
	if !s.counts() || r.Offset < s.base.Next {
		return nil
	}
	id := string(r.Key)
	s.read(len(r.Value), v.s.o.Snapshots.Share)
	if v.open.has(id) {
		v.change(id)
		return nil
	}
	if _, twice := s.marked[id]; twice || id == "" {
		return nil
	}
	t, err := v.Task(id)
	if err != nil || t == nil {
		return err
	}
	s.marked[id] = struct{}{}
	v.ended(id, t.Encode(), true)
	return nil
}

// counts reports whether changes are counted.
func (s *snapshots) counts() bool { return s.enabled && !s.awaited && (!s.full || s.scanning) }

// read takes events into account that were read, and not written just now.
func (s *snapshots) read(bytes, share int) {
	s.eventBytes += int64(bytes)
	s.credit += int64(bytes / share)
}

// change notes that an open task isn't as the base has it.
func (v *Tasks) change(id string) {
	if v.snap.counts() {
		v.snap.changedBytes += v.open.list(id)
	}
}

// ended notes that a task has ended, and whether an open chunk may hold it.
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

// forget gives up counting changes: the next snapshot is written whole. A pass or a
// scan begins anew: what memory had for it is gone.
func (v *Tasks) restartFull() {
	s := &v.snap
	v.open.unlist()
	s.full, s.scanning, s.cursor, s.pass = true, false, "", nil
	s.changedBytes, s.removed, s.ended, s.endedBytes = 0, nil, nil, 0
	clear(s.marked)
}

// Snapshot returns what a transaction that writes so many bytes of events is to
// write of the partition's snapshot beside them: often nothing. It is of the state
// before that transaction. If the transaction is committed, SnapshotWritten must
// be called; else the next call returns it again. An error means that no snapshot
// can be written of the partition any more.
func (v *Tasks) Snapshot(source string, eventBytes int) ([]events.Record, error) {
	s, o := &v.snap, &v.s.o.Snapshots
	s.pending = nil
	s.read(eventBytes, o.Share)
	// What stopped a task may be readable to another build, which finds it in the
	// log, and would not in a snapshot.
	if !s.enabled || s.awaited || v.loading || len(v.stops) > 0 {
		return nil, nil
	}
	w := &chunkWriter{ns: v.s.id.Namespace, source: source, partition: v.keys.partition, most: o.ChunkBytes,
		finished: s.finished, finishedN: s.finishedN}
	turn := s.mayContinue(eventBytes, max(1, o.Share/paceShare))
	if turn && s.pass == nil && !s.full && s.eventBytes >= o.EventBytes && s.credit >= v.passBytes() {
		v.beginPass()
	}
	s.pending = append(s.pending, func() { s.finished, s.finishedN = w.finished, w.finishedN })
	v.writeEnded(w, eventBytes)
	var err error
	switch {
	case !turn:
	case s.pass != nil:
		err = v.continuePass(w)
	case s.full && s.eventBytes >= o.EventBytes && s.credit >= int64(o.ChunkBytes)+int64(v.open.bytes):
		err = v.scan(w)
	}
	if err != nil {
		return nil, err
	}
	if w.err != nil {
		s.enabled = false
		return nil, fmt.Errorf("projections: snapshot of partition %d at %d: %w", v.keys.partition, v.next, w.err)
	}
	return w.records, nil
}

// turn reports whether a pass or a scan may go on in a transaction with so many bytes
// of events: pace bytes of them come to one of it, unless what ended meanwhile takes
// too much of memory.
func (s *snapshots) mayContinue(eventBytes, pace int) bool {
	s.debt = max(0, s.debt-int64(eventBytes/pace))
	return s.debt == 0 || s.endedBytes > endedBytesMax/2
}

// spend takes account of what a pass or a scan wrote.
func (s *snapshots) charge(bytes int) {
	s.credit -= int64(bytes)
	s.debt += int64(bytes)
}

// SnapshotWritten says that what Snapshot returned last is committed.
func (v *Tasks) SnapshotWritten() {
	for _, f := range v.snap.pending {
		f()
	}
	v.snap.pending = nil
}

// rewrites reports whether the next pass writes all that is open: the chunks have
// too much in them that is open no more, or is written again in a later one.
func (v *Tasks) rewrites() bool {
	s := &v.snap
	return s.base.Open.To-s.base.Open.From >= rewriteChunks && s.base.OpenBytes+int64(s.changedBytes) > rewriteFactor*int64(v.open.bytes)
}

// passBytes is about what the next pass writes of open tasks.
func (v *Tasks) passBytes() int64 {
	if v.rewrites() {
		return int64(v.open.bytes)
	}
	return int64(v.snap.changedBytes)
}

// beginPass fixes what the next snapshot is of: the state as it is now.
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
	slices.Sort(p.todo) // as Pebble has them
	v.open.unlist()
	s.changedBytes, s.removed = 0, nil
	s.eventBytes, s.full, s.scanning, s.pass = 0, false, false, p
	clear(s.marked)
}

// continuePass writes the next part of what is open, once writeEnded has written the finished
// tasks, and with the last of it what makes all of them count.
func (v *Tasks) continuePass(w *chunkWriter) error {
	s, p := &v.snap, v.snap.pass
	if p.ended > 0 {
		return nil
	}
	m, before := p.meta, w.bytes
	k, gone, todo, err := v.nextChunk(p, w.most)
	if err != nil {
		return err
	}
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
		return nil
	}
	m.Until = v.next
	w.meta(&m, p.drop)
	written := w.bytes - before
	s.pending = append(s.pending, func() {
		s.base, s.pass = m, nil
		s.charge(written)
		if f := v.s.o.Listener.Snapshot; f != nil {
			f(v.keys.partition, m)
		}
	})
	return nil
}

// cut takes the beginning of what is left of a pass. A task that has ended since
// the pass began is written as what is left of it: the events that ended it come
// after the snapshot.
func (v *Tasks) nextChunk(p *pass, most int) (k *events.Chunk, gone, todo int, err error) {
	k = &events.Chunk{}
	size := 0
	for ; gone < len(p.removed) && size < most; gone++ {
		size += len(p.removed[gone]) + 3
	}
	k.Ended = p.removed[:gone]
	var cold *lookup
	for ; todo < len(p.todo) && size < most && err == nil; todo++ {
		var data []byte
		if data, err = v.storedForm(p.todo[todo], &cold); size > 0 && size+len(data) > chunkBytesMax-chunkBytesMax/10 {
			break
		}
		k.Tasks = append(k.Tasks, data)
		size += len(data) + 8
	}
	if cold != nil {
		cold.close()
	}
	return k, gone, todo, err
}

// tooLarge reports whether a chunk is of one task that is written in parts, in one
// transaction: it may change in the next.
func tooLarge(k *events.Chunk) bool {
	return len(k.Tasks) == 1 && len(k.Ended) == 0 && len(k.Tasks[0]) > chunkBytesMax-chunkBytesMax/100
}

// storedForm is that of a task that is open, or was when a pass began. A cold one
// isn't decoded. cold is for several calls; it is the caller's to close.
func (v *Tasks) storedForm(id string, cold **lookup) (data []byte, err error) {
	if en := v.open.hot[id]; en != nil {
		return en.task.Encode(), nil
	}
	if !v.open.has(id) {
		t, err := v.Task(id)
		if t == nil && err == nil {
			err = v.s.unreadable(v.keys, kindFinished, id, errMissing)
		}
		if err != nil {
			return nil, err
		}
		return t.Encode(), nil
	}
	l, err := v.s.reuse(cold, v.keys, kindOpen, nil)
	if err == nil {
		err = l.get(id, func(stored []byte) error { data = bytes.Clone(stored); return nil })
	}
	if data == nil && err == nil {
		err = v.s.unreadable(v.keys, kindOpen, id, errMissing)
	}
	return data, err
}

// writeEnded writes chunks of tasks that ended: all that the pass is of, and of others as
// soon as they fill one. It waits for no turn, and writes as many bytes as the transaction
// has of events: so they become no more, whatever ends. They count with the first pass
// that begins after them.
func (v *Tasks) writeEnded(w *chunkWriter, eventBytes int) {
	s := &v.snap
	upto, least := len(s.ended), w.most
	if s.pass != nil && s.pass.ended > 0 {
		// A chunk has no task that ended after the pass began: the log has that end.
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

// front is how many tasks make a chunk, and what they take.
func countForChunk(list [][]byte, most int) (n, bytes int) {
	for size := 0; n < len(list) && size < most && (n == 0 || size+len(list[n]) < chunkBytesMax-chunkBytesMax/10); n++ {
		size += len(list[n]) + 4
		bytes += len(list[n])
	}
	return n, bytes
}

// scan writes the next finished tasks of the store, all of which the topic lacks.
// After the last of them a pass begins.
func (v *Tasks) scan(w *chunkWriter) error {
	s := &v.snap
	if !s.scanning {
		if err := v.Save(); err != nil {
			return err
		}
		s.scanFrom = v.state.At
		s.finished, s.finishedN = events.Chunks{From: s.base.Finished.To, To: s.base.Finished.To}, 0
		w.finished, w.finishedN = s.finished, s.finishedN
	}
	tasks, last, more, err := v.nextFinished(w.most)
	if err != nil {
		return fmt.Errorf("projections: read the finished tasks of partition %d in %s: %w", v.keys.partition, v.s.dir, err)
	}
	if len(tasks) == 0 && !more {
		v.beginPass()
		return v.continuePass(w)
	}
	before := w.bytes
	if len(tasks) > 0 {
		w.ended(tasks)
	}
	written := w.bytes - before
	s.pending = append(s.pending, func() {
		// From here on changes count: the cursor may be past a task that ends now. Not
		// before: where nothing is committed nothing would take them from memory.
		s.scanning, s.cursor = true, last
		s.charge(written)
	})
	return nil
}

// nextFinished reads the next finished tasks for a scan, the id that it came to, and
// whether there are more. Those that ended since the scan began are in memory, or were:
// without them it has an end, whatever ends meanwhile.
func (v *Tasks) nextFinished(most int) (tasks [][]byte, last string, more bool, err error) {
	s := &v.snap
	last = s.cursor
	err = v.s.use(func(db *pebble.DB) error {
		_, upper := v.keys.bounds(kindFinished)
		it, err := db.NewIter(&pebble.IterOptions{LowerBound: v.keys.key(kindFinished, s.scanStart()), UpperBound: upper})
		if err != nil {
			return err
		}
		size, looked := 0, 0
		for more = it.First(); more && size < most && looked < scanReadBytesMax && err == nil; more = it.Next() {
			var data []byte
			var t *events.Task
			if data, err = it.ValueAndErr(); err == nil {
				t, err = ownTask(data)
			}
			if err != nil {
				break
			}
			last, looked = t.ID, looked+len(data)
			if !t.UpdatedAt.After(s.scanFrom) {
				tasks = append(tasks, t.Encode())
				size += len(tasks[len(tasks)-1]) + 4
			}
		}
		return errors.Join(err, it.Close())
	})
	return tasks, last, more, err
}

// after is the first id past the cursor.
func (s *snapshots) scanStart() string {
	if s.cursor == "" {
		return ""
	}
	return s.cursor + "\x00"
}

// chunkWriter makes the records of one transaction's part of a snapshot.
type chunkWriter struct {
	ns        events.Namespace
	source    string
	partition int32
	most      int
	records   []events.Record
	bytes     int
	err       error

	finished  events.Chunks // of finished tasks, with those that are written here
	finishedN int64
}

// ended makes a chunk of finished tasks.
func (w *chunkWriter) ended(tasks [][]byte) {
	w.chunk(events.ChunkFinished, &w.finished, &events.Chunk{Tasks: tasks})
	w.finishedN += int64(len(tasks))
}

// chunk makes a chunk the last of those, and returns its length.
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

// parts makes a task the last of the chunks, in parts, and returns their length.
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
