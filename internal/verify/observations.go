package verify

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/waybill-run/waybill/events"
)

// seen holds observations of a test harness besides the log.
type seen struct {
	acked   []ack
	reads   map[reader]int64
	readers int
	digests map[view]Digest
	pairs   int // digests that were compared with another

	quiet   time.Time // since when all faults are off
	lag     int64     // as last reported
	lagAt   time.Time
	lagless []time.Time // the instants at which the lag was 0
}

type ack struct {
	task string
	at   time.Time
}

// reader is a client, and a partition that it reads.
type reader struct {
	client    string
	partition int32
}

// view identifies the state that a digest is of.
type view struct {
	view      string
	partition int32
	offset    int64
}

// hold is an event that began a hold.
type hold struct {
	task   *task
	seq    uint64
	offset int64
}

func newSeen() seen { return seen{reads: map[reader]int64{}, digests: map[view]Digest{}} }

// Acknowledged records when a submission was acknowledged (P1, P12).
func (c *Checker) Acknowledged(id string, at time.Time) {
	c.seen.acked = append(c.seen.acked, ack{id, at})
}

// Read records that a client received an answer that reflects a partition below an offset. The offsets that a
// client observes never decrease (P13).
func (c *Checker) Read(client string, partition int32, offset int64) {
	key := reader{client, partition}
	last, again := c.seen.reads[key]
	c.seen.readers++
	switch {
	case offset < 0:
		c.faults.add(Fault{Promise: "P13", Partition: partition, What: fmt.Sprintf("%s was answered without an offset", client)})
	case again && offset < last:
		c.faults.add(Fault{Promise: "P13", Topic: topicEvents, Partition: partition, Offset: offset,
			What: fmt.Sprintf("%s was answered as of %d after it was as of %d", client, offset, last)})
	default:
		c.seen.reads[key] = offset
	}
}

// Digest is the digest of a projection of a partition.
type Digest struct {
	View      string // tasks, deadlines or timelines; only equal views are compared
	By        string // how it was built: live, rebuilt, from a snapshot
	Partition int32
	Offset    int64 // the offset that it reflects: everything below
	Sum       string
	Crashed   bool // the store had crashed, so a difference breaks P9; else P8
}

// Digest records the digest of a projection. All projections of a partition at one offset must have the same
// digest, however they were built: live, by a rebuild, from a snapshot and the tail (P8), or after a crash (P9).
func (c *Checker) Digest(d Digest) {
	key := view{d.View, d.Partition, d.Offset}
	first, ok := c.seen.digests[key]
	if !ok {
		c.seen.digests[key] = d
		return
	}
	c.seen.pairs++
	if first.Sum == d.Sum {
		return
	}
	promise := "P8"
	if first.Crashed || d.Crashed {
		promise = "P9"
	}
	c.faults.add(Fault{Promise: promise, Topic: topicEvents, Partition: d.Partition, Offset: d.Offset,
		What: fmt.Sprintf("the digest of %s is %s (%s) and %s (%s)", d.View, first.Sum, first.By, d.Sum, d.By)})
}

// Quiet records that all faults are off from an instant on (P14).
func (c *Checker) Quiet(at time.Time) { c.seen.quiet = at }

// Lag records how many records of the inboxes were unconsumed at an instant.
func (c *Checker) Lag(at time.Time, records int64) {
	s := &c.seen
	s.lag, s.lagAt = records, at
	if records == 0 {
		s.lagless = append(s.lagless, at)
	}
}

// drained returns the first instant after Quiet at which the lag was 0; zero: none.
func (s *seen) drained() time.Time {
	for _, at := range s.lagless {
		if !at.Before(s.quiet) {
			return at
		}
	}
	return time.Time{}
}

// Deadletter adds a record of the dead letters. Those of a partition come in order.
func (c *Checker) Deadletter(r *events.Record) {
	if _, is := c.oldestDead[r.Partition]; !is {
		c.oldestDead[r.Partition] = millis(r.Time)
	}
	origin, _ := r.Header(events.HeaderOrigin)
	reason, _ := r.Header(events.HeaderReason)
	at, ok := c.placeOf(origin)
	if !ok {
		return
	}
	c.dead[at] = letter{events.Reason(reason), max(millis(r.Time), c.dead[at].at)}
	in := c.inboxes[at.inboxPart]
	if in == nil || c.recreated(at.inboxPart) {
		return
	}
	// Only dead letters of unusable records are compared with their original. For others the task's events are checked.
	if x := in.inputs.get(at.offset); x != nil && x.unreadable != "" && len(r.Value) < events.MaxDeadletterBytes && x.body != sumOf(r.Value) {
		c.faults.add(Fault{"P15", "", strings.TrimPrefix(r.Topic, string(c.o.Namespace)), r.Partition, r.Offset, fmt.Sprintf("isn't the record that it says it is, %s", origin)})
	}
}

// DeadlettersMissing unsets Options.Deadletters, since some dead letters couldn't be fed.
func (c *Checker) DeadlettersMissing() { c.o.Deadletters = false }

// placeOf parses the position of a record, "topic/partition/offset". ok is false if the topic isn't an inbox of the
// namespace.
func (c *Checker) placeOf(origin string) (place, bool) {
	name, own := strings.CutPrefix(origin, string(c.o.Namespace))
	cause, err := events.ParseCause(name)
	return place{inboxPart{cause.Inbox, cause.Partition}, cause.Offset}, own && err == nil
}

// Alert adds a record of the alerts.
func (c *Checker) Alert(r *events.Record) {
	if id, ok := r.Header(events.HeaderID); ok {
		c.alerted[id] = true
	}
}

// alertID returns the ce_id of the alert of a hold, which is that of the event.
func (h hold) alertID() string { return h.task.id + "/" + strconv.FormatUint(h.seq, 10) }
