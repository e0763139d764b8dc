package verify

import (
	"fmt"
	"strings"

	"github.com/waybill-run/waybill/events"
)

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
	switch {
	case p.claim < 0 || e.Epoch != p.state.Epoch || (e.Sum != "") == p.sums:
	case e.Sum == "" && events.MayBeLast(before, e.Fact):
		return fault(r.Offset, fmt.Sprintf("it has no sum, as all have that may be a task's last since the claim at events/%d/%d: it was changed after it was written", r.Partition, p.claim))
	case e.Sum != "":
		return fault(p.claim, fmt.Sprintf("the claim of epoch %d has no sum, and event %d at events/%d/%d has one: one of the two was changed after it was written", e.Epoch, e.Seq, r.Partition, r.Offset))
	}
	return nil
}

// checkClaim applies a claim and checks its hash.
func (c *Checker) checkClaim(p *partition, e *events.Event, r *events.Record) {
	p.claim, p.sums, p.owner, p.source = r.Offset, e.Sum != "", "", ""
	if err := c.reader.CheckSum(r); err != nil {
		c.faults.add(Fault{"P2", "", topicEvents, r.Partition, r.Offset, err.Error()})
		p.claim = -1 // the epoch's claim is unknown
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
