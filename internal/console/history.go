package console

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/consoleapi"
	"github.com/waybill-run/waybill/internal/replay"
	"github.com/waybill-run/waybill/projections"
)

// history is the events of a task, read at their offsets.
type history struct {
	id        string
	topic     string
	partition int32
	next      int64 // the offset that it reflects
	owner     string
	// records are in the order of the log. An unreadable one is represented by its offset only; see lost.
	records []events.Record
	lost    map[int64]error // by offset; nil: none
	ended   bool            // the task has ended according to the index, which may have read more than can be read now
	lastSeq uint64          // of the task's last event according to the index
	row     *events.Summary // according to the index; nil: it has none
	group   string          // the id of the task's error group; empty: it isn't held

	// before is the fold of the events before records, which are folded into it. Only historyFrom sets the rest.
	before *replay.Stepper
	folded int                 // number of events before records
	places []projections.Place // of all events
	kept   []checkpoint        // folds to keep
}

// history reads the events of the task that a request is about.
func (c *call) history(in *taskRequest) (*history, error) { return c.historyUntil(in, math.MaxUint64) }

// historyUntil is history without the events after one.
func (c *call) historyUntil(in *taskRequest, seq uint64) (*history, error) {
	return c.readPart(in, historyPart{until: seq})
}

// historyPart is the part of a task's events that is read.
type historyPart struct {
	after, until uint64 // seqs; what stands for corruption has the seq 0 and is always read
	fromFold     bool   // without the events that a kept fold has; after is 0
}

// historyFrom is historyUntil without the events that a kept fold has. At least the last event is read. If it doesn't
// follow the kept fold, such as that of a log that was recreated, all events are read.
func (c *call) historyFrom(in *taskRequest, seq uint64) (*history, error) {
	h, err := c.readPart(in, historyPart{until: seq, fromFold: true})
	if err != nil || h.folded == 0 || h.follow() {
		return h, err
	}
	c.checkpoints.forget(h.id)
	return c.readPart(in, historyPart{until: seq, fromFold: true})
}

// follow reports whether the first record can be folded into the kept fold.
func (h *history) follow() bool {
	if len(h.records) == 0 {
		return true
	}
	s, r := h.before.Clone(), &h.records[0]
	s.Skip(r, h.lost[r.Offset])
	return s.Err() == nil
}

func (c *call) readPart(in *taskRequest, part historyPart) (*history, error) {
	id := string(in.Task)
	p := events.Partition([]byte(id), c.cfg.Partitions)
	offset, err := c.minOffset(in.MinOffset, p)
	if err == nil && offset > 0 {
		within, cancel := context.WithTimeout(c.r.Context(), minOffsetWithin)
		defer cancel()
		err = c.awaitOffset(within, p, offset)
	}
	if err != nil {
		return nil, err
	}
	return c.readHistory(id, p, part)
}

// minOffset parses min_offset of a request about one task: an offset of its partition, or the current end of the
// log.
func (c *call) minOffset(asked taskOffset, p int32) (int64, error) {
	text := string(asked)
	switch text {
	case "":
		return 0, nil
	case consoleapi.LogEnd:
		ends, err := c.ends()
		if err == nil && !contains(ends, p) {
			err = c.incompleteError(c.withoutLeader(c.cfg.Index.Progress(), p))
		}
		return ends[p], err
	}
	offset, err := strconv.ParseInt(text, 10, 64)
	if err != nil || offset < 0 {
		return 0, badRequest("min_offset %q: must be an offset, as as_of has it, or %s", consoleapi.Printable(text), consoleapi.LogEnd)
	}
	return offset, nil
}

// ends returns the current ends of the partitions of events, as far as brokers report them within minOffsetWithin.
func (c *call) ends() (map[int32]int64, error) {
	ctx, cancel := context.WithTimeout(c.r.Context(), minOffsetWithin)
	defer cancel()
	ends, err := c.cfg.Log.Ends(ctx)
	if err != nil {
		return nil, unavailable("can't find the end of the log: %v", err)
	}
	return ends, nil
}

// contains reports whether a map has an entry for a partition.
func contains[T any](of map[int32]T, p int32) bool {
	_, is := of[p]
	return is
}

// readHistory reads a part of the events of a task.
func (c *call) readHistory(id string, p int32, part historyPart) (*history, error) {
	found, begun := c.cfg.Index.Find(p, id)
	switch {
	case !begun:
		return nil, c.notReadError(p)
	case len(found.Places) == 0 && found.NoEvent == nil:
		return nil, c.noTask(id, p)
	}
	h := &history{id: id, topic: c.cfg.Namespace.Events(), partition: p, next: found.Next, owner: found.Owner, row: found.Summary, group: found.ErrorGroup, ended: found.Summary != nil && found.Summary.State.Terminal()}
	offsets := make([]int64, 0, len(found.Places)+1)
	for _, at := range found.Places {
		h.lastSeq = max(h.lastSeq, at.Seq)
		if (at.Seq > part.after || at.Seq == 0) && at.Seq <= part.until {
			offsets = append(offsets, at.Offset)
		}
	}
	if found.NoEvent != nil && h.lastSeq < part.until {
		offsets = append(offsets, found.NoEvent.Offset)
	}
	if h.before = replay.NewStepper(replay.Until{}, false); part.fromFold {
		h.places = found.Places
		if s, n := c.checkpoints.find(id, found.Places, len(offsets)-1); n > 0 {
			h.before, h.folded, offsets = s, n, offsets[n:]
		}
	}
	records, corruption, err := c.cfg.Log.ReadAt(c.r.Context(), p, offsets)
	switch {
	case errors.Is(err, ErrUnavailable):
		return nil, unavailable("can't read the events of task %q: %v; `waybill doctor` shows what else is wrong", consoleapi.Printable(id), err)
	case err != nil:
		return nil, fmt.Errorf("read %d events of task %q: %w", len(offsets), id, err)
	}
	h.records = records
	h.corrupt(corruption, offsets)
	if len(h.records) < len(offsets) {
		return nil, unreadableProblem("the log has only %[3]d of the %[1]d events of task %[2]q", len(offsets), consoleapi.Printable(id), len(h.records))
	}
	return h, nil
}

// corrupt has what is corrupt stand in its place.
func (h *history) corrupt(corruption []Corruption, offsets []int64) {
	for _, offset := range offsets {
		for i := range corruption {
			if offset < corruption[i].From || offset >= corruption[i].Next {
				continue
			}
			if h.lost == nil {
				h.lost = map[int64]error{}
			}
			if h.lost[offset] == nil {
				h.records = append(h.records, events.Record{Topic: h.topic, Partition: h.partition, Offset: offset, Key: []byte(h.id)})
			}
			h.lost[offset] = corruption[i].Err
		}
	}
	slices.SortFunc(h.records, func(a, b events.Record) int { return cmp.Compare(a.Offset, b.Offset) })
}

// line converts a record to a line of a timeline. It fails if the record is unreadable or no event.
func (h *history) line(r *events.Record) (events.Line, error) {
	if err := h.lost[r.Offset]; err != nil {
		return events.Line{}, err
	}
	return events.TimelineLine(r)
}

// waitingLookupsMax bounds the concurrent lookups of waiting submissions: each may read many records. Further
// requests are told that there is no such task, without a lookup.
const waitingLookupsMax = 2

// noTask returns the error for a missing task: it doesn't exist, the index is behind, or its submission is still
// waiting.
func (c *call) noTask(id string, p int32) error {
	at := c.cfg.Index.Progress()[p]
	if at.Silent {
		return c.incompleteError(consoleapi.Incomplete{Partition: p, Why: consoleapi.NoLeader, Restored: at.Restored()})
	}
	if at.Behind {
		e := incomplete("task %q is not known yet: its partition %d was read up to offset %d of %d", consoleapi.Printable(id), p, at.Next, at.End)
		e.Incomplete = []consoleapi.Incomplete{{Partition: p, Why: consoleapi.Behind, Restored: at.Restored()}}
		return e
	}
	select {
	case c.waitingLookupSlots <- struct{}{}:
		defer func() { <-c.waitingLookupSlots }()
	default:
		return notFound("there is no task %q%s", consoleapi.Printable(id), consoleapi.NoTaskAdvice)
	}
	w, err := c.cfg.Log.Waiting(c.r.Context(), id)
	switch {
	case err != nil:
		return notFound("there is no task %q; can't check for a waiting submission: %v", consoleapi.Printable(id), err)
	case w != nil:
		p := notFound("%s", w.Describe(id))
		p.Waiting = true
		return p
	}
	return notFound("there is no task %q%s", consoleapi.Printable(id), consoleapi.NoTaskAdvice)
}

// foldTask reads a task and folds it. See history.fold.
func (c *call) foldTask(in *taskRequest) (h *history, task *events.Task, unreadable *unreadableRecord, err error) {
	if h, err = c.historyFrom(in, math.MaxUint64); err != nil {
		return nil, nil, nil, err
	}
	task, unreadable, err = h.fold()
	c.checkpoints.keep(h.id, h.kept)
	return h, task, unreadable, err
}

// fold folds what can be folded, and says what can't; nil: nothing. Of a task of which nothing can
// be it fails.
func (h *history) fold() (task *events.Task, unreadable *unreadableRecord, err error) {
	for i := range h.records {
		err := h.advance(i)
		if err == nil {
			continue
		}
		r := &h.records[i]
		if h.lost[r.Offset] == nil {
			err = errors.Unwrap(err) // the record has the position
		}
		unreadable = &unreadableRecord{r, err}
		break
	}
	task = h.before.Task()
	if task == nil {
		return nil, nil, unreadableProblem("the first event of task %q is unreadable: %s; %s/timeline shows the readable ones", consoleapi.Printable(h.id), unreadable, api+consoleapi.TaskPath(h.id))
	}
	return task, unreadable, nil
}

// unreadableRecord is the first record of a task that can't be folded, and why.
type unreadableRecord struct {
	record *events.Record
	why    error
}

// String is empty where there is none.
func (p *unreadableRecord) String() string {
	if p == nil {
		return ""
	}
	return fmt.Sprintf("%s: %v", events.Origin(p.record), p.why)
}

func (h *history) reflectedOffset() events.AsOf {
	return events.AsOf{Partition: h.partition, Offset: strconv.FormatInt(h.next, 10)}
}

// export returns the events of a task in the format of `waybill export`.
func (c *call) export(in *taskRequest) (jsonLines, error) {
	h, err := c.history(in)
	if err != nil {
		return nil, err
	}
	for i := range h.records {
		if why := h.lost[h.records[i].Offset]; why != nil {
			return nil, unreadableProblem("an export of task %q would lack an unreadable event: %v; %s/timeline shows the others", consoleapi.Printable(h.id), why, api+consoleapi.TaskPath(h.id))
		}
	}
	var body bytes.Buffer
	w := replay.NewWriter(&body, replay.Head{Namespace: c.cfg.Namespace, Partitions: c.cfg.Partitions})
	for i := 0; err == nil && i < len(h.records); i++ {
		err = w.Write(&h.records[i])
	}
	if err == nil {
		err = w.End()
	}
	if err != nil {
		return nil, err
	}
	return body.Bytes(), nil
}

// offsetOf is the offset of an event of a task.
func offsetOf(places []projections.Place, seq uint64) (offset int64, ok bool) {
	for _, at := range places {
		if at.Seq == seq {
			return at.Offset, true
		}
	}
	return 0, false
}
