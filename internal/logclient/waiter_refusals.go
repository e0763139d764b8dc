package logclient

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/waybill-run/waybill/events"
)

const (
	// unansweredAfter is how long a submitted task may have no event before the dead letters are read: the order may have
	// been refused.
	unansweredAfter = 50 * time.Millisecond
	// refusalsPauseMin and refusalsPauseMax bound the pause between two reads of the dead letters. It doubles, and starts
	// over when an order is written or waited for. A read without new dead letters is one request for their end offsets.
	refusalsPauseMin = 50 * time.Millisecond
	refusalsPauseMax = 5 * time.Second
)

// refusalReader is the state of the reads of the dead letters.
type refusalReader struct {
	next    map[int32]int64 // by partition: dead letters below this offset were read
	reading bool
	restEnd time.Time     // no read starts before: reads take at most a tenth of the time
	pauses  time.Duration // between two reads
	readAt  time.Time     // the end of the last read
	err     error         // of the last read
}

// due reports whether a read is due.
func (r *refusalReader) due(now time.Time) bool {
	return !r.reading && now.After(r.restEnd) && now.Sub(r.readAt) >= r.pauses
}

// expect makes the next read due soon: an order may be refused now.
func (r *refusalReader) expect() { r.pauses = min(r.pauses, refusalsPauseMin) }

// unansweredOrder is an order without an event.
type unansweredOrder struct {
	task *trackedTask
	at   time.Time // of the submission
	read bool      // the dead letters below refusalReader.next were read for it
	// partition is that of its dead letter.
	partition int32
}

// checkRefusals reads the dead letters for submitted orders without an event.
func (w *Waiter) checkRefusals() {
	began := time.Now()
	w.mu.Lock()
	orders := map[string]*unansweredOrder{} // by origin
	for p := range w.partitions {
		for t := range w.partitions[p].waiting {
			if t.task == nil && t.submission.Topic != "" {
				orders[events.Origin(&t.submission)] = &unansweredOrder{task: t, at: t.submission.Time, read: t.refusalsRead}
			}
		}
	}
	w.refusals.pauses = min(max(2*w.refusals.pauses, refusalsPauseMin), refusalsPauseMax)
	w.mu.Unlock()
	next, err := w.readDeadLetters(w.ctx, orders)
	w.mu.Lock()
	defer w.mu.Unlock()
	r := &w.refusals
	r.reading, r.err, r.readAt = false, err, time.Now()
	r.restEnd = r.readAt.Add(scanPauseFactor * r.readAt.Sub(began))
	if next != nil {
		r.next = next
	}
	for origin, o := range orders {
		t := o.task
		if o.read && events.Origin(&t.submission) == origin {
			t.refusalsRead = true
		}
		if t.task == nil && t.refusal != nil { // otherwise the reader of its partition resolves it
			w.markChanged(t)
			w.resolve(t, w.partitions[t.partition].asOf)
		}
	}
}

// readDeadLetters reads the dead letters of orders that were written since the last read, and for orders that were not
// part of it all since they were submitted. It sets read of the orders whose partition it has read, and returns the
// offsets it reached; nil: none. An error is about the other partitions.
func (w *Waiter) readDeadLetters(ctx context.Context, orders map[string]*unansweredOrder) (map[int32]int64, error) {
	topic := w.ns.Deadletters()
	ends, err := w.log.EndOffsets(ctx, topic)
	if err != nil {
		return nil, err
	}
	wanted := map[int32][]*unansweredOrder{}
	for _, o := range orders {
		o.partition = events.Partition([]byte(o.task.id), w.partitionsOf(ends))
		wanted[o.partition] = append(wanted[o.partition], o)
	}
	next := map[int32]int64{}
	maps.Copy(next, w.refusals.next) // only the one read that runs changes it
	var failed []error
	for p, of := range wanted {
		end, known := ends[p]
		if !known {
			failed = append(failed, fmt.Errorf("read the dead letters: partition %d of %s has no leader", p, topic))
			continue
		}
		from, since := rangeOfRefusals(of, next[p])
		if from < end {
			reached, err := w.log.Read(ctx, topic, p, from, since, func(rs []events.Record) error {
				w.recordRefusals(orders, rs)
				return nil
			})
			if err != nil {
				failed = append(failed, fmt.Errorf("read the dead letters: %w", err))
				continue
			}
			next[p] = reached
		}
		for _, o := range of {
			o.read = true
		}
	}
	return next, errors.Join(failed...)
}

// partitionsOf returns how many partitions a topic has whose ends are known: as many as the events, or more if some were
// added. Ends of partitions without a leader are missing.
func (w *Waiter) partitionsOf(ends map[int32]int64) int32 {
	n := w.partitionCount
	for p := range ends {
		n = max(n, p+1)
	}
	return n
}

// rangeOfRefusals returns where to begin in a partition, and the time of the oldest dead letter that may be of one of
// the orders; next is where the last read has ended. Orders that were not part of it need all since they were submitted.
func rangeOfRefusals(of []*unansweredOrder, next int64) (from int64, since time.Time) {
	from = next
	for _, o := range of {
		if !o.read && (from > 0 || since.IsZero() || o.at.Add(-clockSkewMax).Before(since)) {
			from, since = 0, o.at.Add(-clockSkewMax)
		}
	}
	return from, since
}

// recordRefusals records which orders have one of these dead letters.
func (w *Waiter) recordRefusals(orders map[string]*unansweredOrder, letters []events.Record) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range letters {
		origin := events.FirstOrigin(&letters[i])
		o := orders[origin]
		if o == nil {
			continue
		}
		// Compare again: it may have been submitted again meanwhile.
		if t := o.task; t.task == nil && events.Origin(&t.submission) == origin {
			reason, _ := letters[i].Header(events.HeaderReason)
			detail, _ := letters[i].Header(events.HeaderDetail)
			t.refusal = &RefusedError{Task: t.id, Reason: reason + ": " + detail}
		}
	}
}
