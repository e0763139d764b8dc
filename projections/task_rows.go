package projections

import (
	"fmt"
	"math"

	"github.com/waybill-run/waybill/events"
)

// taskRows are the rows of a partition in memory: those of tasks that changed since the last Save, and those of other
// open tasks as far as HotBytes allows. Other rows are read from Pebble when an event of their task comes.
type taskRows struct {
	byTask    map[string]*taskRow
	touched   []*taskRow // had events since the last Save
	last      *taskRow   // the row found last, since a decision makes several consecutive events of one task
	bytes     int        // of the stored forms of the rows in memory
	changes   int        // number of steps of the rows that changed since the last Save
	tally     tally
	groups    errorGroups
	stats     statsFold
	agents    statsFold
	steps     stepsFold
	reader    events.EventReader
	lookup    *lookup // open between BeginLookups and EndLookups
	lookupsOn bool

	holdChanges uint64 // how often a hold began or ended
}

// taskRow is the row of one task, and its events since the last Save.
type taskRow struct {
	task    string
	summary *events.Summary // nil: the log lacks the beginning of the task, so it is in no list
	places  []Place         // of events since the last Save
	indexed indexState      // as of the last Save
	// replaced is the last state of a stored earlier task with this id; nil: there is none to remove from the index.
	replaced *events.Summary
	stored   bool // Pebble has the row
	touched  bool
	changed  bool // summary changed since the last Save
	bytes    int  // of the stored form
	holds    *holds
	group    string // the id of its error group, while the task is held
}

func newRows() taskRows {
	return taskRows{byTask: map[string]*taskRow{}, groups: newErrorGroups(), stats: newStatsFold(kindStats), agents: newStatsFold(kindAgents), steps: newStepsFold(), reader: events.EventReader{AliasJSON: true}}
}

// row returns the row of a task from memory or Pebble, or an empty one.
func (t *Timelines) row(task []byte) *taskRow {
	if r := t.rows.last; r != nil && r.task == string(task) {
		return r
	}
	if r := t.rows.byTask[string(task)]; r != nil {
		t.rows.last = r
		return r
	}
	r := &taskRow{task: string(task)}
	load := func(data []byte) (err error) {
		r.summary, err = events.DecodeSummary(data)
		r.stored, r.bytes = true, len(data)
		return err
	}
	if t.rows.lookupsOn {
		t.v.reuse(&t.rows.lookup, kindRow, &t.v.recent).get(r.task, load)
	} else {
		t.v.get(kindRow, r.task, load)
	}
	if r.stored {
		r.group = t.v.groupOf(r.summary)
		r.indexed = indexStateOf(r.summary, r.group)
	}
	t.rows.byTask[r.task], t.rows.last = r, r
	t.rows.bytes += r.bytes
	return r
}

// BeginLookups makes Apply's reads from Pebble cheaper until EndLookups. The store can't be closed in between, so the
// goroutine must call EndLookups before it waits for anything.
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

// placesCapacity is the initial capacity for the events of a task between two Saves.
const placesCapacity = 9

// markTouched marks the row, so that the next Save writes its places.
func (rs *taskRows) markTouched(r *taskRow) {
	if !r.touched {
		r.touched = true
		rs.touched = append(rs.touched, r)
		r.places = make([]Place, 0, placesCapacity)
	}
}

// fold folds an event into a row. An event that can't be read stops the row (events.Summary.Stopped).
func (rs *taskRows) fold(r *taskRow, rec *events.Record, ceType string, seq uint64) {
	e, err := rs.reader.Decode(rec)
	rs.recordLastAt(e, err)
	renews := err == nil && r.summary != nil && r.summary.Renews(e)
	if renews {
		r.renew()
	}
	was := beforeOf(r.summary)
	version := versionBefore(r.summary)
	switch {
	case r.summary == nil && (err != nil || seq != 1):
		return
	case r.summary == nil:
		sum := &events.Summary{}
		if sum.Evolve(e); sum.Stopped != 0 {
			return
		}
		if r.summary = sum; renews {
			sum.From = rec.Offset
		}
		rs.stats.add(e, sum, was)
	case r.summary.Stopped != 0:
		return
	case err != nil:
		r.summary.Stop(seq)
	default:
		if c := r.summary.Evolve(e); r.summary.Stopped == 0 {
			if version != r.summary.Version && r.group != "" {
				rs.groups.migrate(r.group, version, r.summary.Version)
			}
			rs.recordHold(r, e, was.state, rec.Offset, ceType)
			rs.stats.add(e, r.summary, was)
			rs.steps.add(e, r.summary, &c)
			rs.agents.addRequest(e, &c)
		}
	}
	if !r.changed {
		r.changed = true
		rs.changes += len(r.summary.Steps)
	}
}

func versionBefore(s *events.Summary) int {
	if s == nil {
		return 0
	}
	return s.Version
}

// claim applies an event about the partition.
func (rs *taskRows) claim(rec *events.Record) {
	e, err := rs.reader.Decode(rec)
	if rs.recordLastAt(e, err); err == nil {
		if f, ok := e.Fact.(*events.PartitionClaimed); ok {
			rs.tally.Owner, rs.tally.Epoch = string([]byte(f.Owner)), e.Seq
		}
	}
}

// recordLastAt records the instant of an applied event, or 0 if it can't be read.
func (rs *taskRows) recordLastAt(e *events.Event, err error) {
	if rs.tally.LastAt = 0; err == nil {
		rs.tally.LastAt = e.At.UnixMilli()
		rs.tally.Latest = max(rs.tally.Latest, rs.tally.LastAt)
	}
}

// saveRows writes the rows that changed, their entries in the index, and the tally.
func (t *Timelines) saveRows(b batch) *indexWriter {
	rs := &t.rows
	w := &indexWriter{keys: t.v.keys, postings: postings{}, unposted: unposted{}, set: b.set, remove: b.delete}
	var key []byte
	var past []int64
	for _, r := range rs.touched {
		if !r.changed {
			continue
		}
		past = t.saveHolds(b, r, past)
		t.unindex(w, r)
		data := r.summary.Encode()
		t.v.recent.add(r.task)
		key = t.v.keys.appendKey(key[:0], kindRow, r.task)
		b.set(key, data)
		is := w.write(r)
		rs.tally.move(r.summary, &r.indexed, is.state)
		rs.tally.moveAgents(r.indexed.agents, is.agents)
		rs.steps.move(r.summary, &r.indexed, is.at)
		rs.bytes += len(data) - r.bytes
		r.indexed, r.stored, r.changed, r.bytes = is, true, false, len(data)
	}
	w.finish(t.v.reader, t.v.next)
	t.prune(b, past)
	rs.groups.save(b, t.v.keys)
	rs.stats.save(b, t.v.reader, instant(rs.tally.Latest))
	rs.agents.save(b, t.v.reader, instant(rs.tally.Latest))
	rs.steps.save(b, t.v.reader, instant(rs.tally.Latest))
	if w.earliest != 0 {
		rs.tally.DueFrom = min(rs.tally.DueFrom, w.earliest)
	}
	b.set(t.v.keys.key(kindTally, ""), mustMarshal(&rs.tally))
	return w
}

// afterSave drops the rows of ended tasks from memory, and others above the bound of memory.
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
	rs.touched, rs.last, rs.changes = rs.touched[:0], nil, 0 // last may be dropped
	t.events = 0
	most := t.v.s.hotBytesMax()
	if rs.bytes <= most {
		return
	}
	for _, r := range rs.byTask { // in any order, since an event loads a dropped row again
		if rs.drop(r); rs.bytes <= most-most/4 {
			return
		}
	}
}

func (rs *taskRows) drop(r *taskRow) {
	delete(rs.byTask, r.task)
	rs.bytes -= r.bytes
}

// advanceDueFrom moves DueFrom past the deleted entries, to the earliest timer.
func (t *Timelines) advanceDueFrom() {
	due := t.v.firstDue(t.rows.tally.DueFrom)
	if due == 0 {
		due = math.MaxInt64
	}
	t.rows.tally.DueFrom = due
}

// digestRows adds the rows, the index, the alerts and the tally to a digest. It adds sums of hashes, since the order of
// keys depends on when Saves happened.
func (t *Timelines) digestRows(d digest) {
	var sum sumDigest
	t.v.each(kindRow, func(rest string, data []byte) error {
		sum.add(append([]byte("row "+rest+"\x00"), data...))
		return nil
	})
	t.v.eachEntry(func(f facet, c Cursor) { sum.add(fmt.Appendf(nil, "%s %d %s", f, c.Submitted, c.Task)) })
	t.v.each(kindDue, func(rest string, _ []byte) error { sum.add([]byte("due " + rest)); return nil })
	t.v.each(kindEnds, func(rest string, data []byte) error {
		sum.add(fmt.Appendf(nil, "ends %s %x", rest, data))
		return nil
	})
	for _, kind := range [...]byte{kindHold, kindAlert, kindPast, kindGroup, kindStats, kindAgents, kindSteps, kindTook} {
		t.v.each(kind, func(rest string, data []byte) error {
			sum.add(fmt.Appendf(nil, "%c %x %s", kind, rest, data))
			return nil
		})
	}
	d.add(fmt.Append(nil, sum))
	d.add(mustMarshal(tally{Workflows: t.rows.tally.Workflows, Owner: t.rows.tally.Owner, Epoch: t.rows.tally.Epoch}))
}
