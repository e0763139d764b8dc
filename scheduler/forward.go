package scheduler

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/waybill-run/waybill/events"
)

// A task's id determines the partition of its records. A record in another partition is forwarded once, in the
// transaction that consumes it.

// targetPartition returns the partition of a task's record, or why the record is unusable.
func targetPartition(r *events.Record, task string, partitions int32) (int32, *events.Unusable) {
	if len(r.Key) > 0 && string(r.Key) != task {
		return 0, &events.Unusable{Reason: events.ReasonWrongKey, Detail: "the key names " + quoted(string(r.Key)) + ", the record " + quoted(task)}
	}
	where := events.Partition([]byte(task), partitions)
	if where != r.Partition {
		if hop, ok := r.Header(events.HeaderHop); ok {
			return 0, &events.Unusable{Reason: events.ReasonMisplaced, Detail: "forwarded from " + hop + " and misplaced again"}
		}
	}
	return where, nil
}

// forward writes the record to the right partition with the right key. Its value is bounded, but a foreign client may
// have added any headers. A record above the limit becomes a dead letter, which contains the value and can be redriven.
func (tx *transaction) forward(r *events.Record, task string, where int32) {
	f := forwardedCopy(r, task, where)
	if n := recordBytes(&f); n > MaxForwardBytes {
		tx.deadletter(r, &events.Unusable{Reason: events.ReasonTooLarge,
			Detail: fmt.Sprintf("it is in the wrong partition, and has %d bytes with its headers; at most %d are forwarded", n, MaxForwardBytes)})
		return
	}
	tx.counts.Forwarded++
	tx.write(f)
}

// headerOverheadMax is the most bytes of a header besides its name and value: their two lengths. Without it, a million
// empty headers in one batch would count as nothing.
const headerOverheadMax = 10

// recordBytes returns an upper bound of a record's uncompressed size.
func recordBytes(r *events.Record) int {
	n := len(r.Key) + len(r.Value)
	for i := range r.Headers {
		n += headerOverheadMax + len(r.Headers[i].Key) + len(r.Headers[i].Value)
	}
	return n
}

// forwardedCopy returns the record to write. Its hop header names the origin, so that it isn't forwarded again.
func forwardedCopy(r *events.Record, task string, where int32) events.Record {
	f := events.Record{Topic: r.Topic, Partition: where, Key: []byte(task), Value: r.Value}
	f.Headers = append(append(make([]events.Header, 0, len(r.Headers)+1), r.Headers...),
		events.Header{Key: events.HeaderHop, Value: []byte(strconv.Itoa(int(r.Partition)) + "/" + strconv.FormatInt(r.Offset, 10))})
	return f
}

// forwardFromAdded forwards a record from a partition that was added to an inbox. The events topic has no partition of
// that number, so no state can reflect the input. Once the forward is committed, the record may be trimmed.
func (tx *transaction) forwardFromAdded(r *events.Record) error {
	inbox := tx.worker.inboxes[r.Topic]
	if tx.addedOffsets == nil {
		tx.addedOffsets = inboxOffsets{}
	}
	tx.addedOffsets.set(inbox, r.Partition, r.Offset+1)
	task, _, err := events.DecodeInput(inbox, r)
	unusable, ok := errors.AsType[*events.Unusable](err)
	if err != nil && !ok {
		return err
	}
	var where int32
	if unusable == nil {
		where, unusable = targetPartition(r, task, tx.worker.cfg.Partitions)
	}
	if unusable != nil {
		tx.deadletter(r, unusable)
		return nil
	}
	tx.forward(r, task, where)
	return nil
}
