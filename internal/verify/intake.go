package verify

import (
	"fmt"

	"github.com/waybill-run/waybill/events"
)

// intakes are the tasks that intakes' records led to, by record.
type intakes map[events.IntakeRef]receivedFrom

// receivedFrom is the first event of a task.
type receivedFrom struct {
	task      string
	partition int32
	offset    int64
}

// checkIntake checks that a record of an intake's topic leads to one task (P28).
func (c *Checker) checkIntake(of events.IntakeRef, by receivedFrom) {
	first, taken := c.intakes[of]
	if !taken {
		if c.intakes == nil {
			c.intakes = intakes{}
		}
		c.intakes[of] = by
		return
	}
	c.addHistoryFault(Fault{Promise: "P28", Task: by.task, Topic: topicEvents, Partition: by.partition, Offset: by.offset,
		What: fmt.Sprintf("the record %s of an intake led to task %q already", &of, first.task)})
}

// mergeIntakes adds what another checker was fed.
func (c *Checker) mergeIntakes(o *Checker) {
	for of, by := range o.intakes {
		c.checkIntake(of, by)
	}
}

// sumOfOrigin returns a hash of where a submission came from: its trace, the record that an intake made it of, and the
// parent that it is a child of.
func sumOfOrigin(traceparent string, of *events.IntakeRef, parent *events.Parent) uint64 {
	if of != nil {
		traceparent += "\n" + of.String()
	}
	if p := parent; p != nil {
		item := -1
		if p.Item != nil {
			item = *p.Item
		}
		traceparent += fmt.Sprintf("\n%s\n%s\n%d %d %v %d", events.RequestID(p.Task, p.Ref()), p.Token, p.Depth, item, p.StepAlone, p.KnownUntil.UnixMilli())
	}
	return sumOfText(traceparent)
}
