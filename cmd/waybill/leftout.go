package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka/logreader"
	"github.com/waybill-run/waybill/internal/replay"
	"github.com/waybill-run/waybill/internal/text"
)

// unreadableEvents are the ranges of events that can't be read. It is safe for concurrent use.
type unreadableEvents struct {
	mu   sync.Mutex // several partitions are read concurrently
	list []replay.Loss
}

func (l *unreadableEvents) add(d *logreader.CorruptError) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = append(l.list, replay.Loss{Partition: d.Partition, Offset: d.Offset, Tasks: d.Keys, All: d.AllKeys, Err: d})
}

// each passes the ranges to fn.
func (l *unreadableEvents) each(fn func(*replay.Loss)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.list {
		fn(&l.list[i])
	}
}

// leftOut is what an answer about many tasks leaves out, because events can't be read.
type leftOut struct {
	tasks   []replay.LeftOut
	unnamed []int32 // partitions in which unknown tasks may have lost all their events
}

// notIn returns the first range that others don't have, or nil.
func (l *unreadableEvents) notIn(others *unreadableEvents) *replay.Loss {
	for i := range l.list {
		is := func(o replay.Loss) bool { return o.Partition == l.list[i].Partition && o.Offset == l.list[i].Offset }
		if !slices.ContainsFunc(others.list, is) {
			return &l.list[i]
		}
	}
	return nil
}

// findLeftOut finds the tasks that may have lost an event. It reads the partition of id again, or all if id is
// empty. concerns selects the tasks that matter: it receives each task as it was before the loss, or nil if
// nothing is known of it.
func (l *unreadableEvents) findLeftOut(ctx context.Context, h eventSource, id string, concerns func(id string, t *events.Task) bool) (*leftOut, error) {
	if len(l.list) == 0 {
		return &leftOut{}, nil
	}
	s := replay.NewSurvey(l.list)
	err := h.read(ctx, id, func(r *events.Record) error {
		s.Add(r)
		return nil
	}, func(*logreader.CorruptError) {})
	if err != nil {
		return nil, err
	}
	return &leftOut{s.LeftOut(concerns), s.Unnamed()}, nil
}

// contains reports whether a task is left out.
func (i *leftOut) contains(id string) bool {
	_, is := slices.BinarySearchFunc(i.tasks, id, func(l replay.LeftOut, id string) int { return strings.Compare(l.Task, id) })
	return is
}

// leftOutNamed bounds how many ids are listed for one reason, unless the corrupt records themselves name the
// tasks: then all are listed.
const leftOutNamed = 20

// warn lists the tasks that are left out.
func (i *leftOut) warn(note io.Writer) {
	var reasons []string
	byReason := map[string][]string{}
	named := map[string]bool{}
	for j := range i.tasks {
		l := &i.tasks[j]
		if byReason[l.Reason] == nil {
			reasons = append(reasons, l.Reason)
		}
		byReason[l.Reason] = append(byReason[l.Reason], strconv.Quote(l.Task))
		named[l.Reason] = slices.Contains(l.Loss.Tasks, l.Task)
	}
	for _, why := range reasons {
		ids, more := byReason[why], ""
		if n := len(ids) - leftOutNamed; n > 0 && !named[why] {
			ids, more = ids[:leftOutNamed], fmt.Sprintf(" and %d more", n)
		}
		fmt.Fprintf(note, "waybill: left out: %s%s: %s\n", strings.Join(ids, ", "), more, printable(why))
	}
}

// partialError returns an error if the answer is incomplete, else nil.
func (i *leftOut) partialError() error {
	if len(i.tasks)+len(i.unnamed) == 0 {
		return nil
	}
	others := ""
	if len(i.unnamed) > 0 {
		others = fmt.Sprintf(", and the partitions %v may have other tasks without any readable event", i.unnamed)
	}
	return exit(exitUnreachable, "%s left out, because events of them are or may be unreadable%s; `waybill timeline ID` shows the readable events of a task", text.Count(len(i.tasks), "task"), others)
}

// leftOutInHead bounds the ids in the first line of an export, whose size is bounded.
const leftOutInHead = 2000

// exportHead returns the part of an export's first line that lists what is left out.
func (i *leftOut) exportHead(gone *unreadableEvents) (w replay.Without) {
	for j := range i.tasks[:min(len(i.tasks), leftOutInHead)] {
		w.Tasks = append(w.Tasks, i.tasks[j].Task)
	}
	for j := range gone.list {
		l := &gone.list[j]
		if slices.Contains(i.unnamed, l.Partition) || slices.ContainsFunc(i.tasks, func(t replay.LeftOut) bool { return t.Loss.Partition == l.Partition }) {
			w.Lost = append(w.Lost, l.Err.Error())
		}
	}
	slices.Sort(w.Lost)
	if n := len(i.tasks) - len(w.Tasks); n > 0 {
		w.Lost = append(w.Lost, fmt.Sprintf("and %d more %s", n, text.Plural(n, "task")))
	}
	return w
}
