package verify

import (
	"time"

	"github.com/waybill-run/waybill/events"
)

// OneTask is what the events of one task show of the promises.
type OneTask struct {
	Events int
	Faults []Fault // the first of its history, and what its end shows; empty: it is unbroken
	// Sealed is true if the last event has its own checksum. Any other event is checked by the hash in the one after it.
	Sealed bool
	Hash   string // of the last event
}

// NotOfOneTask lists what the events of one task can't show, for people.
var NotOfOneTask = []string{
	"that the inputs which the events name as their causes are in the inboxes",
	"that each owner of the partition had claimed it before it wrote",
	"that each attempt has one request, and that agents did what their replies say",
	"that nobody who can write to the topic has replaced all events: the hashes have no key",
}

// CheckTask checks the events of one task, without the other events of its partition. It needs all of them, in the order
// of the log, as of now by the brokers' clock. lost says, by offset, which of the records can't be read, and why.
func CheckTask(ns events.Namespace, partitions int32, records []events.Record, lost map[int64]error, now time.Time) *OneTask {
	c := New(Options{Namespace: ns, Partitions: partitions})
	c.oneTask = true
	one := &OneTask{Events: len(records)}
	for i := range records {
		r := &records[i]
		if why := lost[r.Offset]; why != nil {
			c.Corrupt(r.Topic, r.Partition, r.Offset, []string{string(r.Key)}, why.Error())
			continue
		}
		e := c.Event(r)
		if i == len(records)-1 && e != nil {
			one.Sealed, one.Hash = e.Sum != "", events.Hash(e.Fact.Type(), r.Value)
		}
	}
	one.Faults = c.Finish(now).Faults
	return one
}

// skipClaims prepares a partition for an event whose owner's claim isn't fed. The claim may have said that inboxes were
// created again, so their positions start again, too.
func (p *partition) skipClaims(e *events.Event) {
	if e.Epoch <= p.state.Epoch {
		return
	}
	p.state.Epoch, p.any = e.Epoch, false
	p.next, p.least, p.before = [events.Inboxes]int64{}, [events.Inboxes]int64{}, [events.Inboxes]int64{}
}
