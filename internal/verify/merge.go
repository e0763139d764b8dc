package verify

import (
	"fmt"
	"maps"
)

// Merge adds what another checker with the same Options was fed: other partitions of events and inboxes, each
// complete. The other checker must not be used any more. So partitions can be checked concurrently, and Finish
// sees all of them. Feeds that belong to no partition (the ledger, dead letters, alerts, requests, observations)
// are fed to the remaining checker, after the last Merge.
//
// A task with events in partitions of both checkers is a fault (P2).
func (c *Checker) Merge(o *Checker) {
	c.faults.all += o.faults.all
	c.faults.list = append(c.faults.list, o.faults.list[:min(len(o.faults.list), c.faults.most-len(c.faults.list))]...)
	c.events, c.others, c.inputs, c.unreadable = c.events+o.events, c.others+o.others, c.inputs+o.inputs, c.unreadable+o.unreadable
	maps.Copy(c.parts, o.parts)
	maps.Copy(c.inboxes, o.inboxes)
	maps.Copy(c.hops, o.hops)
	maps.Copy(c.given, o.given)
	maps.Copy(c.earlierPlans, o.earlierPlans)
	maps.Copy(c.schedules.tasks, o.schedules.tasks)
	c.holds = append(c.holds, o.holds...)
	c.late.count, c.late.most = c.late.count+o.late.count, max(c.late.most, o.late.most)
	c.timing.merge(&o.timing)
	c.mergeIntakes(o)
	c.adopt(o.order)
	o.tasks, o.order = nil, nil
}

// adopt adds the tasks of another checker.
func (c *Checker) adopt(tasks []*task) {
	for _, t := range tasks {
		duplicate := c.tasks[t.id]
		if duplicate == nil || duplicate == t.earlier {
			c.tasks[t.id] = t
			c.order = append(c.order, t)
			continue
		}
		c.addHistoryFault(Fault{Promise: "P2", Task: t.id, Partition: duplicate.partition,
			What: fmt.Sprintf("its events stand in the partitions %d and %d", duplicate.partition, t.partition)})
	}
}

func (g *timing) merge(o *timing) {
	g.accepted += o.accepted
	g.lateMore += o.lateMore
	n := min(len(o.late), maxLate-len(g.late))
	g.late, g.lateMore = append(g.late, o.late[:n]...), g.lateMore+len(o.late)-n
	g.disturbed = append(g.disturbed, o.disturbed...)
	g.lateness.count += o.lateness.count
	g.lateness.max = max(g.lateness.max, o.lateness.max)
	for i, n := range o.lateness.buckets {
		g.lateness.buckets[i] += n
	}
}
