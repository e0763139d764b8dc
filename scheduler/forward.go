package scheduler

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/waybill-run/waybill/events"
)

// A record about a task belongs in the partition that the task's id says. One that somebody wrote
// elsewhere is forwarded there, once, in the transaction that consumes it.

// place says in which partition a record about a task belongs, or why it can't
// be used at all.
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

// forward writes the record under the right key, in the right partition. Its value is
// bounded, its headers are whatever a stranger's client could write; past the bound it is
// a dead letter, which has its value and says what it is, so it can be redriven.
func (tx *transaction) forward(r *events.Record, task string, where int32) {
	f := forwardedCopy(r, task, where)
	if n := recordBytes(&f); n > MaxForwardBytes {
		tx.deadletter(r, &events.Unusable{Reason: events.ReasonTooLarge,
			Detail: fmt.Sprintf("it lies in the wrong partition, and has %d bytes with its headers; at most %d are forwarded", n, MaxForwardBytes)})
		return
	}
	tx.counts.forwarded++
	tx.write(f)
}

// headerOverheadMax is what a header has in a record besides its name and its value: their
// lengths. A batch holds a million headers of nothing.
const headerOverheadMax = 10

// recordBytes is no less than what a record has, uncompressed.
func recordBytes(r *events.Record) int {
	n := len(r.Key) + len(r.Value)
	for i := range r.Headers {
		n += headerOverheadMax + len(r.Headers[i].Key) + len(r.Headers[i].Value)
	}
	return n
}

// forwarded is the record as it is written again: a header names where it was found, so that it
// is forwarded once only.
func forwardedCopy(r *events.Record, task string, where int32) events.Record {
	f := events.Record{Topic: r.Topic, Partition: where, Key: []byte(task), Value: r.Value}
	f.Headers = append(append(make([]events.Header, 0, len(r.Headers)+1), r.Headers...),
		events.Header{Key: events.HeaderHop, Value: []byte(strconv.Itoa(int(r.Partition)) + "/" + strconv.FormatInt(r.Offset, 10))})
	return f
}

// bring forwards a record out of a partition that somebody has added to an inbox: no
// partition of events goes with it, so nothing can reflect it where it is. Once that is committed it is
// done with there.
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
