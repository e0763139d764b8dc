package scheduler

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/verify"
)

// evidence is an events log and all records that were written with it.
type evidence struct {
	inputs, requests, dead, alerts []events.Record
	log                            []*entry
	end                            time.Time
}

// entry is a record of the events topic. seal writes changes of e to the log.
type entry struct {
	e    *events.Event
	r    events.Record
	raw  bool // seal doesn't encode r again
	seq  bool // seal keeps e.Seq
	prev bool // seal keeps e.Prev
}

// evidenceOf returns the output of a scenario.
func evidenceOf(w *flowScenario) *evidence {
	x := &evidence{dead: w.cluster.all(ns.Deadletters()), alerts: w.cluster.all(ns.Alerts()), end: w.clock.Now()}
	for _, topic := range ns.InboxTopics() {
		x.inputs = append(x.inputs, w.cluster.all(topic)...)
	}
	for _, a := range agents {
		x.requests = append(x.requests, w.cluster.all(ns.Requests(a))...)
	}
	for _, r := range w.cluster.all(ns.Events()) {
		x.log = append(x.log, entryOf(w.t.Fatal, r))
	}
	return x
}

func entryOf(fatal func(...any), r events.Record) *entry {
	e, err := events.DecodeEvent(&r)
	if err != nil {
		fatal(err)
	}
	return &entry{e: e, r: r}
}

// clone returns a deep copy.
func (x *evidence) clone() *evidence {
	c := *x
	c.inputs, c.requests, c.dead, c.alerts = slices.Clone(x.inputs), slices.Clone(x.requests), slices.Clone(x.dead), slices.Clone(x.alerts)
	c.log = make([]*entry, len(x.log))
	for i, n := range x.log {
		c.log[i] = entryOf(func(v ...any) { panic(fmt.Sprint(v...)) }, n.r)
	}
	return &c
}

// seal encodes the log again with consistent offsets, event numbers and hashes, as a forger who knows the format would.
// It updates references to event numbers.
func (x *evidence) seal() {
	type chain struct {
		seq  uint64
		prev string
	}
	tasks, offsets, numbers := map[string]*chain{}, map[int32]int64{}, map[string]uint64{}
	for _, n := range x.log {
		n.r.Offset = offsets[n.r.Partition]
		offsets[n.r.Partition]++
		if n.raw {
			continue
		}
		if n.e.Task != "" {
			t := tasks[n.e.Task]
			if t == nil {
				t = &chain{}
				tasks[n.e.Task] = t
			}
			if t.seq++; !n.seq {
				numbers[n.e.ID(0)] = t.seq
				n.e.Seq = t.seq
			}
			if !n.prev {
				n.e.Prev = t.prev
			}
			n.reseal()
			t.prev = events.Hash(n.e.Fact.Type(), n.r.Value)
			continue
		}
		n.reseal()
	}
	x.renumber(numbers)
}

// reseal encodes the record again with a valid checksum, if it had one.
func (n *entry) reseal() {
	var before *events.Task
	if n.e.Sum != "" {
		before = &events.Task{State: events.StateError}
	}
	source, _ := n.r.Header(events.HeaderSource)
	at, offset := n.r.Time, n.r.Offset
	n.r = n.e.Record(ns, source, n.r.Partition, n.e.Seal(before))
	n.r.Time, n.r.Offset = at, offset
}

// renumber updates the event numbers in recoveries and alerts.
func (x *evidence) renumber(numbers map[string]uint64) {
	for i := range x.inputs {
		r := &x.inputs[i]
		if r.Topic != ns.Inbox(events.Recoveries) {
			continue
		}
		_, in, err := events.DecodeInput(events.Recoveries, r)
		if err != nil {
			continue
		}
		rec := in.(*events.Recovery)
		if now, ok := numbers[events.TaskEventID(rec.Task, rec.Timer)]; ok && now != rec.Timer {
			rec.Timer = now
			source, _ := r.Header(events.HeaderSource)
			at, offset := r.Time, r.Offset
			*r = rec.Record(ns, source, r.Partition)
			r.Time, r.Offset = at, offset
		}
	}
	for i := range x.alerts {
		r := &x.alerts[i]
		id, _ := r.Header(events.HeaderID)
		if now, ok := numbers[id]; ok {
			r.Headers = withHeader(r.Headers, events.HeaderID, events.TaskEventID(id[:strings.LastIndexByte(id, '/')], now))
		}
	}
}

// withHeader returns the headers with another value for a key.
func withHeader(hs []events.Header, key, value string) []events.Header {
	hs = slices.Clone(hs)
	for i := range hs {
		if hs[i].Key == key {
			hs[i].Value = []byte(value)
		}
	}
	return hs
}

// check runs verify on everything, or on the events alone.
func (x *evidence) check(all bool) *verify.Report {
	o := verify.Options{Namespace: ns, Partitions: flowPartitions, ReplyTolerance: math.MaxInt64, Whole: true}
	if all {
		o.Inputs, o.Deadletters, o.Alerts, o.Requests = true, true, true, true
	}
	c := verify.New(o)
	if all {
		for i := range x.inputs {
			c.Input(&x.inputs[i])
		}
		ends := map[string]map[int32]int64{}
		for i := range x.inputs {
			r := &x.inputs[i]
			if ends[r.Topic] == nil {
				ends[r.Topic] = map[int32]int64{}
			}
			ends[r.Topic][r.Partition] = r.Offset + 1
		}
		for topic, of := range ends {
			for p, end := range of {
				kind, _ := events.ParseInbox(strings.TrimPrefix(topic, string(ns)))
				c.InputsRead(kind, p, 0, end)
			}
		}
	}
	for _, n := range x.log {
		c.Event(&n.r)
	}
	if all {
		for i := range x.requests {
			c.Request(&x.requests[i])
		}
		for i := range x.dead {
			c.Deadletter(&x.dead[i])
		}
		for i := range x.alerts {
			c.Alert(&x.alerts[i])
		}
	}
	return c.Finish(x.end)
}

// input returns the record that caused an event, and its index.
func (x *evidence) input(c events.Cause) (*events.Record, int) {
	for i := range x.inputs {
		r := &x.inputs[i]
		if r.Topic == ns.Inbox(c.Inbox) && r.Partition == c.Partition && r.Offset == c.Offset {
			return r, i
		}
	}
	return nil, -1
}

// forger changes one thing in a log.
type forger struct {
	dice
	*evidence
	before map[*entry]*events.Task // the state before the event
	after  map[*entry]*events.Task
}

func newForger(d dice, x *evidence) *forger {
	f := &forger{dice: d, evidence: x.clone(), before: map[*entry]*events.Task{}, after: map[*entry]*events.Task{}}
	states := map[string]*events.Task{}
	for _, n := range f.log {
		if n.e.Task == "" {
			continue
		}
		was := states[n.e.Task]
		f.before[n] = was
		next, err := events.Evolve(was.Clone(), n.e, events.Hash(n.e.Fact.Type(), n.r.Value))
		if err != nil {
			panic(err)
		}
		states[n.e.Task], f.after[n] = next, next
	}
	return f
}

// find returns the index of a matching event of a task; -1: there is none.
func (f *forger) find(ok func(n *entry) bool) int {
	return f.findAny(func(n *entry) bool { return n.e.Task != "" && ok(n) })
}

// findAny is like find, but includes events without a task.
func (f *forger) findAny(ok func(n *entry) bool) int {
	var at []int
	for i, n := range f.log {
		if ok(n) {
			at = append(at, i)
		}
	}
	if len(at) == 0 {
		return -1
	}
	return pick(f.dice, at)
}

// is reports whether an event has a kind of fact.
func is[F events.Fact](n *entry) bool {
	_, ok := n.e.Fact.(F)
	return ok
}

// next returns the index of the task's next event after i; -1: there is none.
func (f *forger) next(i int) int {
	for j := i + 1; j < len(f.log); j++ {
		if f.log[j].e.Task == f.log[i].e.Task {
			return j
		}
	}
	return -1
}

// first reports whether an event is the first of its cause.
func (f *forger) first(i int) bool {
	for j := i - 1; j >= 0 && f.log[j].r.Partition == f.log[i].r.Partition && f.log[j].e.Cause == f.log[i].e.Cause; j-- {
		if f.log[j].e.Task == f.log[i].e.Task {
			return false
		}
	}
	return true
}

// drop removes matching events of a task.
func (f *forger) drop(task string, ok func(n *entry) bool) {
	f.log = slices.DeleteFunc(f.log, func(n *entry) bool { return n.e.Task == task && ok(n) })
}

// decode decodes an input.
func decode[I events.Input](r *events.Record) (in I, ok bool) {
	kind, ok := events.ParseInbox(strings.TrimPrefix(r.Topic, string(ns)))
	if !ok {
		return in, false
	}
	_, i, err := events.DecodeInput(kind, r)
	if err != nil {
		return in, false
	}
	in, ok = i.(I)
	return in, ok
}

// rewrite replaces an input.
func rewrite(r *events.Record, by events.Record) {
	by.Partition, by.Offset, by.Time = r.Partition, r.Offset, r.Time
	*r = by
}
