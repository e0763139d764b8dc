package console

import (
	"bytes"
	"cmp"
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
}

// history reads the events of the task that a request is about.
func (c *call) history(in *taskRequest) (*history, error) { return c.historyUntil(in, math.MaxUint64) }

// historyUntil is history without the events after one.
func (c *call) historyUntil(in *taskRequest, seq uint64) (*history, error) {
	id := string(in.Task)
	p := events.Partition([]byte(id), c.cfg.Partitions)
	offset, err := c.minOffset(in.MinOffset, p)
	if err == nil && offset > 0 {
		err = c.awaitOffset(c.r.Context(), p, offset)
	}
	if err != nil {
		return nil, err
	}
	return c.readHistory(id, p, seq)
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
		return 0, badRequest("min_offset %q: an offset, as as_of has it, or %s", consoleapi.Printable(text), consoleapi.LogEnd)
	}
	return offset, nil
}

// ends returns the current ends of the partitions of events, as far as brokers report them.
func (c *call) ends() (map[int32]int64, error) {
	ends, err := c.cfg.Log.Ends(c.r.Context())
	if err != nil {
		return nil, unavailable("where the log ends: %v", err)
	}
	return ends, nil
}

// contains reports whether a map has an entry for a partition.
func contains[T any](of map[int32]T, p int32) bool {
	_, is := of[p]
	return is
}

// readHistory reads the events of a task up to a seq.
func (c *call) readHistory(id string, p int32, seq uint64) (*history, error) {
	found, begun := c.cfg.Index.Find(p, id)
	switch {
	case !begun:
		return nil, c.notReadError(p)
	case len(found.Places) == 0 && found.NoEvent == nil:
		return nil, c.noTask(id, p)
	}
	h := &history{id: id, topic: c.cfg.Namespace.Events(), partition: p, next: found.Next, owner: found.Owner, ended: found.Summary != nil && found.Summary.State.Terminal()}
	offsets := make([]int64, 0, len(found.Places)+1)
	for _, at := range found.Places {
		h.lastSeq = max(h.lastSeq, at.Seq)
		if at.Seq <= seq {
			offsets = append(offsets, at.Offset)
		}
	}
	if found.NoEvent != nil && h.lastSeq < seq {
		offsets = append(offsets, found.NoEvent.Offset)
	}
	records, corruption, err := c.cfg.Log.ReadAt(c.r.Context(), p, offsets)
	switch {
	case errors.Is(err, ErrUnavailable):
		return nil, unavailable("the events of task %q: %v; `waybill doctor` shows what else is wrong", consoleapi.Printable(id), err)
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
	if at := c.cfg.Index.Progress()[p]; at.Behind {
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

// fold folds what can be folded, and says what can't; nil: nothing. Of a task of which nothing can
// be it fails.
func (h *history) fold() (task *events.Task, unreadable *unreadableRecord, err error) {
	var f events.Fold
	for i := range h.records {
		r := &h.records[i]
		err := h.lost[r.Offset]
		if err == nil {
			if _, err = f.Add(r); err == nil {
				continue
			}
			err = errors.Unwrap(err)
		}
		unreadable = &unreadableRecord{r, err}
		break
	}
	if f.Task == nil {
		return nil, nil, unreadableProblem("the first event of task %q is unreadable: %s; %s/timeline shows the readable ones", consoleapi.Printable(h.id), unreadable, api+consoleapi.TaskPath(h.id))
	}
	return f.Task, unreadable, nil
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

// task returns a task. If its history isn't readable to the end, it is returned as of the last readable event,
// with the unreadable one.
func (c *call) task(in *taskRequest) (*consoleapi.Task, error) {
	h, err := c.history(in)
	if err != nil {
		return nil, err
	}
	task, unreadable, err := h.fold()
	if err != nil {
		return nil, err
	}
	v := &consoleapi.Task{TaskView: task.View(h.owner, h.partition, h.next)}
	if unreadable != nil {
		v.Unreadable = unreadableOf(unreadable.record, unreadable.why)
	}
	return v, nil
}

func (c *call) timeline(in *taskRequest) (*consoleapi.Timeline, error) {
	h, err := c.history(in)
	if err != nil {
		return nil, err
	}
	v := &consoleapi.Timeline{Task: h.id, Lines: make([]events.Line, 0, len(h.records)), Unreadable: []consoleapi.Unreadable{}, AsOf: h.asOf()}
	for i := range h.records {
		r := &h.records[i]
		if line, err := h.line(r); err == nil {
			v.Lines = append(v.Lines, line)
		} else {
			v.Unreadable = append(v.Unreadable, *unreadableOf(r, err))
		}
	}
	return v, nil
}

func (h *history) asOf() events.AsOf {
	return events.AsOf{Partition: h.partition, Offset: strconv.FormatInt(h.next, 10)}
}

// why returns why a task doesn't advance.
func (c *call) why(in *taskRequest) (*replay.Why, error) {
	h, err := c.history(in)
	if err != nil {
		return nil, err
	}
	task, unreadable, err := h.fold()
	if err != nil {
		return nil, err
	}
	agents, now := map[string]replay.AgentState{}, c.cfg.Now()
	for _, name := range replay.AgentsAwaited(task, now) {
		switch a, err := c.cfg.Cluster.Agent(c.r.Context(), name); {
		case err == nil:
			agents[name] = a
		case !errors.Is(err, ErrUnknownAgent):
			return nil, unavailable("agent %s: %v", name, err)
		}
	}
	var since replay.Since
	for i := range h.records {
		since.Add(&h.records[i])
	}
	return replay.Explain(task, &since, unreadable.String(), agents, now), nil
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
