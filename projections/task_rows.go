package projections

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"

	"github.com/cockroachdb/pebble/v2"

	"github.com/waybill-run/waybill/events"
)

// rows are the summaries of a partition's tasks, as far as they are in memory: those to
// which something happened since the last Save, and of the other open ones as many as
// HotBytes allows. All others are in Pebble, and are read when an event names them.
type taskRows struct {
	byTask    map[string]*taskRow
	touched   []*taskRow // since the last Save
	last      *taskRow   // that was found; a decision leaves several events of a task, one after the other
	bytes     int        // of the stored forms of those that are in memory beside them
	steps     int        // of those that have changed since the last Save
	tally     tally
	reader    events.EventReader
	lookup    *lookup // open within BeginLookups and EndLookups
	lookupsOn bool
}

// row is what is known of one task.
type taskRow struct {
	task    string
	summary *events.Summary // nil: the log has no beginning of it, so that no list has it
	places  []Place         // since the last Save
	indexed indexState      // as of the last Save
	stored  bool            // Pebble has it
	touched bool
	changed bool // sum has, since the last Save
	bytes   int  // of the stored form
	holds   *holds
}

func newRows() taskRows {
	return taskRows{byTask: map[string]*taskRow{}}
}

// row finds the row of a task, in memory or in Pebble, or makes an empty one.
func (t *Timelines) row(task []byte) (*taskRow, error) {
	if r := t.rows.last; r != nil && r.task == string(task) {
		return r, nil
	}
	if r := t.rows.byTask[string(task)]; r != nil {
		t.rows.last = r
		return r, nil
	}
	r := &taskRow{task: string(task)}
	load := func(data []byte) (err error) {
		if r.summary, err = events.DecodeSummary(data); err == nil {
			r.stored, r.indexed, r.bytes = true, indexStateOf(r.summary), len(data)
		}
		return err
	}
	var err error
	if t.rows.lookupsOn {
		var l *lookup
		if l, err = t.v.s.reuse(&t.rows.lookup, t.v.keys, kindRow, &t.v.recent); err == nil {
			err = l.get(r.task, load)
		}
	} else {
		err = t.v.get(kindRow, r.task, load)
	}
	if err != nil {
		return nil, err
	}
	t.rows.byTask[r.task], t.rows.last = r, r
	t.rows.bytes += r.bytes
	return r, nil
}

// BeginLookups makes what Apply reads of tasks that aren't in memory cheaper, until
// EndLookups, which must be called before the goroutine waits for anything: the store
// can't be closed before.
func (t *Timelines) BeginLookups() { t.rows.lookupsOn = true }

// EndLookups ends what BeginLookups began.
func (t *Timelines) EndLookups() {
	t.rows.lookupsOn = false
	t.rows.dropLookup()
}

func (rs *taskRows) dropLookup() {
	if rs.lookup != nil {
		rs.lookup.close()
		rs.lookup = nil
	}
}

// placesCapacity is the room for the events of a task of three steps.
const placesCapacity = 9

// touch notes that Save has to look at a row.
func (rs *taskRows) markTouched(r *taskRow) {
	if !r.touched {
		r.touched = true
		rs.touched = append(rs.touched, r)
		r.places = make([]Place, 0, placesCapacity)
	}
}

// fold takes an event to a row. What can't be read stops the row (events.Summary.Stopped).
func (rs *taskRows) fold(r *taskRow, rec *events.Record, ceType string, seq uint64) {
	e, err := rs.reader.Decode(rec)
	rs.recordLastAt(e, err)
	was := events.TaskState("")
	if r.summary != nil {
		was = r.summary.State
	}
	switch {
	case r.summary == nil && (err != nil || seq != 1):
		return
	case r.summary == nil:
		sum := &events.Summary{}
		if sum.Evolve(e); sum.Stopped != 0 {
			return
		}
		r.summary = sum
	case r.summary.Stopped != 0:
		return
	case err != nil:
		r.summary.Stop(seq)
	default:
		if r.summary.Evolve(e); r.summary.Stopped == 0 {
			r.noteHold(e, was, rec.Offset, ceType)
		}
	}
	if !r.changed {
		r.changed = true
		rs.steps += len(r.summary.Steps)
	}
}

// claim takes in an event about the partition.
func (rs *taskRows) claim(rec *events.Record) {
	e, err := rs.reader.Decode(rec)
	if rs.recordLastAt(e, err); err == nil {
		if f, ok := e.Fact.(*events.PartitionClaimed); ok {
			rs.tally.Owner, rs.tally.Epoch = string([]byte(f.Owner)), e.Seq
		}
	}
}

// remember notes the instant of an event that was applied, if it can be read.
func (rs *taskRows) recordLastAt(e *events.Event, err error) {
	if rs.tally.LastAt = 0; err == nil {
		rs.tally.LastAt = e.At.UnixMilli()
	}
}

// saveRows writes the rows that changed, their entries in the index, and the tally.
func (t *Timelines) saveRows(b *pebble.Batch) (*indexWriter, error) {
	rs := &t.rows
	w := &indexWriter{keys: t.v.keys, postings: postings{},
		set:    func(key, value []byte) error { return b.Set(key, value, nil) },
		remove: func(key []byte) error { return b.Delete(key, nil) }}
	var key []byte
	var past []int64
	for _, r := range rs.touched {
		if !r.changed {
			continue
		}
		var err error
		if past, err = t.saveHolds(b, r, past); err != nil {
			return nil, err
		}
		data := r.summary.Encode()
		t.v.recent.add(r.task)
		key = t.v.keys.appendKey(key[:0], kindRow, r.task)
		if err := b.Set(key, data, nil); err != nil {
			return nil, err
		}
		is, err := w.write(&r.indexed, r.stored, r.summary)
		if err != nil {
			return nil, err
		}
		rs.tally.move(r.summary, r.indexed.state)
		rs.tally.moveAgents(r.indexed.agents, is.agents)
		rs.bytes += len(data) - r.bytes
		r.indexed, r.stored, r.changed, r.bytes = is, true, false, len(data)
	}
	if err := w.finish(t.v.next); err != nil {
		return nil, err
	}
	if err := t.prune(b, past); err != nil {
		return nil, err
	}
	if w.earliest != 0 {
		rs.tally.DueFrom = min(rs.tally.DueFrom, w.earliest)
	}
	data, err := json.Marshal(&rs.tally)
	if err != nil {
		return nil, err
	}
	return w, b.Set(t.v.keys.key(kindTally, ""), data, nil)
}

// saved lets go of what memory needn't hold after a Save.
func (t *Timelines) afterSave() {
	rs := &t.rows
	rs.dropLookup()
	for i, r := range rs.touched {
		r.touched, r.places = false, nil
		if r.summary == nil || !r.summary.Open() {
			rs.drop(r)
		}
		rs.touched[i] = nil
	}
	rs.touched, rs.last, rs.steps = rs.touched[:0], nil, 0 // last may be dropped
	t.events = 0
	most := t.v.s.hotBytesMax()
	if rs.bytes <= most {
		return
	}
	for _, r := range rs.byTask { // whichever come first: an event reads them again
		if rs.drop(r); rs.bytes <= most-most/4 {
			return
		}
	}
}

func (rs *taskRows) drop(r *taskRow) {
	delete(rs.byTask, r.task)
	rs.bytes -= r.bytes
}

// passDue moves the bound below which no timer is due past what was deleted.
func (t *Timelines) advanceDueFrom() error {
	return t.v.s.use(func(db *pebble.DB) error {
		due, err := t.v.s.firstDue(db, t.v.keys, t.rows.tally.DueFrom)
		if err != nil {
			return err // what is left isn't known
		}
		if due == 0 {
			due = math.MaxInt64
		}
		t.rows.tally.DueFrom = due
		return nil
	})
}

// digestRows adds the rows, the index and the tally to a digest. Their order isn't the
// same however they were saved, so what is hashed is a sum.
func (t *Timelines) digestRows(d digest) error {
	var sum sumDigest
	err := t.v.each(kindRow, func(rest string, data []byte) error {
		sum.add(append([]byte("row "+rest+"\x00"), data...))
		return nil
	})
	if err != nil {
		return err
	}
	if err := t.v.eachEntry(func(f facet, c Cursor) { sum.add(fmt.Appendf(nil, "%s %d %s", f, c.Submitted, c.Task)) }); err != nil {
		return err
	}
	if err := t.v.each(kindDue, func(rest string, _ []byte) error { sum.add([]byte("due " + rest)); return nil }); err != nil {
		return err
	}
	for _, kind := range [...]byte{kindHold, kindAlert, kindPast} {
		err := t.v.each(kind, func(rest string, data []byte) error {
			sum.add(fmt.Appendf(nil, "%c %x %s", kind, rest, data))
			return nil
		})
		if err != nil {
			return err
		}
	}
	d.add(fmt.Append(nil, sum))
	counted := maps.Clone(t.rows.tally.Workflows)
	data, err := json.Marshal(tally{Workflows: counted, Owner: t.rows.tally.Owner, Epoch: t.rows.tally.Epoch})
	d.add(data)
	return err
}
