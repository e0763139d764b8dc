package verify

import (
	"maps"
	"slices"

	"github.com/waybill-run/waybill/events"
)

// Partitioned checks the partitions of a log in parallel, with a Checker for each. What belongs to one partition is fed
// by one goroutine, in the order of the log; several partitions may be fed at once.
//
// A log that is written meanwhile is read in this order: first the inboxes, then the events, and the dead letters last,
// to the merged Checker. An input that was consumed before its event was read has left its dead letter by then. An input
// consumed after the inboxes were read may have been forwarded behind that point: so EventsThere comes before the first
// inbox.
type Partitioned struct {
	options Options
	parts   map[int32]*partitionCheck
}

// partitionCheck is the check of one partition.
type partitionCheck struct {
	checker *Checker
	first   int64 // first offset of the inbox that is being read; -1: none
}

// NewPartitioned returns a check of some partitions.
func NewPartitioned(partitions []int32, o Options) *Partitioned {
	p := &Partitioned{options: o, parts: make(map[int32]*partitionCheck, len(partitions))}
	for _, n := range partitions {
		p.Checker(n)
	}
	return p
}

// Checker returns the checker of a partition. It adds the partition if it is new; then nothing may be fed meanwhile.
func (p *Partitioned) Checker(partition int32) *Checker {
	if p.parts[partition] == nil {
		p.parts[partition] = &partitionCheck{New(p.options), -1}
	}
	return p.parts[partition].checker
}

// EventsThere sets the offsets up to which events existed before the inboxes are read.
func (p *Partitioned) EventsThere(next map[int32]int64) {
	for n, c := range p.parts {
		c.checker.EventsThere(n, next[n])
	}
}

// Input feeds a record of the inbox that is being read.
func (p *Partitioned) Input(r *events.Record) {
	c := p.parts[r.Partition]
	if c.first < 0 {
		c.first = r.Offset
	}
	c.checker.Input(r)
}

// Trimmed reports that the inbox that is being read now begins at an offset, because it was trimmed meanwhile.
func (p *Partitioned) Trimmed(partition int32, start int64) { p.parts[partition].first = start }

// InboxRead reports that an inbox was read up to these offsets. It is called after each inbox.
func (p *Partitioned) InboxRead(inbox events.Inbox, next map[int32]int64) {
	for n, c := range p.parts {
		if to, read := next[n]; read {
			from := c.first
			if from < 0 {
				from = to
			}
			c.checker.InputsRead(inbox, n, from, to)
		}
		c.first = -1
	}
}

// Event feeds an event.
func (p *Partitioned) Event(r *events.Record) { p.parts[r.Partition].checker.Event(r) }

// Corrupt reports that records of a topic are unreadable.
func (p *Partitioned) Corrupt(topic string, partition int32, offset int64, keys []string, what string) {
	p.parts[partition].checker.Corrupt(topic, partition, offset, keys, what)
}

// Merge returns one checker with all that was fed, merged in the order of the partitions. The Partitioned must not be
// used any more.
func (p *Partitioned) Merge() *Checker {
	all := New(p.options)
	for _, n := range slices.Sorted(maps.Keys(p.parts)) {
		all.Merge(p.parts[n].checker)
	}
	return all
}
