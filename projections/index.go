package projections

import (
	"cmp"
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/waybill-run/waybill/events"
)

// The index of the task list. A facet is a property by which tasks can be filtered. The index lists the tasks of each
// facet in the order of the list. To reduce writes, two sorts of facets are stored in two ways:
//
//   - A permanent property (the workflow, a label, the state in which the task ended) is posted. One posting holds all
//     tasks of a facet that were submitted in one second and first written by one Save. If an operator undoes a
//     processed task, the task is removed from its posting, which costs a read.
//   - A temporary property (the state of an open task, an agent with an attempt, a step in error) has an entry of its
//     own for each task. The first Save after the property has ended deletes the entry. Most tasks begin and end
//     between two Saves, and never have such an entry.
//
// The task of an item is in the list only while it is held. So its workflow and labels are temporary properties.

// Cursor is a place in the list of tasks. The list is ordered from the newest submission to the oldest and, within an
// instant, by id. The zero Cursor is the beginning.
type Cursor struct {
	Submitted int64 // Unix milliseconds
	Task      string
}

// compare orders places as in the list.
func (c Cursor) compare(o Cursor) int {
	return cmp.Or(cmp.Compare(o.Submitted, c.Submitted), cmp.Compare(c.Task, o.Task))
}

func cursorOf(s *events.Summary) Cursor { return Cursor{max(0, s.SubmittedAt.UnixMilli()), s.ID} }

// justBefore returns a place with no task between it and c. Ids are UTF-8, and the place must be too, since it is
// written as JSON.
func (c Cursor) justBefore() Cursor {
	if c.Task == "" {
		if c.Submitted == math.MaxInt64 { // no task was submitted then
			return c
		}
		return Cursor{c.Submitted + 1, string(utf8.MaxRune)}
	}
	last, size := utf8.DecodeLastRuneInString(c.Task)
	c.Task = c.Task[:len(c.Task)-size]
	switch last {
	case 0: // c is the least id after another, which is the result
		return c
	case 0xe000: // surrogates aren't valid UTF-8: skip them
		last = 0xd800
	}
	c.Task += string(last-1) + string(utf8.MaxRune)
	return c
}

// facet is a letter and texts, encoded so that no facet is a prefix of another.
type facet string

const (
	letterState   = 's'
	letterVersion = 'v'
	letterLabel   = 'l'
	letterError   = 'e'
	letterAgent   = 'g'
	letterGroup   = 'h'
	letterParent  = 'p'
)

func facetOf(letter byte, texts ...string) facet {
	b := []byte{letter}
	for _, t := range texts {
		for i := range len(t) {
			if t[i] <= 1 { // zero ends a text
				b = append(b, 1, t[i]+1)
				continue
			}
			b = append(b, t[i])
		}
		b = append(b, 0)
	}
	return facet(b)
}

func stateFacet(s events.TaskState) facet { return facetOf(letterState, string(s)) }
func versionFacet(workflow string, version int) facet {
	return facetOf(letterVersion, workflow, strconv.Itoa(version))
}
func labelFacet(k, v string) facet { return facetOf(letterLabel, k, v) }
func errorFacet(step string) facet { return facetOf(letterError, step) }
func agentFacet(name string) facet { return facetOf(letterAgent, name) }
func groupFacet(id string) facet   { return facetOf(letterGroup, id) }
func parentFacet(id string) facet  { return facetOf(letterParent, id) }

// bucketMillis is the time that one posting covers, in milliseconds.
const bucketMillis = 1000

// newestFirst inverts an instant, so that keys are ordered from the newest.
func newestFirst(n int64) uint64 { return ^uint64(n) }

// appendIndexKey appends the key of a task's own entry.
func (k keyspace) appendIndexKey(dst []byte, f facet, c Cursor) []byte {
	dst = k.appendKey(dst, kindIndex, string(f))
	dst = binary.BigEndian.AppendUint64(dst, newestFirst(c.Submitted))
	return append(dst, c.Task...)
}

// appendPostingKey appends the key of a posting. next is the offset of the Save that wrote it.
func (k keyspace) appendPostingKey(dst []byte, f facet, bucket, next int64) []byte {
	dst = k.appendKey(dst, kindPosting, string(f))
	dst = binary.BigEndian.AppendUint64(dst, newestFirst(bucket))
	return binary.BigEndian.AppendUint64(dst, uint64(next))
}

// appendDueKey appends the key of an open task by the instant at which its earliest timer is due.
func (k keyspace) appendDueKey(dst []byte, due int64, task string) []byte {
	dst = k.appendKey(dst, kindDue, "")
	dst = binary.BigEndian.AppendUint64(dst, uint64(due))
	return append(dst, task...)
}

// cutIndexKey returns the place at the end of the key of an entry.
func cutIndexKey(rest []byte) (Cursor, error) {
	if len(rest) < 8 {
		return Cursor{}, errNoEntry
	}
	return Cursor{int64(^binary.BigEndian.Uint64(rest)), string(rest[8:])}, nil
}

// postings are the tasks that a Save posts, by facet and bucket.
type postings map[postingOf][]byte

type postingOf struct {
	facet  facet
	bucket int64
}

// add adds a task to a posting.
func (p postings) add(f facet, c Cursor) {
	of := postingOf{f, c.Submitted / bucketMillis}
	b := binary.AppendUvarint(p[of], uint64(c.Submitted%bucketMillis))
	b = binary.AppendUvarint(b, uint64(len(c.Task)))
	p[of] = append(b, c.Task...)
}

// readPosting calls fn with each task of a posting.
func readPosting(bucket int64, data []byte, fn func(Cursor)) error {
	for len(data) > 0 {
		ms, n := binary.Uvarint(data)
		if n <= 0 {
			return errNoEntry
		}
		size, m := binary.Uvarint(data[n:])
		data = data[max(n+m, n):]
		if m <= 0 || size > uint64(len(data)) {
			return errNoEntry
		}
		fn(Cursor{bucket*bucketMillis + int64(ms), string(data[:size])})
		data = data[size:]
	}
	return nil
}

var errNoEntry = errors.New("not an entry of the index")

// indexState is the part of a task in the index that can change. taskRow.indexed is the saved state.
type indexState struct {
	state   events.TaskState // empty: the index lacks the task
	version int              // of the workflow
	due     int64            // Unix milliseconds; 0: no timer is armed
	agents  []string         // with a running attempt
	inError []string         // steps
	group   string           // the error group of a held task
	lasting []facet          // of the held task of an item: those that other tasks are posted under
	at      []stepAt         // steps
	ends    int64            // complete-by of the open task, in Unix milliseconds; 0: none, or the task is hidden
}

// indexStateOf returns the state of a row. group is the id of its error group; empty: it isn't held.
func indexStateOf(s *events.Summary, group string) indexState {
	st := indexState{state: shownState(s), version: s.Version, inError: s.InError(), group: group, at: stepsAt(s), ends: endsBy(s)}
	if due := s.Due(); s.Open() && !due.IsZero() {
		st.due = due.UnixMilli()
	}
	if s.Open() {
		st.agents = s.WaitingFor()
	}
	if s.Item && st.state != "" {
		st.lasting = lastingFacets(s)
	}
	return st
}

// shownState returns the state by which a task is listed and counted; empty: it isn't.
func shownState(s *events.Summary) events.TaskState {
	if s.Hidden() {
		return ""
	}
	return s.State
}

// own returns the facets with an entry of the task's own.
func (st *indexState) own() []facet {
	var fs []facet
	if st.state != "" && !st.state.Terminal() {
		fs = append(fs, stateFacet(st.state))
	}
	for _, a := range st.agents {
		fs = append(fs, agentFacet(a))
	}
	for _, s := range st.inError {
		fs = append(fs, errorFacet(s))
	}
	if st.group != "" {
		fs = append(fs, groupFacet(st.group))
	}
	return append(fs, st.lasting...)
}

// lastingFacets returns the facets that a task has as long as it isn't migrated.
func lastingFacets(s *events.Summary) []facet {
	fs := []facet{versionFacet(s.Workflow, s.Version)}
	for k, v := range s.Labels {
		fs = append(fs, labelFacet(k, v))
	}
	return fs
}

// posted returns the facets under which a task is posted: first by its first Save, ended by the first Save after its
// end.
func posted(s *events.Summary) (first []facet, ended facet) {
	if s.Parent != "" {
		first = append(first, parentFacet(s.Parent))
	}
	if s.Item {
		return first, ""
	}
	first = append(first, lastingFacets(s)...)
	if !s.Open() {
		ended = stateFacet(s.State)
	}
	return first, ended
}

// indexWriter collects the changes of a Save to the index.
type indexWriter struct {
	keys     keyspace
	postings postings
	unposted unposted
	set      func(key, value []byte)
	remove   func(key []byte)
	key      []byte
	due      bool  // the order by due has changed
	earliest int64 // earliest due that was added; 0: none
}

// write adds the changes of a row.
func (w *indexWriter) write(r *taskRow) indexState {
	s, was := r.summary, &r.indexed
	is, at := indexStateOf(s, r.group), cursorOf(s)
	first, ended := posted(s)
	if !r.stored {
		for _, f := range first {
			w.postings.add(f, at)
		}
	}
	wasEnded := was.state != "" && was.state.Terminal()
	if r.stored && !s.Item && was.version != is.version { // the task was migrated
		w.unposted.add(versionFacet(s.Workflow, was.version), at)
		w.postings.add(versionFacet(s.Workflow, is.version), at)
	}
	if wasEnded && was.state != is.state { // a processed task is undone
		w.unposted.add(stateFacet(was.state), at)
	}
	if ended != "" && (!wasEnded || was.state != is.state) {
		w.postings.add(ended, at)
	}
	w.writeOwn(was, &is, at)
	w.writeEnd(was.ends, is.ends, at)
	if is.due == was.due {
		return is
	}
	w.due = true
	if was.due != 0 {
		w.key = w.keys.appendDueKey(w.key[:0], was.due, at.Task)
		w.remove(w.key)
	}
	if is.due == 0 {
		return is
	}
	if w.earliest == 0 || is.due < w.earliest {
		w.earliest = is.due
	}
	w.key = w.keys.appendDueKey(w.key[:0], is.due, at.Task)
	w.set(w.key, nil)
	return is
}

func (w *indexWriter) writeOwn(was, is *indexState, at Cursor) {
	before, after := was.own(), is.own()
	for _, f := range before {
		if !slices.Contains(after, f) {
			w.key = w.keys.appendIndexKey(w.key[:0], f, at)
			w.remove(w.key)
		}
	}
	for _, f := range after {
		if !slices.Contains(before, f) {
			w.key = w.keys.appendIndexKey(w.key[:0], f, at)
			w.set(w.key, nil)
		}
	}
}

// finish writes the postings, and removes from earlier ones what is no longer so.
func (w *indexWriter) finish(r reader, next int64) {
	for of, tasks := range w.unposted {
		w.unpost(r, of, tasks)
	}
	for of, data := range w.postings {
		w.key = w.keys.appendPostingKey(w.key[:0], of.facet, of.bucket, next)
		w.set(w.key, data)
	}
}

// cutFacet splits the part after the kind of a key of the index.
func cutFacet(rest []byte) (f facet, tail []byte, err error) {
	texts := 1
	if len(rest) > 0 && (rest[0] == letterVersion || rest[0] == letterLabel) {
		texts = 2
	}
	for i, b := range rest {
		if b != 0 {
			continue
		}
		if texts--; texts == 0 {
			return facet(rest[:i+1]), rest[i+1:], nil
		}
	}
	return "", nil, errNoEntry
}

// eachEntry calls fn with every task of every facet.
func (r reader) eachEntry(fn func(facet, Cursor)) {
	r.each(kindIndex, func(rest string, _ []byte) error {
		f, tail, err := cutFacet([]byte(rest))
		if err != nil {
			return err
		}
		c, err := cutIndexKey(tail)
		fn(f, c)
		return err
	})
	r.each(kindPosting, func(rest string, data []byte) error {
		f, tail, err := cutFacet([]byte(rest))
		if err != nil || len(tail) != 16 {
			return errors.Join(err, errNoEntry)
		}
		return readPosting(int64(^binary.BigEndian.Uint64(tail)), data, func(c Cursor) { fn(f, c) })
	})
}
