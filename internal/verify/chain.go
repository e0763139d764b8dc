package verify

import (
	"errors"
	"fmt"
	"strings"

	"github.com/waybill-run/waybill/events"
)

// errNoSum is the fault of an event that must have a checksum.
var errNoSum = errors.New("it has no sum: it was changed after it was written")

// checkHashes checks an event's own hash, if it has one, and the hash of the previous event that it contains. The
// fault names the event that was changed, or both events if either may have been changed; nil: no fault.
func (c *Checker) checkHashes(p *partition, t *task, e *events.Event, r *events.Record) *Fault {
	if t.broken {
		return nil
	}
	fault := func(offset int64, what string) *Fault {
		return &Fault{"P2", t.id, topicEvents, r.Partition, offset, what}
	}
	if err := c.reader.CheckSum(r); err != nil {
		return fault(r.Offset, err.Error())
	}
	if t.open == nil {
		return nil // the task has ended, so the event is a fault anyway
	}
	before := t.open.state
	if before != nil && e.Seq == before.Seq+1 && e.Prev != before.Prev {
		return fault(t.open.offset, fmt.Sprintf("event %d hashes to %q, and the next, %d at events/%d/%d, holds %q of it: one of the two was changed after it was written",
			before.Seq, before.Prev, e.Seq, r.Partition, r.Offset, e.Prev))
	}
	if e.Sum == "" && events.MayBeLast(before, e.Fact) {
		return fault(r.Offset, errNoSum.Error())
	}
	return nil
}

// checkClaim applies a claim and checks its hash.
func (c *Checker) checkClaim(p *partition, e *events.Event, r *events.Record) {
	p.owner, p.source = "", ""
	err := c.reader.CheckSum(r)
	if err == nil && e.Sum == "" {
		err = errNoSum
	}
	if err != nil {
		c.faults.add(Fault{"P2", "", topicEvents, r.Partition, r.Offset, err.Error()})
		return
	}
	if f, ok := e.Fact.(*events.PartitionClaimed); ok {
		p.owner = strings.Clone(f.Owner)
	}
	what := p.checkOwner(r)
	if id, _ := r.Header(events.HeaderID); what == "" && (e.Seq != e.Epoch || id != e.ID(r.Partition)) {
		what = fmt.Sprintf("the claim of epoch %d is named %q", e.Epoch, id)
	}
	if what != "" {
		c.faults.add(Fault{"P11", "", topicEvents, r.Partition, r.Offset, what})
	}
}
